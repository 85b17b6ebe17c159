"""Connections: how they are opened, when they are given up, and what the driver's errors mean.

The runtime holds a few `Link`s of its own, apart from the pool that handlers use. A link is one
connection that is replaced whenever its state is in doubt: after a deadline, a cancellation, a lost
connection, or an answer that says this server cannot write.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio
import asyncpg

from jobq.errors import ConflictError, DatabaseError, DatabaseUnavailableError, SchemaError

if TYPE_CHECKING:
    from asyncpg import Connection, Record
    from asyncpg.pool import PoolConnectionProxy

    AnyConnection = Connection[Record] | PoolConnectionProxy[Record]

CONNECT_TIMEOUT_S = 10.0
LEAVE_TIMEOUT_S = 2.0

_UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,  # shutting down, cancelled, starting up
    asyncpg.InsufficientResourcesError,  # too many connections, disk full, out of memory
    asyncpg.ReadOnlySQLTransactionError,  # a demoted primary that still answers
    asyncpg.TargetServerAttributeNotMatched,
)
_CONFLICT = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError)
_NO_SCHEMA = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.UndefinedColumnError,
    asyncpg.InvalidSchemaNameError,
)
_STALE_PLAN = (
    asyncpg.InvalidCachedStatementError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.FeatureNotSupportedError,  # 0A000: cached plan must not change result type
)


def translated(error: Exception) -> DatabaseError | SchemaError | None:
    """Return what the driver's *error* means to jobq, or None if it is not the driver's."""
    if isinstance(error, _CONFLICT):
        return ConflictError(f"a concurrent transaction was in the way ({_said(error)}): run the transaction again")
    if isinstance(error, _UNAVAILABLE):
        return DatabaseUnavailableError(f"the database is not available: {_said(error)}")
    if isinstance(error, _NO_SCHEMA):
        return SchemaError(f"the schema of jobq is missing or of another version ({_said(error)}): run `jobq migrate`")
    if isinstance(error, asyncpg.PostgresError):
        return DatabaseError(f"PostgreSQL refused the statement: {_said(error)}")
    return None


def _said(error: Exception) -> str:
    text = str(error) or "no answer in time"
    return f"{type(error).__name__}: {text}"


@contextmanager
def driver_errors() -> Iterator[None]:
    """Turn the driver's errors raised inside into ours, with the original as `__cause__`."""
    try:
        yield
    except Exception as error:
        ours = translated(error)
        if ours is None:
            raise
        raise ours from error


async def connect(dsn: str, *, role: str) -> Connection[Record]:
    """Open a connection named `jobq ROLE` in `pg_stat_activity`. Raises the driver's errors."""
    return await asyncpg.connect(
        dsn,
        timeout=CONNECT_TIMEOUT_S,
        server_settings={"application_name": f"jobq {role}"},
    )


async def open_listener(
    dsn: str, channel: str, heard: Callable[[str], None], lost: Callable[[], None]
) -> Connection[Record]:
    """Open a connection that calls *heard* with each notification's payload, and *lost* when it ends.

    It never opens a transaction, and nothing else is ever run on it. Raises the driver's errors.
    """
    connection = await connect(dsn, role="listener")
    try:
        connection.add_termination_listener(lambda _: lost())
        await connection.add_listener(channel, lambda *notification: heard(str(notification[3])))
    except BaseException:
        connection.terminate()
        raise
    return connection


class Link:
    """One connection of the runtime, lent to one user at a time and replaced when in doubt."""

    def __init__(self, dsn: str, *, role: str, deadline_s: float) -> None:
        self._dsn = dsn
        self._role = role
        self._deadline_s = deadline_s
        self._turn = anyio.Lock()
        self._connection: Connection[Record] | None = None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection[Record]]:
        """Lend the connection, opened if need be, for at most the link's deadline.

        Raises `DatabaseUnavailableError`, `ConflictError`, `SchemaError` or `DatabaseError`. A connection whose
        state is in doubt afterwards is terminated, never lent again.
        """
        async with self._turn:
            try:
                with anyio.fail_after(self._deadline_s):
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await connect(self._dsn, role=self._role)
                    yield self._connection
            except BaseException as error:
                if not isinstance(error, Exception) or isinstance(error, _UNAVAILABLE + _STALE_PLAN + _NO_SCHEMA):
                    self.terminate()
                ours = translated(error) if isinstance(error, Exception) else None
                if ours is None:
                    raise
                raise ours from error

    async def close(self) -> None:
        """Take leave of the server, at most two seconds long."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=LEAVE_TIMEOUT_S)
            except _UNAVAILABLE:
                connection.terminate()

    def terminate(self) -> None:
        """Drop the connection at once, without a word to the server."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
