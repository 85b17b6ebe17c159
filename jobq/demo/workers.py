"""The demo's worker processes: `jobq run`, as systemd would start them, and what the database knows of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jobq.demo.shop import SMTP_PORT
from jobq.errors import JobqError

if TYPE_CHECKING:
    from asyncpg import Record
    from asyncpg.pool import Pool

LEASE_S = 3.0
BEAT_S = LEASE_S / 4
"""What `jobq run` makes of that lease."""

SLOTS = 30
START_LIMIT_S = 30.0
STOP_LIMIT_S = 40.0

# `-P`, because the working directory is somebody's, and no place to import from.
COMMAND = (
    *(sys.executable, "-P", "-m", "jobq.cli.main", "run", "jobq.demo.shop:queue"),
    *("--worker-lease", f"{LEASE_S:g}s", "--concurrency", f"{SLOTS}"),
)


class DidNotStartError(JobqError):
    """A worker process ended, or was silent, instead of starting."""


class WorkerProcess:
    """One `jobq run`."""

    def __init__(self, process: asyncio.subprocess.Process, pool: Pool[Record]) -> None:
        self._process = process
        self._pool = pool
        self.pid = process.pid
        self.was_killed = False

    @classmethod
    async def start(cls, dsn: str, pool: Pool[Record], *, smtp_port: int, log: Path) -> WorkerProcess:
        """Start one, which appends what it says to *log*, and wait until it works. Raises `DidNotStartError`."""
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                env={**os.environ, "JOBQ_DSN": dsn, SMTP_PORT: str(smtp_port)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        worker = cls(process, pool)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while not await pool.fetchval("select exists (select from jobq.worker where pid = $1)", worker.pid):
                    if process.returncode is not None:
                        raise DidNotStartError(
                            f"a worker ended with exit code {process.returncode} at its start: see {log}"
                        )
                    await asyncio.sleep(0.05)
        except TimeoutError:
            await worker.discard()
            raise DidNotStartError(f"a worker did not start within {START_LIMIT_S:g} s: see {log}") from None
        return worker

    async def running(self) -> int:
        """Return how many jobs it holds, as the database knows it."""
        count: int = await self._pool.fetchval(
            "select count(*) from jobq.job j join jobq.worker w using (worker_id) where w.pid = $1", self.pid
        )
        return count

    async def kill(self) -> int:
        """Kill it without a warning. Returns how many jobs it held."""
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        self.was_killed = True
        return await self.running()

    async def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_LIMIT_S):
            return await self._process.wait()

    async def discard(self) -> None:
        """Leave nothing of it."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
