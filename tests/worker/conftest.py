"""A real worker in the test's own event loop, with settings in milliseconds, and what it says and does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import pytest

from jobq import Backoff, Queue
from jobq.db.store import Store
from jobq.settings import WorkerSettings
from jobq.telemetry.events import LoopCrashed, WorkerStarted
from jobq.worker.supervisor import Worker
from tests.db.rows import Rows
from tests.worker.hall import Hall
from tests.worker.observe import Events, Jobs, Running

if TYPE_CHECKING:
    from asyncpg import Connection, Record

QUICK: dict[str, Any] = {
    "poll_s": 0.05,
    "busy_poll_s": 0.005,
    "sweep_s": 0.01,
    "grace_s": 5.0,
    "cancel_grace_s": 0.2,
    "statement_deadline_s": 5.0,
}

TIMEOUT_MS = 200

AT_ONCE = Backoff(base_s=0.001, cap_s=0.001)
"""For kinds whose retries a test waits for."""


class Working(Protocol):
    """Run a worker for the length of a block; settings are those of `WorkerSettings`, in place of `QUICK`."""

    def __call__(
        self, of: Queue | None = None, *, until_empty: bool = False, **settings: Any
    ) -> AbstractAsyncContextManager[Running]: ...


@pytest.fixture
async def seen() -> AsyncIterator[Events]:
    """The events of the test's workers; a loop that crashes fails the test, unless the test has cleared them."""
    seen = Events()
    yield seen
    assert seen.of(LoopCrashed) == []


@pytest.fixture
def jobs(conn: Connection[Record], sql: Callable[[str], str]) -> Jobs:
    """The rows of the test's schema."""
    return Jobs(conn, sql)


@pytest.fixture
def rows(conn: Connection[Record], store: Store) -> Rows:
    """Rows of the test's schema in any state."""
    return Rows(conn, store)


@pytest.fixture
async def hurried(conn: Connection[Record], dsn: str) -> AsyncIterator[str]:
    """The DSN of a role whose statements may take `TIMEOUT_MS`."""
    role = f"hurried_{os.getpid()}"
    await conn.execute(f"create role {role} login superuser; alter role {role} set statement_timeout = {TIMEOUT_MS}")
    parts = urlsplit(dsn)
    yield parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
    await conn.execute(f"drop role {role}")


@pytest.fixture
def hall(queue: Queue) -> Hall:
    """A handler that tells who is inside."""
    return Hall(queue)


@pytest.fixture
def working(queue: Queue, seen: Events) -> Working:
    """Run workers of the test's queue. The block begins when the worker has started and ends when it has ended."""

    @asynccontextmanager
    async def working(of: Queue | None = None, *, until_empty: bool = False, **settings: Any) -> AsyncIterator[Running]:
        worker = Worker(of or queue, WorkerSettings(**QUICK | settings), emit=seen.emit)
        earlier = len(seen.of(WorkerStarted))
        running = Running(worker, asyncio.create_task(worker.run(until_empty=until_empty)))
        started = asyncio.create_task(seen(WorkerStarted, nth=earlier + 1))
        try:
            await asyncio.wait([running.task, started], return_when=asyncio.FIRST_COMPLETED)
            yield running
            worker.stop()
            await running.ended()
        finally:
            # Reached with a live task only after a failure: end it, so that the next test is not disturbed.
            for task in (running.task, started):
                task.cancel()
            await asyncio.wait([running.task, started], timeout=1)

    return working
