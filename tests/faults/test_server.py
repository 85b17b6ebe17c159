"""A server that turns read-only, crashes, or is restarted (field reports A and S). It has a server of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Queue
from jobq.embedded import start, temporary
from jobq.embedded.cluster import read_postmaster
from jobq.embedded.layout import lay_out
from jobq.errors import DatabaseUnavailableError
from tests.conftest import FAST
from tests.faults.conftest import Add
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger
from tests.faults.proxy import Proxy
from tests.faults.run import FaultRun, fault_run
from tests.faults.server_faults import read_only
from tests.worker.observe import eventually

if TYPE_CHECKING:
    from jobq.embedded import EmbeddedServer


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """The DSN of a server that these tests may break."""
    with temporary(settings=FAST) as server:
        yield server.dsn


async def test_a_server_that_is_read_only_for_a_while_loses_nothing(
    fleet: Fleet, run: FaultRun, ledger: Ledger, add: Add, dsn: str
) -> None:
    """F02: a demoted primary answers and refuses every write: claims resume by themselves, and each job runs once."""
    worker = await fleet.start("--concurrency", "5", worker_lease_s=12.0)
    early = await add("nap", 30, seconds=0.5)
    await ledger.until("start", 5)

    async with read_only(dsn):
        await worker.says("cannot execute .* in a read-only transaction")
        await asyncio.sleep(3.0)  # the fault's own length
    late = await eventually(lambda: attempt(add))
    await run.recovers()

    assert [ledger.starts(one) for one in (*early, *late)] == [1] * (30 + len(late))
    assert worker.lines("crashed|lost its lease|taken back") == []
    assert await worker.stop() == 0


async def attempt(add: Add) -> list[int]:
    """Add jobs, or none while the server still refuses."""
    try:
        return await add("nap", 5, seconds=0.1)
    except DatabaseUnavailableError:
        return []


class Restartable:
    """A server whose postmaster may be killed, or that may be stopped and started, with a proxy in front of it."""

    def __init__(self, server: EmbeddedServer, directory: Path) -> None:
        self._server = server
        self._directory = directory

    @property
    def dsn(self) -> str:
        """Where it is now: under root the socket is elsewhere after each start."""
        return self._server.dsn

    async def restart(self) -> None:
        """Stop it, as an operator does, and start it again on the same data."""
        await self._start_again()

    async def crash(self) -> None:
        """Kill its postmaster, and start it again on the same data."""
        postmaster = read_postmaster(lay_out(self._directory).data)
        assert postmaster is not None
        os.kill(int(postmaster.pid), signal.SIGKILL)
        await self._start_again()

    async def _start_again(self) -> None:
        await asyncio.to_thread(self._server.stop)
        self._server = await asyncio.to_thread(start, self._directory)

    def stop(self) -> None:
        """Stop it for good."""
        self._server.stop()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Restartable]:
    """A server with durable data, that `temporary` removes with everything that root keeps elsewhere."""
    directories: list[Path] = []

    def start_here(directory: Path, **options: Any) -> EmbeddedServer:
        directories.append(directory)
        return start(directory, **options)

    monkeypatch.setattr(sys.modules["jobq.embedded.temporary"], "start", start_here)
    with temporary() as first:
        server = Restartable(first, directories[0])
        try:
            yield server
        finally:
            server.stop()


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_a_server_that_starts_again_with_jobs_in_flight_costs_none_of_them_a_run(
    server: Restartable, short_directory: Path, tmp_path: Path, how: str
) -> None:
    """F86, F02: what finished meanwhile is written once; what runs goes on; what waits is claimed by itself."""
    async with (
        Proxy(server.dsn, short_directory) as proxy,
        Queue(proxy.dsn) as queue,
        fault_run(proxy.dsn, tmp_path) as run,
    ):
        (worker,) = await run.start_workers(1, worker_lease_s=30.0, job_lease_s=60.0)
        ids = [(await queue.enqueue("nap", {"seconds": 1.0}, queue="default")).id for _ in range(20)]
        await run.ledger.until("start", 10)

        await (server.restart() if how == "restart" else server.crash())
        proxy.move(server.dsn)
        await run.recovers()

        account = await run.account()
        assert account.runs == 20
        assert [run.ledger.starts(one) for one in ids] == [1] * 20
        assert worker.lines("crashed|lost its lease|taken back") == []
        assert await worker.stop() == 0
