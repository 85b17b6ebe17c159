"""How long after a `kill -9` of their worker jobs are claimed again, with the default lease and with one of 3 s.

A second worker is there and idle. The time runs, by the server's clock, from the kill to the claim of the last of the
killed worker's jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import sleep
from benchmarks.workers import running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

JOBS = 10
LEASES = {"default_lease_s": (), "lease_3_s": ("--worker-lease", "3")}


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Kill a worker `--runs` times with each lease, at a random moment of its beat."""
    runs: dict[str, list[float]] = {name: [] for name in LEASES}
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        for name, lease in LEASES.items():
            await fresh_schema(conn)
            runs[name].append(await _one_kill(conn, dsn, *lease))
    report = await make_report(conn, "recovery", runs, {"jobs of the killed worker": JOBS}, void="")
    await conn.close()
    return report


async def _one_kill(conn: Conn, dsn: str, *lease: str) -> float:
    async with running_worker(conn, dsn, *lease) as first:
        async with Queue(dsn, schema=SCHEMA) as queue:
            await queue.enqueue_many(sleep.bind(seconds=300.0) for _ in range(JOBS))
        await until(conn, "select count(*) = $1 from {}.job where worker_id is not null", JOBS)
        async with running_worker(conn, dsn, *lease):
            await asyncio.sleep(random.uniform(0, 5))
            first.kill()
            killed_at = await conn.fetchval("select clock_timestamp()")
            await until(conn, "select count(*) = $1 from {}.job where worker_id is not null and attempt = 2", JOBS)
            last: float = await conn.fetchval(
                f"select extract(epoch from max(claimed_at) - $1)::float8 from {SCHEMA}.job", killed_at
            )
            return last
