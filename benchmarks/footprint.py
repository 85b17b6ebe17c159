"""What a worker costs: idle with one queue, statements, CPU and connections; with 1,000 jobs running, memory.

Statements are counted as commits of the database: each one of the runtime is a transaction of its own. Those of
autovacuum count too, so the figure is an upper bound.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import sleep
from benchmarks.workers import COMMITS, cpu_s, rss_mb, running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

BUSY_SLOTS = 1000
SETTLE_S = 15.0
"""After the start, until the worker's statistics and its sleep are what they stay."""
IDLE_S = 60.0

CONNECTIONS = "select count(*)::float8 from pg_stat_activity where application_name like 'jobq %'"


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Watch one worker idle for a minute, and then with a thousand jobs, `--runs` times."""
    runs: dict[str, list[float]] = {}
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        await fresh_schema(conn)
        async with running_worker(conn, dsn, "--concurrency", str(BUSY_SLOTS)) as worker:
            figures = await watch_idle(conn, worker.pid)
            figures["idle_rss_mb"] = rss_mb(worker.pid)
            await _fill(conn, dsn)
            figures["busy_rss_mb"] = rss_mb(worker.pid)
        for name, value in figures.items():
            runs.setdefault(name, []).append(value)
    report = await make_report(conn, "footprint", runs, {"busy slots": BUSY_SLOTS, "idle_s": IDLE_S}, void="")
    await conn.close()
    return report


async def watch_idle(conn: Conn, pid: int) -> dict[str, float]:
    """Return what the worker with *pid*, alone on the server and without jobs, costs during a minute."""
    await asyncio.sleep(SETTLE_S)
    commits, cpu = await conn.fetchval(COMMITS), cpu_s(pid)
    await asyncio.sleep(IDLE_S)
    return {
        "idle_statements_per_s": (await conn.fetchval(COMMITS) - commits - 1) / IDLE_S,
        "idle_cpu_percent": (cpu_s(pid) - cpu) / IDLE_S * 100,
        "connections": await conn.fetchval(CONNECTIONS),
    }


async def _fill(conn: Conn, dsn: str) -> None:
    async with Queue(dsn, schema=SCHEMA) as queue:
        await queue.enqueue_many(sleep.bind(seconds=300.0) for _ in range(BUSY_SLOTS))
    await until(conn, "select count(*) = $1 from {}.job where worker_id is not null", BUSY_SLOTS)
