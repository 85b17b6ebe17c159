"""A fault run: servers of its own, workers, a producer that enqueues through the fault, and the account at the end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from jobq.db.connect import connect
from jobq.db.migrate import migrate
from jobq.db.statements import quote_identifier
from tests.faults.account import NEVER, Account, draw_up
from tests.faults.fleet import REPOSITORY, SETTINGS, STOPS_WITHIN_S, Fleet, WorkerProcess
from tests.faults.ledger import Ledger
from tests.faults.producer import Producer

if TYPE_CHECKING:
    from asyncpg import Connection, Record

STOP_S = SETTINGS["grace_s"] + STOPS_WITHIN_S
"""A SIGTERM during any fault ends the worker within its grace and 10 seconds."""


class FaultRun:
    """Workers and a producer, on one schema of the database that *dsn* finds; handlers write to its table `effects`."""

    def __init__(self, dsn: str, directory: Path, *, schema: str = "jobq") -> None:
        self.dsn = dsn
        self._schema = quote_identifier(schema)
        self._effects = f"{self._schema}.effects"
        self.ledger = Ledger(directory / "ledger")
        self.producer = Producer(directory / "producer", dsn=dsn, schema=schema)
        self.fleet = Fleet(dsn=dsn, schema=schema, effects=self._effects, ledger=self.ledger.path, directory=directory)

    async def prepare(self) -> None:
        """Make the table of the effects."""
        async with connected(self.dsn) as conn:
            await conn.execute(f"create table {self._effects} (job_id bigint not null, fence int)")

    async def start_workers(
        self, count: int = 2, *options: str, dsn: str | None = None, code: Path = REPOSITORY, **settings: Any
    ) -> list[WorkerProcess]:
        """Start workers, and wait until they work."""
        for _ in range(count):
            await self.fleet.launch("--concurrency", "10", *options, dsn=dsn, code=code, **settings)
        workers = self.fleet.all[-count:]
        for worker in workers:
            await worker.says(" started: queues ")
        return workers

    async def recovers(self) -> None:
        """Wait until nothing is enqueued that has not come to its end, for a worker's lease and 15 seconds at most."""
        give_up_at = time.monotonic() + self.fleet.recovery_s
        left: object = None
        while time.monotonic() < give_up_at:
            try:
                async with connected(self.dsn) as conn:
                    while (left := await conn.fetchval(f"select count(*) from {self._schema}.job")) and (
                        time.monotonic() < give_up_at
                    ):
                        await asyncio.sleep(0.05)
                    if left == 0:
                        return
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                left = error
                await asyncio.sleep(0.05)
        logs = "\n".join(worker.log for worker in self.fleet.all)
        pytest.fail(f"not recovered within {self.fleet.recovery_s:g} s, left: {left!r}\n{logs}")

    async def account(self, *, cut_at: float = NEVER, places: Sequence[str] = ("done",)) -> Account:
        """Return the account, of jobs that are in *places*; fail with the list of the offenders if there are any."""
        async with connected(self.dsn) as conn:
            account = await draw_up(
                conn,
                producer=self.producer,
                ledger=self.ledger,
                workers=self.fleet.all,
                schema=self._schema,
                effects=self._effects,
                cut_at=cut_at,
                places=places,
            )
        print(f"account: {account.committed} committed, {account.lost} lost, {account.runs} runs, {account.reasons}")
        if account.offenders:
            logs = "\n".join(worker.log for worker in self.fleet.all)
            pytest.fail("\n".join([*account.offenders, logs]))
        assert account.committed > 0 or not self.producer.entries()
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
    await run.prepare()
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
