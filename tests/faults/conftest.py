"""Worker processes, a ledger of what their handlers did, and a proxy in front of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

import pytest

from jobq import Queue
from tests.faults import small_disk
from tests.faults.account import ON_PURPOSE, PLACES, name_of
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger
from tests.faults.producer import Fate
from tests.faults.proxy import Proxy
from tests.faults.run import FaultRun
from tests.faults.servers import Server, a_replica, a_server
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn


collect_ignore = [] if small_disk.is_possible() else ["test_disk_full.py"]


def pytest_report_header() -> str | None:
    """Say what this machine does not let us test."""
    return "test_disk_full.py is left out: no tmpfs can be mounted here" if collect_ignore else None


class Add(Protocol):
    """Add *count* jobs of one kind, past any proxy, and return their ids."""

    async def __call__(self, kind: str, count: int = 1, **payload: float) -> list[int]: ...


@pytest.fixture
def jobs(conn: Conn, sql: Callable[[str], str]) -> Jobs:
    """The rows of the test's schema, read past any proxy."""
    return Jobs(conn, sql)


@pytest.fixture
async def run(
    conn: Conn, dsn: str, schema: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[FaultRun]:
    """A fault run on the test's schema, without workers yet. At the end the account is drawn up.

    All jobs must have been done by then, unless the test is marked with `leaves_jobs`.
    """
    run = FaultRun(dsn, tmp_path, schema=schema)
    await run.prepare()
    yield run
    await run.fleet.discard()
    await run.account(places=PLACES if request.node.get_closest_marker("leaves_jobs") else ("done",))


@pytest.fixture
def fleet(run: FaultRun) -> Fleet:
    """Worker processes on the test's schema."""
    return run.fleet


@pytest.fixture
def ledger(run: FaultRun) -> Ledger:
    """What the handlers did."""
    return run.ledger


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name; pytest's is too long."""
    with TemporaryDirectory(prefix="jq-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
async def proxy(dsn: str, short_directory: Path) -> AsyncIterator[Proxy]:
    """A proxy in front of the server."""
    async with Proxy(dsn, short_directory) as proxy:
        yield proxy


@pytest.fixture
def add(queue: Queue, run: FaultRun) -> Add:
    """Add jobs."""

    async def add(kind: str, count: int = 1, **payload: float) -> list[int]:
        new = [queue.job(kind, payload).with_options(queue="default") for _ in range(count)]
        ids: list[int] = [one.id for one in await queue.enqueue_many(new)]
        for job_id in () if kind in ON_PURPOSE else ids:
            run.producer.note(name_of(kind, job_id), Fate.COMMITTED)
        return ids

    return add


@pytest.fixture
def primary() -> Iterator[Server]:
    """A primary."""
    with a_server() as server:
        yield server


@pytest.fixture
def replica(primary: Server) -> Iterator[Server]:
    """Its streaming replica."""
    with a_replica(primary) as server:
        yield server
