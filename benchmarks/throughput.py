"""How many jobs a second, no-op handlers: enqueued in bulk, then drained; and both at once, sustained.

`drain_*` is by worker processes that find all jobs waiting. `sustained_per_s` is enqueue, run and settle at the same
time: one process enqueues in bulk as fast as one worker process keeps up, so that never more than `waiting` jobs wait;
counted are the jobs finished during the middle ten seconds. Both by the history's clock. `wal_bytes_per_job` is
from enqueue to history, and once more with no history written.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.closed_loop import feed
from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import NOTE, noop
from benchmarks.workers import COMMITS, run_until_empty, running_worker, until
from jobq import Queue
from jobq.db.migrate import set_history

if TYPE_CHECKING:
    from benchmarks.workers import Conn

WARM_UP_S = 2.0
SUSTAINED_S = 10.0
MOST_WAITING = 20_000

DRAINED_S = f"select extract(epoch from max(finished_at) - min(claimed_at))::float8 from {SCHEMA}.done"
SUSTAINED = f"""
    select count(*)::float8
    from {SCHEMA}.done d
    cross join (select min(enqueued_at) + $1::float8 * interval '1 second' as at from {SCHEMA}.done) as began
    where d.finished_at >= began.at
        and d.finished_at < began.at + $2::float8 * interval '1 second'
"""


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Enqueue and drain `--jobs` jobs, with one worker process, with two and without history; then sustain a load.

    `--runs` times, each in a new schema.
    """
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        for run in (_one_worker, _two_workers, _without_history, _sustained):
            await fresh_schema(conn)
            figures, lost = await run(conn, dsn, options)
            void = void or lost
            for name, value in figures.items():
                runs.setdefault(name, []).append(value)
    parameters: dict[str, object] = {
        "jobs": options.jobs,
        "slots": options.slots,
        "history": "1 day",
        "sustained_s": SUSTAINED_S,
        "waiting": MOST_WAITING,
    }
    report = await make_report(conn, "throughput", runs, parameters, void)
    await conn.close()
    return report


async def _one_worker(conn: Conn, dsn: str, options: argparse.Namespace) -> tuple[dict[str, float], str]:
    """Return the figures of a run, and why it is void or nothing; so do the three below."""
    wal_before = await conn.fetchval("select pg_current_wal_lsn()")
    commits_before = await conn.fetchval(COMMITS)
    enqueue_s = await _enqueue(dsn, options.jobs)
    await run_until_empty(dsn, 1, "--concurrency", str(options.slots))
    if lost := await missing(conn, options.jobs):
        return {}, lost
    figures = {
        "enqueue_per_s": options.jobs / enqueue_s,
        "drain_per_s": options.jobs / await conn.fetchval(DRAINED_S),
        "wal_bytes_per_job": await _wal_bytes(conn, wal_before) / options.jobs,
        "commits_per_job": (await conn.fetchval(COMMITS) - commits_before) / options.jobs,
        "rss_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }
    return figures, ""


async def _two_workers(conn: Conn, dsn: str, options: argparse.Namespace) -> tuple[dict[str, float], str]:
    await _enqueue(dsn, options.jobs)
    await run_until_empty(dsn, 2, "--concurrency", str(options.slots))
    if lost := await missing(conn, options.jobs):
        return {}, lost
    return {"drain_2_processes_per_s": options.jobs / await conn.fetchval(DRAINED_S)}, ""


async def _without_history(conn: Conn, dsn: str, options: argparse.Namespace) -> tuple[dict[str, float], str]:
    await set_history(conn, SCHEMA, 0)
    wal_before = await conn.fetchval("select pg_current_wal_lsn()")
    await _enqueue(dsn, options.jobs)
    await run_until_empty(dsn, 1, "--concurrency", str(options.slots))
    figures = {"wal_bytes_per_job_without_history": await _wal_bytes(conn, wal_before) / options.jobs}
    done = await conn.fetchval(f"select coalesce(sum(done), 0) from {SCHEMA}.kind_stat")
    return figures, "" if done == options.jobs else f"without history: {done} of {options.jobs} jobs are done"


async def _sustained(conn: Conn, dsn: str, options: argparse.Namespace) -> tuple[dict[str, float], str]:
    async with Queue(dsn, schema=SCHEMA) as queue, running_worker(conn, dsn, "--concurrency", str(options.slots)):
        enqueued = await feed(conn, queue, WARM_UP_S + SUSTAINED_S, waiting=MOST_WAITING)
        await until(conn, "select not exists (select from {}.job)")
    finished = await conn.fetchval(SUSTAINED, WARM_UP_S, SUSTAINED_S)
    return {"sustained_per_s": finished / SUSTAINED_S}, await missing(conn, enqueued)


async def _enqueue(dsn: str, jobs: int) -> float:
    """Enqueue in one call. Returns the seconds it took."""
    began = time.perf_counter()
    async with Queue(dsn, schema=SCHEMA) as queue:
        await queue.enqueue_many(noop.bind(order_id=number, note=NOTE) for number in range(jobs))
    return time.perf_counter() - began


async def _wal_bytes(conn: Conn, since: str) -> float:
    written: float = await conn.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1)::float8", since)
    return written


async def missing(conn: Conn, jobs: int) -> str:
    """Say why a run is void in which so many jobs were enqueued, or return nothing."""
    done = await conn.fetchval(f"select count(*) from {SCHEMA}.done")
    left = await conn.fetchval(f"select count(*) from {SCHEMA}.job")
    return "" if (done, left) == (jobs, 0) else f"{jobs} jobs enqueued, {done} done, {left} left"
