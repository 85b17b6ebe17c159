"""The rows of a test's schema, and a second connection that can be seen waiting for the first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from jobq.db.store import Store
from tests.db.observe import Blocked
from tests.db.rows import Rows

if TYPE_CHECKING:
    from tests.conftest import Conn


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


@pytest.fixture
async def blocked(connect: Callable[[], Awaitable[Conn]]) -> Blocked:
    """`task = await blocked(other, rows.store.claim_jobs(other, ...))`."""
    return Blocked(await connect())
