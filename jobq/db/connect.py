"""Connections: how they are opened, when they are given up, and what the driver's errors mean.

The runtime holds a few `Link`s of its own, apart from the pool that handlers use. A link is one
connection that is replaced whenever its state is in doubt: after a deadline, a cancellation, a lost
connection, or an answer that says this server cannot write.
"""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import anyio
import asyncpg

from jobq.db.hosts import cluster_of
from jobq.db.keepalive import keep_alive
from jobq.db.timeline import Timeline
from jobq.errors import (
    AccessRefusedError,
    ConfigurationError,
    ConflictError,
    DatabaseError,
    DatabaseUnavailableError,
    PreparedStatementError,
    SchemaError,
)

if TYPE_CHECKING:
    from asyncpg import Connection, Record
    from asyncpg.pool import PoolConnectionProxy

    AnyConnection = Connection[Record] | PoolConnectionProxy[Record]

CONNECT_TIMEOUT_S = 10.0
LEAVE_TIMEOUT_S = 2.0
CHECK_TIMEOUT_S = 5.0

PLAN_AGE_S = 10
"""PostgreSQL keeps a plan that it made for an empty table when a million jobs have come; make it anew now and then."""

STATEMENTS_KEPT = 100
"""Prepared statements of one connection: more than there are."""

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
_REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
_CONFLICT = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError)
_NO_SCHEMA = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.UndefinedColumnError,
    asyncpg.InvalidSchemaNameError,
)
_STALE_PLAN = (
    asyncpg.InvalidCachedStatementError,
    asyncpg.FeatureNotSupportedError,  # 0A000: cached plan must not change result type
)
_NOT_PREPARED = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
_TLS_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


def translated(error: Exception) -> DatabaseError | SchemaError | None:
    """Return what the driver's *error* means to jobq, or None if it is not the driver's."""
    if fault := _tls_fault(error):
        return AccessRefusedError(
            f"there is no connection with TLS as the DSN demands it ({_said(fault)}): correct sslmode, sslrootcert,"
            " sslcert and sslkey, the name of the host, or the server's certificate"
        )
    if isinstance(error, _REFUSED):
        return AccessRefusedError(f"the server refuses this connection ({_said(error)}): correct the DSN")
    if isinstance(error, asyncpg.ProtocolViolationError) and "unsupported startup parameter" in str(error):
        return AccessRefusedError(
            f"the pooler refuses a parameter of this connection ({_said(error)}): take it out of the DSN, or name it in"
            " PgBouncer's ignore_startup_parameters"
        )
    if isinstance(error, _NOT_PREPARED):
        # Without the driver's own hint, which names an option that is not ours.
        return PreparedStatementError(
            f"the server connection is not the one that a statement was prepared on ({error.args[0]}): behind a pooler"
            " in transaction mode set prepared_statements=False (JOBQ_PREPARED_STATEMENTS=off), and on connections of"
            " your own statement_cache_size=0"
        )
    if isinstance(error, _CONFLICT + _STALE_PLAN):
        return ConflictError(f"a concurrent transaction was in the way ({_said(error)}): run the transaction again")
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return DatabaseError(f"the driver refused the statement: {_said(error)}")
    if isinstance(error, _UNAVAILABLE):
        return DatabaseUnavailableError(f"the database is not available: {_said(error)}")
    if isinstance(error, _NO_SCHEMA):
        return SchemaError(f"the schema of jobq is missing or of another version ({_said(error)}): run `jobq migrate`")
    if isinstance(error, asyncpg.PostgresError):
        return DatabaseError(f"PostgreSQL refused the statement: {_said(error)}")
    return None


def _tls_fault(error: Exception) -> Exception | None:
    """Return what says that TLS cannot be had as demanded, or None if *error* may merely be a line that broke."""
    # The driver has no class of its own for a server that answers N to the request for TLS.
    if isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error):
        return error
    # From TLS 1.3 on a server refuses our certificate when the connection is made already.
    fault = error.__cause__ if isinstance(error, asyncpg.ConnectionDoesNotExistError) else error
    if not isinstance(fault, ssl.SSLError):
        return None
    reason = (fault.reason or "").upper().replace(" ", "_")
    is_refusal = (
        isinstance(fault, ssl.SSLCertVerificationError)
        or "ALERT" in reason  # the server's word
        or fault.library in ("PEM", "X509")  # a file that holds something else
        or reason in ("PEM_LIB", "KEY_VALUES_MISMATCH")
    )
    return fault if is_refusal else None


