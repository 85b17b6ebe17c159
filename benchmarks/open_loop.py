"""Jobs enqueued at a given rate, whatever the answers take: one a transaction, by clients that keep their connections.

A transaction is the enqueue alone, so that no delay of the client's own comes between the enqueue and its commit. The
clients are tasks of the benchmark's own process, which shares the machine with worker and server. So how late each
transaction was begun is returned too: where that is much, the rate was not offered.
"""

from __future__ import annotations

import asyncio
import time

import asyncpg

from benchmarks.stamps import stamp
from jobq import Queue

CLIENTS = 16


async def send(dsn: str, queue: Queue, rate: int, seconds: float, *, notify: bool = True) -> list[float]:
    """Enqueue *rate* jobs a second for *seconds*. Returns how late each was begun, in milliseconds, in order."""
    late_ms = [0.0] * round(rate * seconds)
    numbers = iter(range(len(late_ms)))

    async def client(conn: asyncpg.Connection[asyncpg.Record]) -> None:
        for number in numbers:
            due_at = began + number / rate
            if (left_s := due_at - time.monotonic()) > 0:
                await asyncio.sleep(left_s)
            late_ms[number] = (time.monotonic() - due_at) * 1000
            await queue.enqueue(stamp.bind(), conn=conn, autocommit=True, notify=notify)

    connections = [await asyncpg.connect(dsn) for _ in range(CLIENTS)]
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(client(connection))
    for connection in connections:
        await connection.close()
    return late_ms
