"""How fast one worker process drains jobs that do nothing, on the server of a `chaos` run: before its faults and after.

The second time it meets what the orders and the faults have left in the same schema: dead rows, a history, rows of
workers that are gone. Both times the server is at rest: nothing waits for its checkpoint, and no autovacuum is at work.
"""

from __future__ import annotations

import asyncio
import time

import asyncpg

from benchmarks.database import SCHEMA
from benchmarks.sleepers import NOTE, noop
from benchmarks.workers import run_until_empty
from jobq import Queue

DRAINS = 3
SLOTS = 500
FEWEST = 20_000
MOST = 100_000
REST_WITHIN_S = 120.0

AT_WORK = "select exists (select from pg_stat_activity where backend_type = 'autovacuum worker')"

DRAINED = f"""
    select count(*), extract(epoch from max(finished_at) - min(claimed_at))::float8
    from {SCHEMA}.done
    where kind = 'noop' and enqueued_at >= $1
"""


async def drain_rates(dsn: str, orders: int) -> list[float]:
    """Return the jobs a second of each drain; of how many jobs goes by that of the run's *orders*."""
    jobs = min(max(FEWEST, orders // 10), MOST)
    conn = await asyncpg.connect(dsn)
    try:
        await _rest(conn)
        return [await _drain(conn, dsn, jobs) for _ in range(DRAINS)]
    finally:
        await conn.close()


async def _rest(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    await conn.execute("checkpoint")
    give_up_at = time.monotonic() + REST_WITHIN_S
    while await conn.fetchval(AT_WORK) and time.monotonic() < give_up_at:  # noqa: ASYNC110 - it is the server
        await asyncio.sleep(0.5)


async def _drain(conn: asyncpg.Connection[asyncpg.Record], dsn: str, jobs: int) -> float:
    since = await conn.fetchval("select clock_timestamp()")
    async with Queue(dsn, schema=SCHEMA) as queue:
        await queue.enqueue_many(noop.bind(order_id=number, note=NOTE) for number in range(jobs))
    await run_until_empty(dsn, 1, "--concurrency", str(SLOTS))
    row = await conn.fetchrow(DRAINED, since)
    assert row is not None
    done, seconds = row
    if done != jobs:
        raise RuntimeError(f"of {jobs} jobs that do nothing {done} are done")
    return float(jobs / seconds)
