"""A client process of `neighbour`: `python -m benchmarks.inserters CLIENTS TURN_S`, with the DSN in JOBQ_DSN.

Says `ready`, then takes a turn for each line of its input, `plain` or `enqueue`, and answers with a line: how many rows
its clients have committed, and the seconds of CPU that it used. Both ways are one statement, a transaction of its own,
on the same connections, and put the same job into the same table. The plain insert makes its row as an application
would: `orjson.dumps` of a dict, and the values as parameters.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import asyncpg
import orjson
import uvloop

from benchmarks.database import SCHEMA
from benchmarks.sleepers import NOTE, noop
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

    Insert = Callable[[Conn, int], Awaitable[object]]

PLAIN = f"""
    insert into {SCHEMA}.job (queue, kind, priority, run_at, enqueued_at, payload)
    values ($1, $2, $3, clock_timestamp(), clock_timestamp(), $4)
    returning id
"""

queue = Queue(schema=SCHEMA)


async def plain(conn: Conn, number: int) -> object:
    """Insert a row."""
    payload = orjson.dumps({"order_id": number, "note": NOTE}).decode()
    return await conn.fetchval(PLAIN, "default", "noop", 5, payload)


async def enqueue(conn: Conn, number: int) -> object:
    """Enqueue a job."""
    return await queue.enqueue(noop.bind(order_id=number, note=NOTE), conn=conn, autocommit=True)


INSERTS: dict[str, Insert] = {"plain": plain, "enqueue": enqueue}


async def serve(clients: int, turn_s: float) -> None:
    """Take turns until the input ends."""
    connections = [await asyncpg.connect(os.environ["JOBQ_DSN"]) for _ in range(clients)]
    print("ready", flush=True)
    # Read in the way: between turns there is nothing else to do.
    for line in sys.stdin:
        cpu_before_s = time.process_time()
        count = await _turn(connections, INSERTS[line.strip()], turn_s)
        print(count, time.process_time() - cpu_before_s, flush=True)
    for connection in connections:
        await connection.close()


async def _turn(connections: list[Conn], insert: Insert, turn_s: float) -> int:
    ends_at = time.monotonic() + turn_s

    async def client(conn: Conn) -> int:
        count = 0
        while time.monotonic() < ends_at:
            await insert(conn, count)
            count += 1
        return count

    async with asyncio.TaskGroup() as group:
        counting = [group.create_task(client(conn)) for conn in connections]
    return sum(task.result() for task in counting)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2])))
