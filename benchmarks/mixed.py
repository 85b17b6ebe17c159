"""What jobs do to each other: a queue beside one that is flooded with slow jobs, and an urgent job behind a million.

`other_queue.*` is the pick-up of 50 jobs a second in a queue of their own, while another queue of the same worker has
all its slots taken by jobs of a tenth of a second and many more waiting. `urgent_s` is how long it takes, by the
history's clock, from the enqueue of a job of priority 0 behind `--jobs` ready ones of priority 5 until it is done.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.crowd import fill_waiting
from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.pick_up import percentile, read_waits, stamp_file
from benchmarks.report import Report, make_report
from benchmarks.sleepers import NOTE, noop
from benchmarks.stamps import STAMPS
from benchmarks.two_queues import quick, slow
from benchmarks.workers import running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

FLOOD = 100_000
OTHER_JOBS = 500
EVERY_S = 0.02

URGENT_S = f"select extract(epoch from finished_at - enqueued_at)::float8 from {SCHEMA}.done where id = $1"
IN_ALL = f"select (select count(*) from {SCHEMA}.job) + (select count(*) from {SCHEMA}.done)"


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Measure both `--runs` times, each in a new schema."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        await fresh_schema(conn)
        void = void or await _beside_a_flood(conn, dsn, runs)
        void = void or await _count(conn, FLOOD + OTHER_JOBS)
        await fresh_schema(conn)
        runs.setdefault("urgent_s", []).append(await _behind_many(conn, dsn, options))
        void = void or await _count(conn, options.jobs + 1)
    parameters: dict[str, object] = {"flood": FLOOD, "jobs": options.jobs, "slots": options.slots}
    report = await make_report(conn, "mixed", runs, parameters, void)
    await conn.close()
    return report


async def _beside_a_flood(conn: Conn, dsn: str, runs: dict[str, list[float]]) -> str:
    """Add how long the jobs of the other queue waited to *runs*. Returns why that is void, or nothing."""
    with stamp_file() as stamps:
        async with (
            Queue(dsn, schema=SCHEMA) as queue,
            running_worker(conn, dsn, app="two_queues", environment={STAMPS: str(stamps)}),
        ):
            await queue.enqueue_many(slow.bind(seconds=0.1) for _ in range(FLOOD))
            for _ in range(OTHER_JOBS):
                await queue.enqueue(quick.bind())
                await asyncio.sleep(EVERY_S)
            await until(conn, "select count(*) = $1 from {}.done where queue = 'quick'", OTHER_JOBS)
        waits, void = await read_waits(conn, stamps, kind="quick")
    if void:
        return void
    for percent in (50, 99):
        figure = percentile([wait.ms for wait in waits], percent)
        runs.setdefault(f"other_queue.p{percent}_ms", []).append(figure)
    return ""


async def _behind_many(conn: Conn, dsn: str, options: argparse.Namespace) -> float:
    await fill_waiting(conn, options.jobs)
    async with Queue(dsn, schema=SCHEMA) as queue, running_worker(conn, dsn, "--concurrency", str(options.slots)):
        await until(conn, "select exists (select from {}.done)")
        urgent = await queue.enqueue(noop.bind(order_id=0, note=NOTE), priority=0)
        await until(conn, "select exists (select from {}.done where id = $1)", urgent.id)
    took_s: float = await conn.fetchval(URGENT_S, urgent.id)
    return took_s


async def _count(conn: Conn, expected: int) -> str:
    found = await conn.fetchval(IN_ALL)
    return "" if found == expected else f"{expected} jobs enqueued, {found} waiting, running or done"
