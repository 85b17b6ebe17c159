"""The rows of a test's schema, and a second connection that can be seen waiting for the first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, TypeVar

import pytest

from jobq.db.store import Store
from tests.db.rows import Rows

if TYPE_CHECKING:
    from tests.conftest import Conn

T = TypeVar("T")


@pytest.fixture
def rows(conn: Conn, store: Store) -> Rows:
    """The rows of this test's schema."""
    return Rows(conn, store)


@pytest.fixture
async def other(connect: Callable[[], Awaitable[Conn]]) -> Conn:
    """A second connection, for the second actor; who waits on it for long has met a lock that nobody lets go."""
    conn = await connect()
    await conn.execute("set lock_timeout = '5s'")
    return conn


class Blocked:
    """Starts what has to wait for a lock, and goes on when the server says that it waits."""

    def __init__(self, observer: Conn) -> None:
        self._observer = observer

    async def __call__(self, conn: Conn, running: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start *running*, which uses *conn*, and return it once *conn* waits for a lock of another transaction."""
        task = asyncio.create_task(running)
        async with asyncio.timeout(10):
            while not await self._observer.fetchval("select pg_blocking_pids($1) <> '{}'", conn.get_server_pid()):
                assert not task.done(), f"nobody was in its way: {task}"
                await asyncio.sleep(0)  # the round trip is the pause
        return task


@pytest.fixture
async def blocked(connect: Callable[[], Awaitable[Conn]]) -> Blocked:
    """`task = await blocked(other, rows.store.claim_jobs(other, ...))`."""
    return Blocked(await connect())
