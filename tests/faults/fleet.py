"""Worker processes: real `jobq run`, which a test may stop, kill, freeze and thaw, and whose log it reads."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jobq.worker.faults import Point

REPOSITORY = Path(__file__).parents[2]
APP_DIR = Path(__file__).parent
LIMIT_S = 20.0

SETTINGS: dict[str, float] = {
    "poll_s": 0.5,
    "worker_lease_s": 3.0,
    "beat_s": 1.0,
    "beat_deadline_s": 1.0,
    "job_lease_s": 9.0,
    "statement_deadline_s": 2.0,
    "grace_s": 3.0,
    "cancel_grace_s": 1.0,
    "tally_s": 5.0,
}
"""The times of a worker, unless a test says otherwise."""

STOPS_WITHIN_S = 10.0
"""A SIGTERM during any fault ends a worker within its grace and so many seconds."""

RECOVERS_WITHIN_S = 15.0
"""Every fault recovers by itself within a worker's lease and so many seconds."""

SHORT_LEASE: dict[str, Any] = {"worker_lease_s": 1.5, "beat_s": 0.5}
"""For tests that last several leases, or that do not ask how soon one lapses."""


class WorkerProcess:
    """One `jobq run`."""

    def __init__(self, process: asyncio.subprocess.Process, *, grace_s: float) -> None:
        self._process = process
        self._stop_limit_s = grace_s + STOPS_WITHIN_S
        self._written = b""
        self._more = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        self.pid = process.pid

    @property
    def log(self) -> str:
        """What it has written."""
        return self._written.decode(errors="replace")

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.returncode is not None

    def lines(self, pattern: str) -> list[str]:
        """Return the lines of the log that *pattern* is found in."""
        return [line for line in self.log.splitlines() if re.search(pattern, line)]

    async def says(self, pattern: str, count: int = 1, *, limit_s: float = LIMIT_S) -> list[str]:
        """Wait until *pattern* is found in so many lines, and return them."""
        give_up_at = time.monotonic() + limit_s
        while len(found := self.lines(pattern)) < count:
            self._more.clear()
            left_s = give_up_at - time.monotonic()
            if left_s <= 0 or self._reading.done():
                pytest.fail(f"not {count} times {pattern!r} within {limit_s:g} s or before its end:\n{self.log}")
            try:
                async with asyncio.timeout(left_s):
                    await self._more.wait()
            except TimeoutError:
                continue
        return found

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    async def ends(self, limit_s: float = LIMIT_S) -> int:
        """Wait for its end. Returns the exit code, or the negative number of the signal."""
        try:
            async with asyncio.timeout(limit_s):
                code = await self._process.wait()
                await self._reading
                return code
        except TimeoutError:
            pytest.fail(f"it has not ended within {limit_s:g} s:\n{self.log}")

    async def stop(self, number: signal.Signals = signal.SIGTERM, *, limit_s: float | None = None) -> int:
        """Ask for a stop, and wait for the end: for its grace and ten seconds, whatever is broken (None)."""
        self.send(number)
        return await self.ends(self._stop_limit_s if limit_s is None else limit_s)

    async def discard(self) -> None:
        """Leave nothing of it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(65536):
            self._written += chunk
            self._more.set()
        self._more.set()


class Fleet:
    """Starts workers on one schema, and kills what is left of them at the end."""

    def __init__(self, *, dsn: str, schema: str, effects: str, ledger: Path, directory: Path) -> None:
        self.dsn = dsn
        self._schema = schema
        self._effects = effects
        self._ledger = ledger
        self._directory = directory
        self.all: list[WorkerProcess] = []
        self.recovery_s = RECOVERS_WITHIN_S
        """How long a fault may be felt after its end, by the longest lease of its workers."""
        self._points: dict[Point, tuple[str, int]] = {}

    def arm(self, point: Point, what: str, *, times: int = 1) -> None:
        """Let the workers to come `raise`, `pause` for a second or `kill` themselves, so many *times*, at *point*."""
        self._points[point] = (what, times)

    def disarm(self) -> None:
        """Let the workers to come pass all points."""
        self._points.clear()

    async def launch(
        self,
        *options: str,
        app: str = "app:queue",
        dsn: str | None = None,
        clock_ahead_s: float = 0.0,
        code: Path = REPOSITORY,
        **settings: float,
    ) -> WorkerProcess:
        """Start a worker, and do not wait for it. *settings* are those of `WorkerSettings`.

        With *clock_ahead_s* its wall clock is wrong by so many seconds, as far as `skewed.py` can make it so. *code* is
        the directory whose `jobq` it runs.
        """
        program = [str(APP_DIR / "skewed.py"), str(clock_ahead_s)] if clock_ahead_s else ["-m", "jobq.cli.main"]
        environment = {
            **{name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "NOTIFY_SOCKET")},
            "PYTHONPATH": str(code),
            "PYTHONUNBUFFERED": "1",
            "JOBQ_DSN": self.dsn if dsn is None else dsn,
            "FAULTS_SCHEMA": self._schema,
            "FAULTS_EFFECTS": self._effects,
            "FAULTS_LEDGER": str(self._ledger),
            "FAULTS_POINTS": json.dumps(self._points),
            "FAULTS_SETTINGS": json.dumps({**SETTINGS, **settings}),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", *program, "run", app, "--app-dir", str(APP_DIR), *options),
            cwd=self._directory,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        times = SETTINGS | settings
        grace_s = float(options[options.index("--grace") + 1]) if "--grace" in options else times["grace_s"]
        self.all.append(WorkerProcess(process, grace_s=grace_s))
        self.recovery_s = max(self.recovery_s, times["worker_lease_s"] + RECOVERS_WITHIN_S)
        return self.all[-1]

    async def start(
        self,
        *options: str,
        app: str = "app:queue",
        dsn: str | None = None,
        clock_ahead_s: float = 0.0,
        code: Path = REPOSITORY,
        **settings: float,
    ) -> WorkerProcess:
        """Start a worker, and wait until it works."""
        worker = await self.launch(*options, app=app, dsn=dsn, clock_ahead_s=clock_ahead_s, code=code, **settings)
        await worker.says(" started: queues ")
        return worker

    async def command(self, *words: str, code: Path = REPOSITORY) -> tuple[int, str]:
        """Run another command of `jobq` to its end. Returns the exit code and everything that it has written."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "jobq.cli.main", *words),
            cwd=self._directory,
            env={**os.environ, "PYTHONPATH": str(code)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        written, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
        assert process.returncode is not None
        return process.returncode, written.decode(errors="replace")

    async def discard(self) -> None:
        """Leave nothing of them."""
        for worker in self.all:
            await worker.discard()
