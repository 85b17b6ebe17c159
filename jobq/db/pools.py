"""The pool for enqueues without a connection and for handlers' transactions: opened at first use, never at import.

A pool belongs to the process and the event loop that opened it. In another loop a new one is opened; after a
fork the child forgets its parent's without touching the wire.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import anyio
import asyncpg

from jobq.db.connect import (
    LEAVE_TIMEOUT_S,
    PLAN_AGE_S,
    connect,
    driver_errors,
    is_read_only,
    leaves_doubt,
    look_around,
)
from jobq.db.hosts import PATIENCE_S
from jobq.errors import DatabaseUnavailableError
from jobq.settings import Route

if TYPE_CHECKING:
    from asyncpg import Connection, Pool, Record
    from asyncpg.pool import PoolConnectionProxy

MAX_SIZE = 10

LEND_S = 10.0
"""For a connection to be free or made, and for one enqueue. A server that is silent must not hold a caller for ever."""

LOOK_AROUND_S = 30.0
"""How often an enqueue asks the other servers of the DSN first whether one was promoted; the heartbeat asks, too."""


class Pools:
    """One pool an event loop, for one database. *route* is asked when a pool is opened."""

    def __init__(self, route: Callable[[], Route]) -> None:
        self._route = route
        self._pid = os.getpid()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Pool[Record]] = WeakKeyDictionary()
        self._inherited: list[object] = []
        self._look_around_at = 0.0

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
                max_cached_statement_lifetime=PLAN_AGE_S,
                connect=cast(Any, partial(connect, role="handlers", prepared_statements=route.prepared_statements)),
                reset=partial(self._take_back, resets=route.prepared_statements),
            )
            self._by_loop[loop] = pool
        return pool

    @asynccontextmanager
    async def lend(self, *, more_s: float | None = 0.0) -> AsyncIterator[PoolConnectionProxy[Record]]:
        """Lend a connection for statements of jobq's own, for at most `LEND_S` and *more_s* seconds; None: no limit.

        Raises what `Link.lend` does. A connection whose state is in doubt afterwards is terminated, and after one that
        was of no use all others are replaced before theirs: to find it out one after the other would take for ever.
        """
        pool = await self.get()
        is_lent = False
        try:
            with driver_errors(), anyio.fail_after(None if more_s is None else LEND_S + more_s):
                await self._look_around()
                async with pool.acquire() as connection:
                    is_lent = True
                    try:
                        yield connection
                    except BaseException as error:
                        if leaves_doubt(error):
                            connection.terminate()
                        raise
        except DatabaseUnavailableError:
            if is_lent:
                await pool.expire_connections()
            raise

    async def _look_around(self) -> None:
        if time.monotonic() >= self._look_around_at:
            self._look_around_at = time.monotonic() + LOOK_AROUND_S
            await look_around(self._route().dsn, role="handlers", wait_s=PATIENCE_S)

    async def _take_back(self, connection: Connection[Record], *, resets: bool) -> None:
        """Make *connection* as good as new. If its server takes no writes any more, none is used again.

        Behind a pooler it *resets* nothing, which would be done to whichever server connection comes next. asyncpg has
        ended the transaction before it asks.
        """
        if resets:
            await connection.reset()
        pool = self._by_loop.get(asyncio.get_running_loop())
        if pool is not None and is_read_only(connection):
            await pool.expire_connections()

    async def close(self) -> None:
        """Close this loop's pool; a connection that is not back within two seconds is terminated."""
        pool = self._by_loop.pop(asyncio.get_running_loop(), None)
        if pool is None or self._pid != os.getpid():
            return
        with anyio.move_on_after(LEAVE_TIMEOUT_S):
            await pool.close()
        pool.terminate()
