"""One trial of one system: a new database, jobs enqueued in bulk, then drained by one worker process.

The clocks are the same for all, jobq included:

- enqueue: in the client, around its bulk calls; jobs are made within, connections before
- drain: from the first call of the handler until the database says that all jobs are finished. It is asked only after
  the handler was called for the last job, so that the question disturbs nothing; the start of the worker does not count

In between comes `vacuum analyze`, as autovacuum would come by: without statistics one system ran at a twentieth.

Each job has a number. One that was not run, or more than once, voids the trial.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import asyncpg
import msgspec

from benchmarks.rivals.environments import Environment
from benchmarks.rivals.systems import System

if TYPE_CHECKING:
    from asyncpg import Connection, Record

DATABASE = "jobq_bench_rivals"

ASK_EVERY_S = 0.025
STOP_LIMIT_S = 30.0
SETUP_LIMIT_S = 60.0


class VoidError(Exception):
    """A trial does not count; the text says why."""


class Trial(msgspec.Struct, frozen=True):
    """What was measured."""

    jobs: int
    enqueue_s: float
    drain_s: float


async def try_out(
    conn: Connection[Record], dsn: str, system: System, environment: Environment, jobs: int, *, limit_s: float
) -> Trial:
    """Let *system* enqueue and drain *jobs*. Raises `VoidError`, also if either takes longer than *limit_s* seconds.

    *conn* is a connection to the server of *dsn*, where the database `jobq_bench_rivals` is dropped and made anew.
    """
    adapter = _Adapter(environment, await _fresh_database(conn, dsn))
    await adapter.ask("setup", limit_s=SETUP_LIMIT_S)
    enqueued = await adapter.ask("enqueue", str(jobs), limit_s=limit_s)
    await _settle_down(conn, adapter.dsn)
    async with adapter.worker(jobs) as worker:
        called = await worker.hear(limit_s=limit_s)
        finished_at = await _wait_until_finished(adapter.dsn, system, limit_s)
        worker.process.terminate()
        counted = await worker.hear(limit_s=STOP_LIMIT_S)
    if (counted["calls"], counted["distinct"]) != (jobs, jobs):
        raise VoidError(
            f"of {jobs:,} jobs {counted['distinct']:,.0f} were run, with {counted['calls']:,.0f} calls of the handler"
        )
    return Trial(jobs, enqueued["enqueue_s"], finished_at - called["first_at"])


async def _settle_down(conn: Connection[Record], dsn: str) -> None:
    """Do what autovacuum and the checkpointer would do in a while, so that it is nobody's load."""
    filled = await asyncpg.connect(dsn)
    await filled.execute("vacuum analyze")
    await filled.close()
    await conn.execute("checkpoint")


async def _fresh_database(conn: Connection[Record], dsn: str) -> str:
    await drop_database(conn)
    await conn.execute(f"create database {DATABASE}")
    return dsn_of_the_database(dsn)


def dsn_of_the_database(dsn: str) -> str:
    """Return *dsn* with the other database, and in the form that all drivers read: no user before an empty host."""
    parts = urlsplit(dsn)
    if parts.hostname:
        return parts._replace(path=f"/{DATABASE}").geturl()
    names = {"user": parts.username, "password": parts.password}
    query = [*parse_qsl(parts.query), *((name, unquote(text)) for name, text in names.items() if text)]
    return f"{parts.scheme}:///{DATABASE}?{urlencode(query)}"


async def drop_database(conn: Connection[Record]) -> None:
    """Drop the database of the last trial."""
    await conn.execute(f"drop database if exists {DATABASE} with (force)")


async def _wait_until_finished(dsn: str, system: System, limit_s: float) -> float:
    conn = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(limit_s):
            while await conn.fetchval(system.unfinished):  # noqa: ASYNC110 - it is the database that changes
                await asyncio.sleep(ASK_EVERY_S)
            return time.time()
    except TimeoutError:
        raise VoidError(f"all handlers were called, but {limit_s:g} s later there are unfinished jobs") from None
    finally:
        await conn.close()


class _Worker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def hear(self, *, limit_s: float) -> dict[str, float]:
        """Return what the adapter says next."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                line = await self.process.stdout.readline()
        except TimeoutError:
            raise VoidError(f"not done after {limit_s:g} s") from None
        if not line:
            raise VoidError(f"the adapter ended with exit code {await self.process.wait()}")
        return msgspec.json.decode(line, type=dict[str, float])


class _Adapter:
    """The commands of an adapter, each a process."""

    def __init__(self, environment: Environment, dsn: str) -> None:
        self.dsn = dsn
        self._environment = environment

    async def ask(self, *command: str, limit_s: float) -> dict[str, float]:
        """Run *command* to its end. Returns what it said."""
        async with self._process(*command) as process:
            try:
                async with asyncio.timeout(limit_s):
                    said, _ = await process.communicate()
            except TimeoutError:
                raise VoidError(f"{command[0]}: not done after {limit_s:g} s") from None
        if process.returncode:
            raise VoidError(f"{command[0]} ended with exit code {process.returncode}")
        return msgspec.json.decode(said or b"{}", type=dict[str, float])

    @asynccontextmanager
    async def worker(self, jobs: int) -> AsyncIterator[_Worker]:
        """Run the worker. It is killed at the end of the block, if it is still there."""
        async with self._process("work", str(jobs)) as process:
            yield _Worker(process)

    @asynccontextmanager
    async def _process(self, *command: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            *self._environment.command,
            *command,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment.variables, "RIVALS_DSN": self.dsn},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
