"""Two minutes in which the database does not answer: who ends, what is run again, and how soon all is done.

All processes of the server are stopped (SIGSTOP) while two workers run jobs that finish meanwhile, and then go on: the
worst kind of outage, in which connections neither work nor break. Only on a server of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.report import Report, make_report
from benchmarks.sleepers import sleep
from benchmarks.workers import running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

OUTAGE_S = 120.0
JOBS = 100
JOB_S = 5.0


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Stop the server `--runs` times."""
    names = ("workers_ended", "jobs_done", "jobs_run_again", "all_done_after_s")
    runs: dict[str, list[float]] = {name: [] for name in names}
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        await fresh_schema(conn)
        await _one_outage(conn, dsn, runs)
    void = "" if set(runs["jobs_done"]) == {float(JOBS)} else "not all jobs are done"
    report = await make_report(conn, "outage", runs, {"outage_s": OUTAGE_S, "jobs": JOBS, "job_s": JOB_S}, void)
    await conn.close()
    return report


async def _one_outage(conn: Conn, dsn: str, runs: dict[str, list[float]]) -> None:
    async with running_worker(conn, dsn) as first, running_worker(conn, dsn) as second:
        async with Queue(dsn, schema=SCHEMA) as queue:
            await queue.enqueue_many(sleep.bind(seconds=JOB_S) for _ in range(JOBS))
        await until(conn, "select count(*) = $1 from {}.job where worker_id is not null", JOBS)
        server = _parent(await conn.fetchval("select pg_backend_pid()"))
        if server is None:
            raise LookupError("the server is not on this machine: its processes cannot be stopped")
        with _stopped(server):
            await asyncio.sleep(OUTAGE_S)
        back_at = time.monotonic()
        await until(conn, "select not exists (select from {}.job)")
        runs["all_done_after_s"].append(time.monotonic() - back_at)
        runs["workers_ended"].append(sum(worker.returncode is not None for worker in (first, second)))
    runs["jobs_done"].append(float(await conn.fetchval(f"select count(*) from {SCHEMA}.done where outcome = 'done'")))
    runs["jobs_run_again"].append(float(await conn.fetchval(f"select count(*) from {SCHEMA}.done where attempt > 1")))


@contextmanager
def _stopped(server: int) -> Iterator[None]:
    """Stop a postmaster and all its children, and let them go on at the end."""
    processes = [server, *(pid for pid in _all_pids() if _parent(pid) == server)]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None  # it has ended
