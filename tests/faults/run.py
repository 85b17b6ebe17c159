"""A fault run: servers of its own, workers, a producer that enqueues through the fault, and the account at the end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq.db.connect import connect
from jobq.db.migrate import migrate
from tests.faults.account import NEVER, Account, draw_up
from tests.faults.fleet import REPOSITORY, SETTINGS, Fleet, WorkerProcess
from tests.faults.ledger import Ledger
from tests.faults.producer import Producer

if TYPE_CHECKING:
    from asyncpg import Connection, Record

RECOVERY_S = SETTINGS["worker_lease_s"] + 15.0
"""Every fault recovers by itself within a worker's lease and 15 seconds."""

STOP_S = SETTINGS["grace_s"] + 10.0
"""A SIGTERM during any fault ends the worker within its grace and 10 seconds."""


class FaultRun:
    """Two workers and a producer, on the schema `jobq` of the database that *dsn* finds."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self.dsn = dsn
        self.ledger = Ledger(directory / "ledger")
        self.producer = Producer(directory / "producer", dsn=dsn)
        self.fleet = Fleet(dsn=dsn, schema="jobq", effects="jobq.effects", ledger=self.ledger.path, directory=directory)

    async def start_workers(self, count: int = 2, *, code: Path = REPOSITORY) -> list[WorkerProcess]:
        """Start workers, and wait until they work."""
        for _ in range(count):
            await self.fleet.launch("--concurrency", "10", dsn=self.dsn, code=code)
        workers = self.fleet.all[-count:]
        for worker in workers:
            await worker.says(" started: queues ")
        return workers

    async def recovers(self) -> None:
        """Wait until nothing is enqueued that has not come to its end, for a worker's lease and 15 seconds at most."""
        give_up_at = time.monotonic() + RECOVERY_S
        left: object = None
        while time.monotonic() < give_up_at:
            try:
                async with connected(self.dsn) as conn:
                    while (left := await conn.fetchval("select count(*) from jobq.job")) and (
                        time.monotonic() < give_up_at
                    ):
                        await asyncio.sleep(0.05)
                    if left == 0:
                        return
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                left = error
                await asyncio.sleep(0.05)
        logs = "\n".join(worker.log for worker in self.fleet.all)
        pytest.fail(f"not recovered within {RECOVERY_S:g} s, left: {left!r}\n{logs}")

    async def account(self, *, cut_at: float = NEVER) -> Account:
        """Return the account; fail with the list of the offenders if there are any."""
        async with connected(self.dsn) as conn:
            account = await draw_up(
                conn, producer=self.producer, ledger=self.ledger, workers=self.fleet.all, cut_at=cut_at
            )
        print(f"account: {account.committed} committed, {account.lost} lost, {account.runs} runs, {account.reasons}")
        if account.offenders:
            logs = "\n".join(worker.log for worker in self.fleet.all)
            pytest.fail("\n".join([*account.offenders, logs]))
        assert account.committed > 0
        return account


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Connection[Record]]:
    """Give a connection of the test's own."""
    conn = await connect(dsn, role="", timeout=5.0, server_settings={"application_name": "test"})
    try:
        yield conn
    finally:
        conn.terminate()


async def install_ours(run: FaultRun) -> None:
    """Create the schema as this checkout does."""
    async with connected(run.dsn) as conn:
        await migrate(conn, "jobq")


@asynccontextmanager
async def fault_run(
    dsn: str, directory: Path, *, install: Callable[[FaultRun], Awaitable[None]] = install_ours
) -> AsyncIterator[FaultRun]:
    """Give a fault run on an empty schema, which *install* creates."""
    run = FaultRun(dsn, directory)
    async with connected(dsn) as conn:
        await conn.execute("drop schema if exists jobq cascade")
        await install(run)
        await conn.execute("create table jobq.effects (job_id bigint not null, fence int not null)")
    try:
        yield run
    finally:
        await run.fleet.discard()


async def command_line(dsn: str, *arguments: str) -> int:
    """Run `jobq`, and return its exit code."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "jobq.cli.main", *arguments, "--dsn", dsn),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
