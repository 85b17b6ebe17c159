"""What the server and the schema say of themselves, for `jobq doctor`: facts only, what they mean is said elsewhere.

Nothing here takes a lock or writes. What this role may not read is left out and named in `unseen`, and what needs a
newer schema is not asked of an older one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import anyio
import msgspec

from jobq.db.connect import Ear, driver_errors, is_refusal
from jobq.db.migrate import current_version, newest_version
from jobq.db.overview import Overview, Standing
from jobq.db.recurring import EntryNow, RecurringStore
from jobq.db.statements import load_statements
from jobq.errors import DatabaseError

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection

T = TypeVar("T")

HEAR_S = 2.0
"""How long a notification may take to come through: it takes a millisecond."""


class ServerFacts(msgspec.Struct, frozen=True):
    """The server as a whole. *now* is its clock, *notification_queue* the share that is in use.

    *may_see_sessions*: whether this role sees what the sessions of others do.
    """

    now: datetime
    pid: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    autovacuum: str
    notification_queue: float
    connections_left: int
    replicas: int
    may_see_sessions: bool


class Blocker(msgspec.Struct, frozen=True):
    """A session that is in the way of others: for *waited_s* somebody has waited for it, or it has locked our *tables*.

    *open_s*: how long its transaction has been open, None if this role may not see it. *shuts_out*: not even readers
    go past.
    """

    pid: int
    owner: str
    application: str
    state: str
    open_s: float | None
    waited_s: float
    tables: list[str]
    shuts_out: bool


class Holder(msgspec.Struct, frozen=True):
    """Who keeps vacuum from removing dead rows. *age_s* is None of a replica."""

    what: str
    name: str
    owner: str
    application: str
    state: str
    age_s: float | None
    transactions: int


class Slot(msgspec.Struct, frozen=True):
    """A replication slot: how much of the log it keeps, and since how many transactions it holds back vacuum."""

    name: str
    active: bool
    kept_bytes: int
    held_transactions: int | None


class TableFacts(msgspec.Struct, frozen=True):
    """A table of the schema, with the rows that the server has counted. *vacuumed_s*: how long ago, None if never."""

    name: str
    owner: str
    autovacuum: bool
    live: int
    dead: int
    vacuumed_s: float | None


class IndexFacts(msgspec.Struct, frozen=True):
    """An index of the schema; one that is not valid is written, and used by nothing."""

    name: str
    table: str
    valid: bool


class InstanceFacts(msgspec.Struct, frozen=True):
    """What the tables say. *lease_rest_s* is the longest rest of a live worker's lease.

    *history_age_slots*: how old the current slot of the history is, in lengths of a slot; None if it is empty.
    """

    workers: int
    lease_rest_s: float | None
    dead_letters: int
    oldest_dead_s: float | None
    history_age_slots: float | None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found out; None is what this role may not see or this schema does not have."""

    schema: str
    version: int
    needed: int
    server: ServerFacts
    clock_ahead_s: float
    """How far this machine's clock is ahead of the server's."""
    told_pid: int
    """The server process as the connection was told it: another than its own if a pooler stands between."""
    blockers: list[Blocker]
    holders: list[Holder]
    slots: list[Slot]
    tables: list[TableFacts]
    indexes: list[IndexFacts]
    instance: InstanceFacts | None
    standing: Standing | None
    entries: list[EntryNow] | None
    unseen: list[str]


class FactReports:
    """The facts of one schema and its server."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._sql = load_statements(schema)

    async def gather(self, conn: AnyConnection, *, wall_clock: Callable[[], float] = time.time) -> Facts:
        """Return the facts. Raises `DatabaseError` for whatever else than a missing right."""
        version, needed = await current_version(conn, self._schema), newest_version()
        unseen: list[str] = []
        instance: InstanceFacts | None = None
        standing: Standing | None = None
        entries: list[EntryNow] | None = None
        with driver_errors():
            blockers = [Blocker(*row) for row in await conn.fetch(self._sql["list_blockers"], self._schema)]
        if any(one.shuts_out for one in blockers):
            unseen.append("jobs, queues and kinds (a session has locked our tables)")
        elif version >= needed:
            instance = await _unless_refused("the state of the instance", unseen, lambda: self._instance(conn))
            standing = await _unless_refused("queues and kinds", unseen, lambda: Overview(self._schema).look(conn))
            recurring = RecurringStore(self._schema)
            entries = await _unless_refused("recurring entries", unseen, lambda: recurring.list_recurring(conn))
        with driver_errors():
            asked_at = wall_clock()
            server = ServerFacts(*(await conn.fetch(self._sql["read_server"]))[0])
            answered_at = wall_clock()
            if not server.may_see_sessions:
                unseen.append("what sessions of others hold (grant pg_read_all_stats)")
            return Facts(
                schema=self._schema,
                version=version,
                needed=needed,
                server=server,
                clock_ahead_s=(asked_at + answered_at) / 2 - server.now.timestamp(),
                told_pid=conn.get_server_pid(),
                blockers=blockers,
                holders=[Holder(*row) for row in await conn.fetch(self._sql["list_holders"])],
                slots=[Slot(*row) for row in await conn.fetch(self._sql["list_slots"])],
                tables=[TableFacts(*row) for row in await conn.fetch(self._sql["list_tables"], self._schema)],
                indexes=[IndexFacts(*row) for row in await conn.fetch(self._sql["list_indexes"], self._schema)],
                instance=instance,
                standing=standing,
                entries=entries,
                unseen=unseen,
            )

    async def _instance(self, conn: AnyConnection) -> InstanceFacts:
        with driver_errors():
            return InstanceFacts(*(await conn.fetch(self._sql["read_standing"]))[0])


async def _unless_refused(what: str, unseen: list[str], ask: Callable[[], Awaitable[T]]) -> T | None:
    """Return what is asked for, or None, and name it in *unseen*, if this role may not see it."""
    try:
        return await ask()
    except DatabaseError as error:
        if not is_refusal(error):
            raise
        unseen.append(what)
        return None


async def hears(conn: AnyConnection, schema: str, listen_dsn: str) -> bool:
    """Say whether what is notified on *conn* is heard on a connection to *listen_dsn*, as a worker wants it."""
    sql = load_statements(schema)
    word = f"? {uuid4()}"
    heard = anyio.Event()
    ear = Ear(listen_dsn, schema, sql["listening_channels"])
    async with ear.listen(lambda said: heard.set() if said == word else None):
        with driver_errors():
            await conn.execute(sql["try_listener"], word)
        with anyio.move_on_after(HEAR_S):
            await heard.wait()
    return heard.is_set()
