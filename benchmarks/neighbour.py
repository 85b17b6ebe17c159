"""What an enqueue costs the application beside a plain insert: transactions a second, of 1, 16 and 64 clients.

Both put one job of the same kind into the same table, a transaction each, while a worker runs what comes. They take
turns, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.stamps import stamp
from benchmarks.workers import running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn
    from jobq.db.connect import AnyConnection

CLIENTS = (1, 16, 64)
TURN_S = 4.0
TURNS = 3

PLAIN = f"""
    insert into {SCHEMA}.job (queue, kind, priority, run_at, enqueued_at, payload)
    values ('default', 'stamp', 5, clock_timestamp(), clock_timestamp(), '{{}}')
    returning id
"""


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Let plain inserts and enqueues take turns, `--runs` times with each number of clients."""
    runs: dict[str, list[float]] = {}
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        for clients in CLIENTS:
            plain, enqueued = await _take_turns(conn, dsn, clients)
            runs.setdefault(f"plain_per_s_{clients}", []).append(plain)
            runs.setdefault(f"enqueue_per_s_{clients}", []).append(enqueued)
            runs.setdefault(f"ratio_{clients}", []).append(enqueued / plain)
    report = await make_report(conn, "neighbour", runs, {"turn_s": TURN_S, "turns": TURNS}, void="")
    await conn.close()
    return report


async def _take_turns(conn: Conn, dsn: str, clients: int) -> tuple[float, float]:
    """Return how many a second were inserted, and enqueued."""
    await fresh_schema(conn)
    counts = [0, 0]
    async with (
        running_worker(conn, dsn, app="stamps"),
        Queue(dsn, schema=SCHEMA) as queue,
        asyncpg.create_pool(dsn, min_size=clients, max_size=clients) as pool,
    ):

        async def plain(conn: AnyConnection) -> object:
            return await conn.fetchval(PLAIN)

        async def enqueue(conn: AnyConnection) -> object:
            return await queue.enqueue(stamp.bind(), conn=conn, autocommit=True)

        for _ in range(TURNS):
            for way, add in enumerate((plain, enqueue)):
                counts[way] += await _turn(pool, clients, add)
        await until(conn, "select not exists (select from {}.job)")
    return counts[0] / (TURN_S * TURNS), counts[1] / (TURN_S * TURNS)


async def _turn(
    pool: asyncpg.Pool[asyncpg.Record], clients: int, add: Callable[[AnyConnection], Awaitable[object]]
) -> int:
    ends_at = time.monotonic() + TURN_S
    count = 0

    async def client() -> None:
        nonlocal count
        async with pool.acquire() as conn:
            while time.monotonic() < ends_at:
                await add(conn)
                count += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return count
