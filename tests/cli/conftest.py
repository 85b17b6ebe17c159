"""`jobq` as a process of its own: what it says while it runs, and how it ends."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pytest

from jobq.cli.main import run_command
from jobq.db.store import Store
from tests.db.rows import Rows

if TYPE_CHECKING:
    from jobq.core.job import JobId
    from tests.conftest import Conn

REPOSITORY = Path(__file__).parents[2]
APP_DIR = Path(__file__).parent
LIMIT_S = 30.0

# `-P`: like the console script, and unlike `python -m`, it does not put the working directory on sys.path.
JOBQ = (sys.executable, "-P", "-m", "jobq.cli.main")


class Ended(NamedTuple):
    """A process that has ended: its exit code (negative: the signal), and what it wrote."""

    code: int
    out: str
    err: str


class Command:
    """A running process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._written = {"out": b"", "err": b""}
        self._more = asyncio.Event()
        streams = {"out": process.stdout, "err": process.stderr}
        self._reading = [
            asyncio.create_task(self._read(name, stream)) for name, stream in streams.items() if stream is not None
        ]

    @property
    def title(self) -> str:
        """What the list of processes shows of it."""
        return Path(f"/proc/{self._process.pid}/cmdline").read_text()

    async def says(self, text: str, *, times: int = 1) -> None:
        """Wait until it has written *text* so many times, on stdout and stderr together."""
        async with asyncio.timeout(LIMIT_S):
            while (self.out + self.err).count(text) < times:
                assert not all(task.done() for task in self._reading), f"ended without {text!r}: {self.out}{self.err}"
                self._more.clear()
                await self._more.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    async def ends(self) -> Ended:
        """Wait for its end."""
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*self._reading)
            return Ended(await self._process.wait(), self.out, self.err)

    async def discard(self) -> None:
        """Leave nothing of it."""
        if self._process.returncode is None:
            self._process.kill()
        await asyncio.gather(*self._reading)
        await self._process.wait()

    @property
    def out(self) -> str:
        """What it has written to stdout."""
        return self._written["out"].decode()

    @property
    def err(self) -> str:
        """What it has written to stderr."""
        return self._written["err"].decode()

    async def _read(self, name: str, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(65536):
            self._written[name] += chunk
            self._more.set()
        self._more.set()


class Start(Protocol):
    """Start `jobq` with these arguments, in *cwd* (None: an empty directory). *stdin* and *stdout* are descriptors.

    *variables* are added to the environment, which names the server of this run as `JOBQ_DSN`; None removes one.
    """

    async def __call__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        **variables: str | None,
    ) -> Command: ...


class Run(Protocol):
    """Do what `Start` does, and wait for the end."""

    async def __call__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        **variables: str | None,
    ) -> Ended: ...


class Call(Protocol):
    """Run `jobq ARGUMENTS --schema ...` in a thread of this process, which saves half a second."""

    async def __call__(self, *arguments: object) -> Ended: ...


class Work(Protocol):
    """Start a worker of `app.py` on the test's schema, with these options, and wait until it has started."""

    async def __call__(self, *options: str) -> Command: ...


@pytest.fixture
async def start(dsn: str, schema: str, tmp_path: Path) -> AsyncIterator[Start]:
    """Start commands; those that are left at the end are killed."""
    started: list[Command] = []

    async def start(
        *arguments: str | Path,
        cwd: Path | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        **variables: str | None,
    ) -> Command:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("JOBQ_", "DATABASE_URL"))},
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
            "JOBQ_DSN": dsn,
            "APP_SCHEMA": schema,
            **variables,
        }
        process = await asyncio.create_subprocess_exec(
            *JOBQ,
            *arguments,
            cwd=cwd or tmp_path,
            env={name: value for name, value in environment.items() if value is not None},
            stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
            stdout=asyncio.subprocess.PIPE if stdout is None else stdout,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(Command(process))
        return started[-1]

    yield start
    for command in started:
        await command.discard()


@pytest.fixture
def run(start: Start) -> Run:
    """Run commands to their end."""

    async def run(
        *arguments: str | Path,
        cwd: Path | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        **variables: str | None,
    ) -> Ended:
        return await (await start(*arguments, cwd=cwd, stdin=stdin, stdout=stdout, **variables)).ends()

    return run


@pytest.fixture
def work(start: Start) -> Work:
    """Start workers."""

    async def work(*options: str) -> Command:
        command = await start("run", "app:queue", "--app-dir", APP_DIR, *options)
        await command.says(" started: queues ")
        return command

    return work


# -- dead letters ------------------------------------------------------------------------------------------


@pytest.fixture
def rows(conn: Conn, store: Store) -> Rows:
    """The rows of the test's schema."""
    return Rows(conn, store)


@pytest.fixture
def call(dsn: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run commands on the test's schema, in this process."""
    monkeypatch.setenv("JOBQ_DSN", dsn)

    def in_thread(arguments: list[str]) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run_command(arguments)
        return Ended(code, out.getvalue(), err.getvalue())

    async def call(*arguments: object) -> Ended:
        return await asyncio.to_thread(in_thread, [*map(str, arguments), "--schema", schema])

    return call


async def died_ago(
    rows: Rows, hours: float, error: str | None = None, reason: str = "permanent failure", **stated: object
) -> JobId:
    """Make a dead letter that died some hours ago."""
    job_id = await rows.dead(error, reason, **stated)
    await rows.run(
        "update @schema@.dead_letter set died_at = now() - make_interval(secs => $2) where id = $1",
        job_id,
        hours * 3600,
    )
    return job_id


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: the person's, and the command's."""
    person, command = os.openpty()
    yield person, command
    os.close(person)
    os.close(command)