def is_refusal(error: DatabaseError) -> bool:
    """Say whether *error* is that the role lacks a right."""
    return isinstance(error.__cause__, asyncpg.InsufficientPrivilegeError)


def leaves_doubt(error: BaseException) -> bool:
    """Say whether a connection that raised *error*, the driver's or ours, must not be used again."""
    if not isinstance(error, Exception) or isinstance(error, DatabaseUnavailableError | SchemaError):
        return True
    return any(isinstance(one, _UNAVAILABLE + _STALE_PLAN + _NOT_PREPARED) for one in (error, error.__cause__))


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


async def connect(dsn: str, *, role: str, prepared_statements: bool = False, **options: Any) -> Connection[Record]:
    """Open a connection named `jobq ROLE` in `pg_stat_activity`, to the host of *dsn* that can be written to.

    Without *prepared_statements*, statements are parsed each time and no name of one is left on the server. *options*
    are asyncpg's. Raises the driver's errors, `ConfigurationError` for a DSN that the driver does not understand, and
    `AccessRefusedError` for files of it that cannot be read.
    """
    _check_files(dsn)
    try:
        return await cluster_of(dsn).connect(_opener(role, prepared_statements, options))
    except ssl.SSLError:
        raise  # some are a ValueError, too
    except asyncpg.ClientConfigurationError as error:
        raise ConfigurationError(f"the DSN cannot be used ({_said(error)}): see libpq's connection URIs") from error
    except ValueError:
        # Not a word of it: what the driver stumbles over may be a part of a password.
        raise ConfigurationError("the DSN cannot be used: see libpq's connection URIs") from None


async def look_around(dsn: str, *, role: str, wait_s: float) -> Timeline | None:
    """Ask the other hosts of *dsn*, for at most *wait_s*, whether one was promoted while ours still takes writes.

    If so, all connections that this process has opened to an older one with *dsn* are dropped. Returns the timeline of
    the promoted one.
    """
    return await cluster_of(dsn).look(_opener(role, False, {}), wait_s=wait_s)


def _opener(
    role: str, prepared_statements: bool, options: dict[str, Any]
) -> Callable[[str], Awaitable[Connection[Record]]]:
    named: dict[str, Any] = {
        "timeout": CONNECT_TIMEOUT_S,
        "statement_cache_size": STATEMENTS_KEPT if prepared_statements else 0,
        "server_settings": {"application_name": f"jobq {role}"},
    }

    async def open_one(dsn: str) -> Connection[Record]:
        connection: Connection[Record] = await asyncpg.connect(dsn, **named | options)
        keep_alive(connection)
        return connection

    return open_one


def _check_files(dsn: str) -> None:
    """Raise `AccessRefusedError` if a file of *dsn* cannot be read: for the driver it is like a server that is away."""
    query = parse_qs(urlsplit(dsn).query)
    for name in _TLS_FILES:
        path = query.get(name, [""])[-1]
        if path and not os.access(path, os.R_OK):
            raise AccessRefusedError(f"{name}={path} of the DSN cannot be read: correct the path, or its permissions")


def is_read_only(connection: AnyConnection) -> bool:
    """Say whether the server has told this session that it takes no writes; it does with its next answer (from 14 on).

    A connection to a demoted primary works as before for whoever only reads or listens.
    """
    settings = connection.get_settings()
    return "on" in (
        getattr(settings, "default_transaction_read_only", "off"),
        getattr(settings, "in_hot_standby", "off"),
    )


