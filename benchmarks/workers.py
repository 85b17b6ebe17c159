"""Worker processes as a user starts them, `jobq run`, and what they cost."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from benchmarks.database import SCHEMA

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]

COMMITS = "select xact_commit::float8 from pg_stat_database where datname = current_database()"
"""Each statement of the runtime is a transaction of its own; what autovacuum commits counts too."""

REPOSITORY = Path(__file__).parents[1]
LOOK_EVERY_S = 0.05
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def running_worker(
    conn: Conn, dsn: str, *options: str, app: str = "sleepers", environment: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a worker of a module of `benchmarks`. The block begins when it is registered; it is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "jobq.cli.main", "run", f"benchmarks.{app}:queue", "--log-level", "error", *options),
        cwd=REPOSITORY,
        env={**os.environ, "JOBQ_DSN": dsn, **environment},
    )
    try:
        await until(conn, "select exists (select from {}.worker where pid = $1)", process.pid)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run_until_empty(dsn: str, processes: int, *options: str) -> None:
    """Let worker processes of `benchmarks.sleepers` run what is ready. Raises `RuntimeError` if one ends badly."""
    command = ("-m", "jobq.cli.main", "run", "benchmarks.sleepers:queue", "--log-level", "error", "--until-empty")
    workers = [
        await asyncio.create_subprocess_exec(
            sys.executable, *command, *options, cwd=REPOSITORY, env={**os.environ, "JOBQ_DSN": dsn}
        )
        for _ in range(processes)
    ]
    codes = [await worker.wait() for worker in workers]
    if any(codes):
        raise RuntimeError(f"workers ended with exit codes {codes}")


async def until(conn: Conn, question: str, *values: object, every_s: float = LOOK_EVERY_S) -> None:
    """Wait until a question about the benchmark's schema, which stands for `{}`, is answered with true."""
    while not await conn.fetchval(question.format(SCHEMA), *values):  # noqa: ASYNC110 - it is the database that changes
        await asyncio.sleep(every_s)


def cpu_s(pid: int) -> float:
    """Return how many seconds of CPU a process has used (proc(5): utime and stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Return how much memory of a process is resident, in MB of 2**20 bytes (proc(5): VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} has no VmRSS")
