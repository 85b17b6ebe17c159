"""A database of its own for each example, a worker that empties its queue, and the commands that its head tells."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import asyncpg
import pytest

from jobq import Queue
from jobq.db.migrate import migrate
from jobq.settings import WorkerSettings
from jobq.worker.supervisor import ExitCode, Worker
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn

REPOSITORY = Path(__file__).parents[2]
DATABASE = f"jobq_example_{os.getpid()}"
LIMIT_S = 60.0
PROCESSES = pytest.mark.timeout(180)
"""For tests that start one process after another, on a loaded machine."""
FOREIGN = ("DATABASE_URL", "SMTP_HOST", "NOTIFY_SOCKET")
"""What a person may have set and the examples would heed."""


class Work(Protocol):
    """Run a worker of a queue in this process until nothing is ready any more."""

    async def __call__(self, queue: Queue) -> None: ...


class Told:
    """The commands in the head of an example, without `--embedded`: on the test's database, in *directory*."""

    def __init__(self, database: str, directory: Path) -> None:
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in FOREIGN},
            "JOBQ_DSN": database,
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
        }
        self._directory = directory

    def commands(self, example: str) -> list[str]:
        """Return them in order."""
        lines = (import_module(f"examples.{example}").__doc__ or "").splitlines()
        return [line.strip().replace(" --embedded", "") for line in lines if line.startswith("    ")]

    async def start(self, command: str, **variables: str) -> asyncio.subprocess.Process:
        """Start one of them; it writes all it says to one pipe."""
        program, *arguments = shlex.split(command)
        # `-P` keeps the working directory off sys.path, as the console script does.
        words = {"jobq": ["-P", "-m", "jobq.cli.main"], "python": [], "pytest": ["-m", "pytest"]}[program]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            *arguments,
            cwd=self._directory,
            env={**self._environment, **variables},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def run(self, command: str, **variables: str) -> str:
        """Run one of them to its end, which must be a good one. Returns what it said."""
        process = await self.start(command, **variables)
        try:
            async with asyncio.timeout(LIMIT_S):
                said = (await process.communicate())[0].decode()
        finally:
            await discard(process)
        assert process.returncode == 0, f"{command}: exit code {process.returncode}\n{said}"
        return said


async def discard(process: asyncio.subprocess.Process) -> None:
    """Leave nothing of a process that a test has started."""
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def line_with(text: str, process: asyncio.subprocess.Process) -> str:
    """Wait until *process* says a line with *text*, and return it."""
    said = ""
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        while line := (await process.stdout.readline()).decode():
            if text in line:
                return line
            said += line
    pytest.fail(f"it ended without {text!r}:\n{said}")


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[str]:
    """The DSN of a new database with jobq in it: the examples have tables of their own, in the schema `public`."""
    server = await asyncpg.connect(dsn)
    try:
        await server.execute(f"drop database if exists {DATABASE} with (force)")  # of a run with the same process id
        await server.execute(f"create database {DATABASE}")
        own = urlsplit(dsn)._replace(path=f"/{DATABASE}").geturl()
        conn = await asyncpg.connect(own)
        await migrate(conn, "jobq")
        await conn.close()
        yield own
        await server.execute(f"drop database {DATABASE} with (force)")
    finally:
        await server.close()


@pytest.fixture
async def db(database: str) -> AsyncIterator[Conn]:
    """A connection to the test's database."""
    db = await asyncpg.connect(database)
    yield db
    db.terminate()


@pytest.fixture
def jobs(db: Conn) -> Jobs:
    """The jobs of the test's database."""
    return Jobs(db, lambda text: text.replace("@schema@", "jobq"))


@pytest.fixture
def work() -> Work:
    """Run workers."""

    async def work(queue: Queue) -> None:
        worker = Worker(queue, WorkerSettings(slots=queue.slots, poll_s=0.05, sweep_s=0.01))
        async with asyncio.timeout(LIMIT_S):
            assert await worker.run(until_empty=True) is ExitCode.DRAINED

    return work


@pytest.fixture
def told(database: str, tmp_path: Path) -> Told:
    """Run what the examples' heads tell."""
    return Told(database, tmp_path)
