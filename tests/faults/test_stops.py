"""A stop during each kind of fault: SIGTERM ends the worker within its grace and ten seconds (field report F23).

During a failover: test_failover.py; while the disk is full: test_disk_full.py; at any point of the start, and with a
handler that ignores its cancellation: test_stopping.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.conftest import Add
from tests.faults.fleet import SHORT_LEASE, Fleet
from tests.faults.ledger import Ledger
from tests.faults.pooler import PgBouncer
from tests.faults.proxy import Proxy
from tests.faults.run import fault_run
from tests.faults.server_faults import crowded_out, down, read_only, restarting, storm
from tests.faults.servers import Server, a_server

QUICK = {**SHORT_LEASE, "grace_s": 1.0, "statement_deadline_s": 1.0}

SLOW = {
    "grace_s": 1.0,
    "cancel_grace_s": 5.0,
    "statement_deadline_s": 10.0,
    "beat_deadline_s": 3.0,
    "worker_lease_s": 6.0,
    "job_lease_s": 20.0,
}
"""All that a stop may have to wait for as slow as it is by default, with leases that go with it."""

FELT = "is not available|has lapsed"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with few connections, to which all this happens."""
    with a_server(fsync="off", max_connections="40") as server:
        yield server


class Scene(NamedTuple):
    """Where the workers connect to, with which options, and the fault, for as long as it lasts."""

    dsn: str
    fault: Callable[[], AbstractAsyncContextManager[object]]
    options: tuple[str, ...] = ()


@asynccontextmanager
async def behind_proxy(server: Server, directory: Path, name: str) -> AsyncIterator[Scene]:
    """Workers behind a proxy, which forwards nothing any more on the connections of *name*."""

    @asynccontextmanager
    async def silent() -> AsyncIterator[None]:
        proxy.black_hole(name)
        yield
        proxy.restore()

    async with Proxy(server.dsn, directory) as proxy:
        yield Scene(proxy.dsn, silent)


@asynccontextmanager
async def behind_pooler(server: Server, directory: Path) -> AsyncIterator[Scene]:
    """Workers behind a pooler, which goes away."""

    @asynccontextmanager
    async def gone() -> AsyncIterator[None]:
        await pooler.stop()
        yield

    async with PgBouncer(server.dsn, directory, size=10) as pooler:
        yield Scene(pooler.dsn, gone, ("--prepared-statements", "off"))


@asynccontextmanager
async def scene(fault: str, server: Server, directory: Path) -> AsyncIterator[Scene]:
    """Set the scene for a fault."""
    match fault:
        case "silence":
            async with behind_proxy(server, directory, "") as scene:
                yield scene
        case "no heartbeat":
            async with behind_proxy(server, directory, "jobq heartbeat") as scene:
                yield scene
        case "no pooler":
            async with behind_pooler(server, directory) as scene:
                yield scene
        case _:
            yield Scene(server.dsn, SERVER_FAULTS[fault](server))


SERVER_FAULTS: dict[str, Callable[[Server], Callable[[], AbstractAsyncContextManager[object]]]] = {
    "down": lambda server: lambda: down(server),
    "restarts": lambda server: lambda: restarting(server),
    "terminations": lambda server: lambda: storm(server),
    "read-only": lambda server: lambda: read_only(server.dsn),
    "no connections": lambda server: lambda: crowded_out(server),
}


@pytest.mark.parametrize("fault", [*SERVER_FAULTS, "silence", "no heartbeat", "no pooler"])
@pytest.mark.timeout(90)
async def test_a_stop_during_a_fault_ends_within_grace_and_ten_seconds(
    server: Server, short_directory: Path, tmp_path: Path, fault: str
) -> None:
    """F23: one worker as the fault begins, one that has felt it: 0 or 3, and what they leave behind comes back."""
    times = SLOW if fault == "silence" else QUICK
    async with scene(fault, server, short_directory) as (dsn, begin, options), fault_run(server.dsn, tmp_path) as run:
        run.producer.every_s = run.producer.step_s = 0.1
        early, late = await run.start_workers(2, *options, dsn=dsn, **times)
        async with run.producer.producing():
            await run.producer.commits(10)
            async with begin():
                early_end = asyncio.create_task(early.stop())
                await late.says(FELT)

                codes = [await late.stop(), await early_end]

        assert set(codes) <= {0, 3}
        await run.start_workers(1, **SHORT_LEASE)
        await run.recovers()
        await run.account()


@pytest.mark.parametrize(
    ("app", "kind", "felt"),
    [
        ("app:queue", "block", "has blocked the event loop"),
        ("app_threads:queue", "sit", "blocks its thread past its time-out"),
    ],
)
@pytest.mark.leaves_jobs
async def test_a_stop_while_a_handler_holds_the_process_ends_within_grace_and_ten_seconds(
    fleet: Fleet, ledger: Ledger, add: Add, app: str, kind: str, felt: str
) -> None:
    """F23: it holds the event loop, or a thread past its time-out: 3, and its job is left to its lease."""
    worker = await fleet.start(app=app, **QUICK)
    await add("nap", seconds=600.0)
    await ledger.until("start", kind="nap")
    await add(kind, seconds=60.0)
    await worker.says(felt)

    assert await worker.stop() == 3


@pytest.mark.parametrize("fault", ["refused", "silent"])
async def test_a_stop_of_a_worker_that_waits_for_its_database_ends_with_0(
    fleet: Fleet, proxy: Proxy, fault: str
) -> None:
    """F23, F28: nothing was claimed; it does not matter whether the server says no, or nothing."""
    if fault == "refused":
        proxy.close()
    else:
        proxy.black_hole()
    worker = await fleet.launch(dsn=proxy.dsn, **QUICK)
    await worker.says("is not available")

    assert await worker.stop() == 0