class Link:
    """One connection of the runtime, lent to one user at a time and replaced when in doubt."""

    def __init__(self, dsn: str, *, role: str, deadline_s: float, prepared_statements: bool = True) -> None:
        self._dsn = dsn
        self._role = role
        self._prepares = prepared_statements
        self._deadline_s = deadline_s
        self._turn = anyio.Lock(fast_acquire=True)
        self._connection: Connection[Record] | None = None
        self.patience_s = 2 * (deadline_s + CONNECT_TIMEOUT_S)
        """How long a user may have to wait: for its turn, and then for its own answer, with a connection to be made."""
        self.generation = 0
        """How often a connection was opened: it changes when what was seen before is no longer of the same session."""
        self._states_isolation = False
        self._planned_at = 0.0
        self._failures = 0
        self._failure = ""

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection[Record]]:
        """Lend the connection, opened if need be, for at most the link's deadline.

        Raises `DatabaseUnavailableError`, `ConflictError`, `SchemaError` or `DatabaseError`. A connection whose
        state is in doubt afterwards is terminated, never lent again.
        """
        failures = self._failures
        async with self._turn:
            if self._failures != failures:
                # Whoever had the turn has just found out; to find it out one after the other would take for ever.
                raise DatabaseUnavailableError(self._failure)
            try:
                with anyio.fail_after(self._deadline_s):
                    connection = await self._usable()
                    if not self._states_isolation:
                        yield connection
                    else:
                        async with self._read_committed(connection):
                            yield connection
            except BaseException as error:
                if leaves_doubt(error):
                    self.terminate()
                ours = translated(error) if isinstance(error, Exception) else None
                if isinstance(ours, DatabaseUnavailableError):
                    self._failures += 1
                    self._failure = str(ours)
                if ours is None:
                    raise
                raise ours from error

    async def _usable(self) -> Connection[Record]:
        now = time.monotonic()
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._dsn, role=self._role, prepared_statements=self._prepares)
            self.generation += 1
            default = await self._connection.fetchval("show default_transaction_isolation")
            self._states_isolation = default != "read committed"
            self._planned_at = now
        elif self._prepares and now - self._planned_at > PLAN_AGE_S:
            await self._connection.execute("discard plans")
            self._planned_at = now
        return self._connection

    @asynccontextmanager
    async def _read_committed(self, connection: Connection[Record]) -> AsyncIterator[None]:
        """Say READ COMMITTED where the database's default is another: above it, claims that meet would fail.

        They would not pass over each other's rows. A process that is frozen inside keeps its locks no longer than the
        link's deadline.
        """
        async with connection.transaction(isolation="read_committed"):
            await connection.execute(
                f"set local idle_in_transaction_session_timeout = {math.ceil(self._deadline_s * 1000)}"
            )
            yield

    async def look_around(self, *, wait_s: float) -> None:
        """Raise `DatabaseUnavailableError` if another host was promoted while ours still takes writes.

        Nothing else shows it. All connections to the old one are dropped; the next is to the promoted one.
        """
        if (timeline := await look_around(self._dsn, role=self._role, wait_s=wait_s)) is not None:
            raise DatabaseUnavailableError(
                f"another server was promoted, to timeline {timeline.number}, and this process turns to it;"
                " stop the old primary, which still takes writes"
            )

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


class Ear:
    """The listening connection: it never opens a transaction, and only asks whether it still listens."""

    def __init__(self, dsn: str, channel: str, statement: str) -> None:
        self._dsn = dsn
        self._channel = channel
        self._statement = statement
        self._connection: Connection[Record] | None = None
        self.patience_s = CONNECT_TIMEOUT_S + 2 * CHECK_TIMEOUT_S

    @asynccontextmanager
    async def listen(self, heard: Callable[[str], None]) -> AsyncIterator[asyncio.Event]:
        """Listen while the block runs: *heard* gets each notification's payload. Gives an event set at the loss.

        Each time a new connection with its own callbacks, terminated at the end. Raises `DatabaseError`.
        """
        lost = asyncio.Event()
        with driver_errors():
            self._connection = await connect(self._dsn, role="listener")
        try:
            self._connection.add_termination_listener(lambda _: lost.set())
            with driver_errors(), anyio.fail_after(CHECK_TIMEOUT_S):
                await self._connection.add_listener(self._channel, lambda *said: heard(str(said[3])))
            yield lost
        finally:
            self._connection.terminate()

    async def check(self) -> None:
        """Ask whether this session still listens, where jobs can be enqueued.

        Raises `DatabaseUnavailableError` if not, or if there is no answer in five seconds.
        """
        assert self._connection is not None
        with driver_errors():
            channels = await self._connection.fetchval(self._statement, timeout=CHECK_TIMEOUT_S)
        if self._channel not in channels:
            raise DatabaseUnavailableError(f"the session no longer listens on {self._channel!r}")
        if is_read_only(self._connection):
            raise DatabaseUnavailableError(
                "the session listens to a server that takes no writes: nobody enqueues there"
            )
