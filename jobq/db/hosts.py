"""The servers of a DSN that names several: one that takes writes is meant, and of two such the one promoted last.

asyncpg asks the hosts of a DSN one after the other under one deadline. A machine that is gone answers nothing, not even
a refusal, so the deadline would pass before the next host is asked. And it takes the first that can be written to: also
an old primary that nobody has stopped. So all are asked at once, and the timeline decides, which each promotion raises.
A DSN of one host pays for nothing of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode
from weakref import WeakKeyDictionary

import anyio
import asyncpg

from jobq.db.timeline import Timeline, newest, read_timeline

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Open = Callable[[str], Awaitable[Connection[Record]]]

PATIENCE_S = 0.25
"""How long the others may still answer when one has that takes writes. A silent one costs each connection so much."""


class SupersededError(ConnectionError):
    """A server takes writes on an older timeline than this process has seen: another was promoted since."""


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


@cache
def cluster_of(dsn: str) -> Cluster:
    """Return the servers that *dsn* names. What one connection of this process learns of them, all know."""
    return Cluster(dsn_of_each_host(dsn))


class Cluster:
    """The servers of one DSN, and what this process has seen of them, in whichever thread.

    Nobody is connected to an older timeline than the latest seen, and who was is disconnected. A server whose timeline
    cannot be read neither wins nor loses by it.
    """

    def __init__(self, dsns: Sequence[str]) -> None:
        self._dsns = dsns
        self._current = dsns[0]
        self._latest: dict[int, Timeline] = {}
        self._opened: WeakKeyDictionary[Connection[Record], tuple[asyncio.AbstractEventLoop, Timeline]]
        self._opened = WeakKeyDictionary()
        self._lock = Lock()

    async def connect(self, open_one: Open) -> Connection[Record]:
        """Return a connection that *open_one* has made to the newest of the servers that are what their DSN asks for.

        If there is none, an error that may pass is raised rather than one that says no.
        """
        if len(self._dsns) == 1:
            return await open_one(self._dsns[0])
        race = _Race(len(self._dsns))
        try:
            async with anyio.create_task_group() as group:
                for place, dsn in enumerate(self._dsns):
                    group.start_soon(self._enter, race, place, dsn, open_one)
                await race.has_candidate.wait()
                with anyio.move_on_after(PATIENCE_S):
                    await race.is_over.wait()
                group.cancel_scope.cancel()
            place, winner = race.take()
        finally:
            race.drop()
        self._current = self._dsns[place]
        if winner.timeline is not None:
            self._note(winner.timeline, winner.connection)
        return winner.connection

    async def look(self, open_one: Open, *, wait_s: float) -> Timeline | None:
        """Ask the other servers, for at most *wait_s*, whether one was promoted beside the one connected to last.

        If so, drop the connections to older ones and return its timeline. A server that fails to answer says nothing.
        """
        found: list[Timeline] = []
        if self._latest:
            with anyio.move_on_after(wait_s):
                async with anyio.create_task_group() as group:
                    for dsn in self._dsns:
                        if dsn != self._current:
                            group.start_soon(self._glance, dsn, open_one, found)
        return found[-1] if found else None

    async def _glance(self, dsn: str, open_one: Open, found: list[Timeline]) -> None:
        try:
            answer = await _ask(dsn, open_one)
        except _FAILED:
            return
        answer.connection.terminate()
        timeline = answer.timeline
        if timeline is not None and timeline.is_after(self._latest.get(timeline.system)):
            self._note(timeline)
            found.append(timeline)

    async def _enter(self, race: _Race, place: int, dsn: str, open_one: Open) -> None:
        try:
            answer = await _ask(dsn, open_one)
        except _FAILED as error:
            race.fail(place, error)
            return
        if answer.timeline is not None and (latest := self._later_than(answer.timeline)):
            answer.connection.terminate()
            race.fail(
                place,
                SupersededError(
                    f"an old primary still takes writes: it is on timeline {answer.timeline.number}, and this process"
                    f" has seen {latest.number}; stop it, or restart this process if it is to go back"
                ),
            )
            return
        race.enter(place, answer)

    def _later_than(self, timeline: Timeline) -> Timeline | None:
        latest = self._latest.get(timeline.system)
        return latest if latest is not None and latest.is_after(timeline) else None

    def _note(self, timeline: Timeline, connection: Connection[Record] | None = None) -> None:
        """Remember that *timeline* was seen, on *connection* if that is kept, and drop what is left of older ones."""
        with self._lock:
            if connection is not None:
                self._opened[connection] = (asyncio.get_running_loop(), timeline)
            if self._later_than(timeline) is None:
                self._latest[timeline.system] = timeline
            left = [(one, loop) for one, (loop, its) in self._opened.items() if self._later_than(its)]
        for one, loop in left:
            if loop is asyncio.get_running_loop():
                one.terminate()
            else:
                with suppress(RuntimeError):  # its loop has ended, and the connection with it
                    loop.call_soon_threadsafe(one.terminate)


class _Answer(NamedTuple):
    connection: Connection[Record]
    timeline: Timeline | None


async def _ask(dsn: str, open_one: Open) -> _Answer:
    connection = await open_one(dsn)
    try:
        return _Answer(connection, await read_timeline(connection))
    except BaseException:
        connection.terminate()
        raise


class _Race:
    """What came of asking all servers at once."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._answers: dict[int, _Answer] = {}
        self._errors: dict[int, Exception] = {}
        self.has_candidate = anyio.Event()
        """One can be taken, or none ever."""
        self.is_over = anyio.Event()
        """Nothing can change the result any more."""

    def enter(self, place: int, answer: _Answer) -> None:
        self._answers[place] = answer
        self.has_candidate.set()
        self._see_whether_over()

    def fail(self, place: int, error: Exception) -> None:
        self._errors[place] = error
        self._see_whether_over()

    def _see_whether_over(self) -> None:
        reported = self._answers.keys() | self._errors.keys()
        if len(reported) == self._count:
            self.has_candidate.set()
            self.is_over.set()
        elif self._answers:
            first = min(self._answers)
            if self._answers[first].timeline is None and reported.issuperset(range(first)):
                self.is_over.set()  # nobody can beat it

    def take(self) -> tuple[int, _Answer]:
        """Return the winner, with its place. Raises the error that says most if there is none."""
        if not self._answers:
            raise min((error for _, error in sorted(self._errors.items())), key=_reticence)
        places = sorted(self._answers)
        place = places[newest([self._answers[one].timeline for one in places])]
        return place, self._answers.pop(place)

    def drop(self) -> None:
        """Take leave of whoever was not taken."""
        for answer in self._answers.values():
            answer.connection.terminate()


def _reticence(error: Exception) -> int:
    if isinstance(error, SupersededError):
        return 0
    return 2 if isinstance(error, _SAYS_LEAST) else 1
