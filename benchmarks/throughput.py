"""How many jobs a second: enqueued in bulk, then drained by one worker process, no-op handlers, history on."""

from __future__ import annotations

import argparse
import resource
import time

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from jobq import Queue
from jobq.settings import WorkerSettings
from jobq.telemetry.events import Event
from jobq.worker.supervisor import Worker

NOTE = "x" * 70
"""Makes a payload of about 100 bytes."""


def _quiet(event: Event) -> None:
    pass


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Enqueue `--jobs` jobs and drain them, `--runs` times, each in a new schema."""
    runs: dict[str, list[float]] = {"enqueue_per_s": [], "drain_per_s": [], "wal_bytes_per_job": [], "rss_mb": []}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        await fresh_schema(conn)
        void = void or await _one_run(conn, dsn, options, runs)
    parameters: dict[str, object] = {"jobs": options.jobs, "slots": options.slots, "history": "1 day"}
    report = await make_report(conn, "throughput", runs, parameters, void)
    await conn.close()
    return report


async def _one_run(
    conn: asyncpg.Connection[asyncpg.Record], dsn: str, options: argparse.Namespace, runs: dict[str, list[float]]
) -> str:
    """Add one run's figures to *runs*. Returns why it is void, or nothing."""
    queue = Queue(dsn, schema=SCHEMA)
    ran = 0

    @queue.task(kind="noop", on_duplicate="harmless: it does nothing")
    async def noop(order_id: int, note: str) -> None:
        nonlocal ran
        ran += 1

    wal_before = await conn.fetchval("select pg_current_wal_lsn()")
    started = time.perf_counter()
    await queue.enqueue_many(noop.bind(order_id=number, note=NOTE) for number in range(options.jobs))
    enqueued = time.perf_counter()
    await Worker(queue, WorkerSettings(default_slots=options.slots), emit=_quiet).run(until_empty=True)
    drained = time.perf_counter()

    wal = await conn.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1)::float8", wal_before)
    runs["enqueue_per_s"].append(options.jobs / (enqueued - started))
    runs["drain_per_s"].append(options.jobs / (drained - enqueued))
    runs["wal_bytes_per_job"].append(wal / options.jobs)
    runs["rss_mb"].append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    done = await conn.fetchval(f"select count(*) from {SCHEMA}.done")
    left = await conn.fetchval(f"select count(*) from {SCHEMA}.job")
    if (ran, done, left) != (options.jobs, options.jobs, 0):
        return f"{options.jobs} jobs enqueued, {ran} run, {done} done, {left} left"
    return ""
