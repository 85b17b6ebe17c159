"""A DSN that names several servers: the one that can be written to is meant, and one that is silent holds up nobody.

asyncpg asks the hosts of a DSN one after the other under one deadline. A machine that is gone answers nothing, not even
a refusal, so the deadline would pass before the next host is asked: after a failover nobody would find the new primary.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

import anyio
import asyncpg

if TYPE_CHECKING:
    from asyncpg import Connection, Record

STAGGER_S = 0.25
"""How long a host is waited for before the next one is asked too; it stays in the race."""

_FAILED = (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_SAYS_LEAST = (
    asyncpg.TargetServerAttributeNotMatched,
    asyncpg.InvalidAuthorizationSpecificationError,  # a host that is away may yet let us in
    asyncpg.InvalidCatalogNameError,
)


def dsn_of_each_host(dsn: str) -> list[str]:
    """Return a DSN for each host that *dsn* names, in order; *dsn* itself if it is one, or cannot be taken apart.

    Where *dsn* does not say otherwise, each asks for a server that can be written to.
    """
    address, _, query = dsn.partition("?")
    scheme, _, rest = address.partition("://")
    authority, slash, database = rest.partition("/")
    login, at, named = authority.rpartition("@")
    fields = dict(parse_qsl(query, keep_blank_values=True))
    hosts = (named or fields.get("host", "")).split(",")
    ports = fields.get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    if len(hosts) == 1 or len(hosts) != len(ports):
        return [dsn]
    fields.setdefault("target_session_attrs", "read-write")
    dsns = []
    for host, port in zip(hosts, ports, strict=True):
        own = fields | ({} if named else {"host": host}) | ({"port": port} if port else {})
        address = f"{scheme}://{login}{at}{host if named else ''}{slash}{database}"
        dsns.append(f"{address}?{urlencode(own, safe='/', quote_via=quote)}")
    return dsns


async def connect_to_first(
    dsns: Sequence[str], connect: Callable[[str], Awaitable[Connection[Record]]]
) -> Connection[Record]:
    """Return a connection to the first of *dsns* that answers and is what it asks for; the others are dropped.

    Each is asked when the one before it has failed, or is silent. If all fail, an error that may pass is raised rather
    than one that says no.
    """
    race = _Race(connect)
    try:
        async with anyio.create_task_group() as group:
            for dsn in dsns:
                failed = anyio.Event()
                group.start_soon(race.run, dsn, failed, group.cancel_scope)
                with anyio.move_on_after(STAGGER_S):
                    await failed.wait()
    except BaseException:
        if race.winner is not None:
            race.winner.terminate()
        raise
    if race.winner is None:
        raise next((error for error in race.errors if not isinstance(error, _SAYS_LEAST)), race.errors[0])
    return race.winner


class _Race:
    def __init__(self, connect: Callable[[str], Awaitable[Connection[Record]]]) -> None:
        self._connect = connect
        self.winner: Connection[Record] | None = None
        self.errors: list[Exception] = []

    async def run(self, dsn: str, failed: anyio.Event, rivals: anyio.CancelScope) -> None:
        try:
            connection = await self._connect(dsn)
        except _FAILED as error:
            self.errors.append(error)
            failed.set()
            return
        if self.winner is not None:
            connection.terminate()
            return
        self.winner = connection
        rivals.cancel()
