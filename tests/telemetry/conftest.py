"""A real worker that somebody scrapes, and the fixtures of the workers' tests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import pytest

from jobq import Queue
from jobq.settings import WorkerSettings
from jobq.telemetry.events import WorkerStarted
from jobq.worker.probes import Address, listen
from jobq.worker.supervisor import Worker
from tests.telemetry.scrape import Scraper
from tests.worker.asking import Client
from tests.worker.conftest import QUICK, jobs, rows, seen, working
from tests.worker.observe import Events, Running

__all__ = ["jobs", "rows", "seen", "working"]


class Scraped(Protocol):
    """Run a worker of the test's queue, or *of* another, for the length of a block, and give who scrapes it."""

    def __call__(self, of: Queue | None = None, **settings: Any) -> AbstractAsyncContextManager[Scraper]: ...


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A socket that listens on a free port."""
    with listen(Address("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def scraped(queue: Queue, seen: Events, listening: socket.socket) -> Scraped:
    """Workers that are scraped. The block begins when the worker has started and has read how the queues stand."""

    @asynccontextmanager
    async def scraped(of: Queue | None = None, **settings: Any) -> AsyncIterator[Scraper]:
        quick = QUICK | {"overview_s": 0.05} | settings
        worker = Worker(of or queue, WorkerSettings(**quick), http=listening, emit=seen.emit)
        earlier = len(seen.of(WorkerStarted))
        running = Running(worker, asyncio.create_task(worker.run()))
        try:
            await seen(WorkerStarted, nth=earlier + 1)
            yield Scraper(Client(listening), worker)
            worker.stop()
            await running.ended()
        finally:
            running.task.cancel()
            await asyncio.wait([running.task], timeout=1)

    return scraped


@pytest.fixture
def noop(queue: Queue) -> Callable[[], Any]:
    """A kind, so that there is something to run."""

    @queue.task("noop")
    async def noop() -> None: ...

    return noop.bind
