"""The pool for enqueues without a connection and for handlers' transactions: opened at first use, never at import.

A pool belongs to the process and the event loop that opened it. In another loop a new one is opened; after a
fork the child forgets its parent's without touching the wire.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio
import asyncpg

from jobq.db.connect import CONNECT_TIMEOUT_S, LEAVE_TIMEOUT_S, PLAN_AGE_S, STATEMENTS_KEPT, driver_errors
from jobq.settings import Route

if TYPE_CHECKING:
    from asyncpg import Connection, Pool, Record
    from asyncpg.pool import PoolConnectionProxy

MAX_SIZE = 10


class Pools:
    """One pool an event loop, for one database. *route* is asked when a pool is opened."""

    def __init__(self, route: Callable[[], Route]) -> None:
        self._route = route
        self._pid = os.getpid()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Pool[Record]] = WeakKeyDictionary()
        self._inherited: list[object] = []

    async def get(self) -> Pool[Record]:
        """Return this loop's pool, opened if need be. Raises `ConfigurationError` without a DSN."""
        if self._pid != os.getpid():
            # Kept, not dropped: a collected pool would close sockets that the parent still uses.
            self._inherited.append(self._by_loop)
            self._by_loop = WeakKeyDictionary()
            self._pid = os.getpid()
        loop = asyncio.get_running_loop()
        pool = self._by_loop.get(loop)
        if pool is None:
            route = self._route()
            # Without a minimum nothing is connected here, so this does not suspend and cannot run twice at once.
            pool = await asyncpg.create_pool(
                route.dsn,
                min_size=0,
                max_size=MAX_SIZE,
                timeout=CONNECT_TIMEOUT_S,
                statement_cache_size=STATEMENTS_KEPT if route.prepared_statements else 0,
                max_cached_statement_lifetime=PLAN_AGE_S,
                reset=None if route.prepared_statements else _leave_session,
                server_settings={"application_name": "jobq handlers"},
            )
            self._by_loop[loop] = pool
        return pool

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[PoolConnectionProxy[Record]]:
        """Lend a connection of this loop's pool. Raises `DatabaseError` if there is none to be had."""
        pool = await self.get()
        with driver_errors():
            conn = await pool.acquire()
        try:
            yield conn
        finally:
            await pool.release(conn)

    async def close(self) -> None:
        """Close this loop's pool; a connection that is not back within two seconds is terminated."""
        pool = self._by_loop.pop(asyncio.get_running_loop(), None)
        if pool is None or self._pid != os.getpid():
            return
        with anyio.move_on_after(LEAVE_TIMEOUT_S):
            await pool.close()
        pool.terminate()


async def _leave_session(_: Connection[Record]) -> None:
    """Reset nothing: behind a pooler that would be done to whichever server connection comes next.

    asyncpg has ended the transaction before it asks.
    """
