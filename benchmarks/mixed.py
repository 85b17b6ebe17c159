"""What jobs do to each other: a queue beside one that is flooded with slow jobs, and an urgent job behind a million.

`other_queue.*` is the pick-up of 50 jobs a second in a queue of their own, while another queue of the same worker has
all its slots taken by jobs of a tenth of a second and many more waiting. `urgent_s` is how long a job of priority 0
waits to be claimed, enqueued behind `--jobs` ready ones of priority 5.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import quantiles
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.backlog import FILL
from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import noop
from benchmarks.throughput import NOTE
from benchmarks.two_queues import quick, slow
from benchmarks.workers import running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

FLOOD = 100_000
OTHER_JOBS = 500
EVERY_S = 0.02

WAITED_MS = f"""
    select extract(epoch from claimed_at - enqueued_at)::float8 * 1000
    from {SCHEMA}.done
    where queue = 'quick'
"""
URGENT_S = f"select extract(epoch from claimed_at - enqueued_at)::float8 from {SCHEMA}.done where id = $1"


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Measure both `--runs` times, each in a new schema."""
    runs: dict[str, list[float]] = {}
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        await fresh_schema(conn)
        percentiles = quantiles(await _beside_a_flood(conn, dsn), n=100, method="inclusive")
        runs.setdefault("other_queue.p50_ms", []).append(percentiles[49])
        runs.setdefault("other_queue.p99_ms", []).append(percentiles[98])
        await fresh_schema(conn)
        runs.setdefault("urgent_s", []).append(await _behind_many(conn, dsn, options))
    parameters: dict[str, object] = {"flood": FLOOD, "jobs": options.jobs, "slots": options.slots}
    report = await make_report(conn, "mixed", runs, parameters, void="")
    await conn.close()
    return report


async def _beside_a_flood(conn: Conn, dsn: str) -> list[float]:
    """Return how long each job of the other queue waited for its claim, in milliseconds."""
    async with Queue(dsn, schema=SCHEMA) as queue, running_worker(conn, dsn, app="two_queues"):
        await queue.enqueue_many(slow.bind(seconds=0.1) for _ in range(FLOOD))
        for _ in range(OTHER_JOBS):
            await queue.enqueue(quick.bind())
            await asyncio.sleep(EVERY_S)
        await until(conn, "select count(*) = $1 from {}.done where queue = 'quick'", OTHER_JOBS)
    return [row[0] for row in await conn.fetch(WAITED_MS)]


async def _behind_many(conn: Conn, dsn: str, options: argparse.Namespace) -> float:
    await conn.execute(FILL, options.jobs, timeout=3600)
    async with Queue(dsn, schema=SCHEMA) as queue, running_worker(conn, dsn, "--concurrency", str(options.slots)):
        await until(conn, "select exists (select from {}.done)")
        urgent = await queue.enqueue(noop.bind(order_id=0, note=NOTE), priority=0)
        await until(conn, "select exists (select from {}.done where id = $1)", urgent.id)
    waited_s: float = await conn.fetchval(URGENT_S, urgent.id)
    return waited_s
