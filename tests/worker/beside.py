"""What goes on beside the test's event loop, in threads with loops of their own: a handler that blocks it must not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from jobq import Queue
from jobq.settings import WorkerSettings
from jobq.telemetry.events import Event, WorkerStarted
from jobq.worker.supervisor import ExitCode, Worker
from tests.worker.observe import DEADLINE_S, eventually, until_true

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]


class Thread:
    """Runs one coroutine in a thread; `join` waits for it without blocking the test's loop."""

    def __init__(self, work: Coroutine[Any, Any, object]) -> None:
        self._error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._work)
        except BaseException as error:
            self._error = error

    async def join(self) -> None:
        """Wait for the end, and raise what was raised."""
        await until_true(lambda: not self._thread.is_alive())
        if self._error is not None:
            raise self._error


def look_beside(dsn: str, look: Callable[[Conn], Awaitable[object]], seen: threading.Event) -> Thread:
    """Set *seen* once *look*, on a connection of its own, finds something."""

    async def work() -> None:
        conn = await asyncpg.connect(dsn)
        try:
            await eventually(lambda: look(conn))
            seen.set()
        finally:
            conn.terminate()

    return Thread(work())


@asynccontextmanager
async def worker_beside(queue: Queue, settings: WorkerSettings) -> AsyncIterator[list[Event]]:
    """Run a worker in a thread for the length of the block. Gives its events as they come."""
    events: list[Event] = []
    stop: list[Callable[[], object]] = []

    async def work() -> None:
        worker = Worker(queue, settings, emit=events.append)
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(worker.stop))
        async with asyncio.timeout(5 * DEADLINE_S):
            assert await worker.run() is ExitCode.DRAINED

    thread = Thread(work())
    try:
        await until_true(lambda: any(isinstance(event, WorkerStarted) for event in events))
        yield events
    finally:
        for ask in stop:
            ask()
        await thread.join()
