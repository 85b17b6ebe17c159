"""What a worker's memory becomes after many jobs: `--jobs` in ten portions, its resident set after each.

`growth_mb` is what it has grown from the end of the first portion to the end of the last.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import NOTE, noop
from benchmarks.workers import rss_mb, running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

PORTIONS = 10


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Feed one worker, `--runs` times, each in a new schema."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        await fresh_schema(conn)
        samples = await _feed(conn, dsn, options)
        for jobs, sample in samples.items():
            runs.setdefault(f"rss_mb.{jobs}", []).append(sample)
        first, *_, last = samples.values()
        runs.setdefault("growth_mb", []).append(last - first)
        done = await conn.fetchval(f"select count(*) from {SCHEMA}.done")
        void = void or ("" if done == max(samples) else f"{done} of {max(samples)} jobs are done")
    report = await make_report(conn, "memory", runs, {"jobs": options.jobs, "slots": options.slots}, void)
    await conn.close()
    return report


async def _feed(conn: Conn, dsn: str, options: argparse.Namespace) -> dict[int, float]:
    """Return the worker's memory by the number of jobs that it has run."""
    portion = options.jobs // PORTIONS
    samples: dict[int, float] = {}
    async with (
        Queue(dsn, schema=SCHEMA) as queue,
        running_worker(conn, dsn, "--concurrency", str(options.slots)) as worker,
    ):
        for number in range(1, PORTIONS + 1):
            await queue.enqueue_many(noop.bind(order_id=order, note=NOTE) for order in range(portion))
            await until(conn, "select not exists (select from {}.job)")
            samples[number * portion] = rss_mb(worker.pid)
    return samples
