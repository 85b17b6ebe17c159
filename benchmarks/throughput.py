"""How many jobs a second: enqueued in bulk, then drained by worker processes, no-op handlers, history on."""

from __future__ import annotations

import argparse
import resource
import time
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import noop
from benchmarks.workers import COMMITS, run_until_empty
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

NOTE = "x" * 70
"""Makes a payload of about 100 bytes."""

DRAINED_S = f"select extract(epoch from max(finished_at) - min(claimed_at))::float8 from {SCHEMA}.done"


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Enqueue `--jobs` jobs and let one worker process, or two, drain them, `--runs` times, each in a new schema."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        for processes in (1, 2):
            await fresh_schema(conn)
            void = void or await _one_run(conn, dsn, options, runs, processes)
    parameters: dict[str, object] = {"jobs": options.jobs, "slots": options.slots, "history": "1 day"}
    report = await make_report(conn, "throughput", runs, parameters, void)
    await conn.close()
    return report


async def _one_run(
    conn: Conn, dsn: str, options: argparse.Namespace, runs: dict[str, list[float]], processes: int
) -> str:
    """Add one run's figures to *runs*. Returns why it is void, or nothing. The drain is timed by the history."""
    wal_before = await conn.fetchval("select pg_current_wal_lsn()")
    commits_before = await conn.fetchval(COMMITS)
    started = time.perf_counter()
    async with Queue(dsn, schema=SCHEMA) as queue:
        await queue.enqueue_many(noop.bind(order_id=number, note=NOTE) for number in range(options.jobs))
    enqueue_s = time.perf_counter() - started
    await run_until_empty(dsn, processes, "--concurrency", str(options.slots))

    drained_s = await conn.fetchval(DRAINED_S)
    wal = await conn.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1)::float8", wal_before)
    if processes == 1:
        figures = {
            "drain_per_s": options.jobs / drained_s,
            "enqueue_per_s": options.jobs / enqueue_s,
            "wal_bytes_per_job": wal / options.jobs,
            "commits_per_job": (await conn.fetchval(COMMITS) - commits_before) / options.jobs,
            "rss_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        }
    else:
        figures = {"drain_2_processes_per_s": options.jobs / drained_s}
    for name, value in figures.items():
        runs.setdefault(name, []).append(value)
    done = await conn.fetchval(f"select count(*) from {SCHEMA}.done")
    left = await conn.fetchval(f"select count(*) from {SCHEMA}.job")
    if (done, left) != (options.jobs, 0):
        return f"{options.jobs} jobs enqueued, {done} done, {left} left"
    return ""
