"""A backlog of `--jobs` waiting jobs, drained by one worker process while more keep arriving, 1,000 a second."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import noop
from benchmarks.throughput import NOTE
from benchmarks.workers import running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

ARRIVING_PER_S = 1000
BATCH = 100
"""Of what arrives, in one transaction: what the producer costs is not the question here."""

FILL = f"""
    insert into {SCHEMA}.job (queue, kind, priority, run_at, enqueued_at, payload)
    select
        'default', 'noop', 5, now() - interval '1 hour' + n * interval '1 microsecond', now() - interval '1 hour',
        jsonb_build_object('order_id', n, 'note', repeat('x', 70))
    from generate_series(1, $1::int) n
"""
TENTHS = f"""
    select count(*) / extract(epoch from max(finished_at) - min(finished_at))::float8
    from (
        select finished_at, ntile(10) over (order by finished_at) as tenth
        from {SCHEMA}.done
        where id <= $1
    ) as old
    group by tenth
    order by tenth
"""


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Drain the backlog `--runs` times, each in a new schema, with the statistics of an empty table."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        await fresh_schema(conn)
        await conn.execute(FILL, options.jobs, timeout=3600)
        void = void or await _drain(conn, dsn, options, runs)
    parameters: dict[str, object] = {"jobs": options.jobs, "slots": options.slots, "arriving_per_s": ARRIVING_PER_S}
    report = await make_report(conn, "backlog", runs, parameters, void)
    await conn.close()
    return report


async def _drain(conn: Conn, dsn: str, options: argparse.Namespace, runs: dict[str, list[float]]) -> str:
    """Add one run's figures to *runs*. Returns why it is void, or nothing."""
    began = time.monotonic()
    async with (
        Queue(dsn, schema=SCHEMA) as queue,
        running_worker(conn, dsn, "--concurrency", str(options.slots)),
        asyncio.TaskGroup() as group,
    ):
        arriving = group.create_task(_arrive(queue))
        await until(conn, "select not exists (select from {}.job where id <= $1)", options.jobs)
        drained_s = time.monotonic() - began
        arriving.cancel()
        await until(conn, "select not exists (select from {}.job)")
    tenths = [row[0] for row in await conn.fetch(TENTHS, options.jobs)]
    for name, value in (
        ("drained_s", drained_s),
        ("first_tenth_per_s", tenths[0]),
        ("last_tenth_per_s", tenths[-1]),
        ("last_to_first", tenths[-1] / tenths[0]),
    ):
        runs.setdefault(name, []).append(value)
    done = await conn.fetchval(f"select count(*) from {SCHEMA}.done where id <= $1", options.jobs)
    return "" if done == options.jobs else f"{done} of {options.jobs} jobs are done"


async def _arrive(queue: Queue) -> None:
    began = time.monotonic()
    batches = 0
    while True:
        await queue.enqueue_many([noop.bind(order_id=number, note=NOTE) for number in range(BATCH)])
        batches += 1
        await asyncio.sleep(max(0.0, began + batches * BATCH / ARRIVING_PER_S - time.monotonic()))
