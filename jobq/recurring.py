"""Recurring entries: `@queue.recurring(...)` declares one in the code, `await queue.recurring.add(...)` at run time.

What is declared is written by each worker at its start, and commits nothing before.
"""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from jobq.core.cron import Schedule
from jobq.core.job import JobId, NewJob
from jobq.core.names import shown
from jobq.core.recurring import CatchUp, EntryRow, Overlap, make_entry
from jobq.db.pools import Pools
from jobq.db.recurring import EntryNow, RecurringStore
from jobq.errors import JobqError, RecurringError

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection
    from jobq.registration import Handler


H = TypeVar("H", bound="Handler[..., object]")


class Recurring:
    """The recurring entries of one queue's schema: called, it declares one; its methods work on those in the database.

    Each method commits at once, or with *conn* in the caller's transaction. Workers notice a change within five
    seconds, and the first entry of all within a minute.
    """

    def __init__(
        self,
        schema: str,
        pools: Pools,
        handlers: Mapping[str, Handler[..., object]],
        make_job: Callable[[str, Mapping[str, object] | None], NewJob],
    ) -> None:
        self.declared: dict[str, EntryRow] = {}
        self._store = RecurringStore(schema)
        self._pools = pools
        self._handlers = handlers
        self._make_job = make_job

    def __call__(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        payload: Mapping[str, object] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        catch_up: CatchUp = "last",
        catch_up_within: timedelta | float | None = None,
        catch_up_cap: int | None = None,
        overlap: Overlap = "allow",
    ) -> Callable[[H], H]:
        """Enqueue a job of the decorated handler at each tick of *expression*, five fields of cron, in the zone *tz*.

            @queue.recurring("0 9 * * mon-fri", tz="Europe/Berlin")
            @queue.task(kind="daily_report")
            async def daily_report() -> None: ...

        *name* is the kind if not stated; several entries of one kind have names of their own. *payload*, *queue* and
        *priority* are those of its jobs. After a time without workers the `"last"` owed tick runs, if it is not older
        than *catch_up_within* (an hour), or `"all"` up to *catch_up_cap*, or `"none"`. While the previous run is
        unfinished the next one is enqueued all the same (`"allow"`), is left out (`"skip"`), or waits for its end
        (`"queue"`: one at most). Raises `RecurringError` for what can be known to be wrong.
        """

        def declare(handler: H) -> H:
            kind = getattr(handler, "kind", None)
            if kind is None or self._handlers.get(kind) is not handler:
                raise RecurringError(
                    f"{shown(handler)} is no handler of this queue: write @queue.recurring(...) above @queue.task(...)"
                )
            entry = make_entry(
                kind if name is None else name,
                expression,
                tz,
                self._make_job(kind, payload).with_options(queue=queue, priority=priority),
                catch_up=catch_up,
                within=catch_up_within,
                cap=catch_up_cap,
                overlap=overlap,
                now=datetime.now(UTC),
            )
            if entry.name in self.declared:
                raise RecurringError(f"recurring {entry.name!r} is declared twice: give one of them another name=")
            self.declared[entry.name] = entry
            return handler

        return declare

    async def add(
        self,
        name: str,
        expression: str,
        job: NewJob,
        *,
        tz: str = "UTC",
        catch_up: CatchUp = "last",
        catch_up_within: timedelta | float | None = None,
        catch_up_cap: int | None = None,
        overlap: Overlap = "allow",
        conn: AnyConnection | None = None,
    ) -> bool:
        """Enqueue *job* at each tick from now on, or change the entry of this name. Returns whether it was changed.

        The options are those of the decorator. Raises `RecurringError` before any SQL.
        """
        entry = make_entry(
            name,
            expression,
            tz,
            job,
            catch_up=catch_up,
            within=catch_up_within,
            cap=catch_up_cap,
            overlap=overlap,
            now=datetime.now(UTC),
        )
        async with self._on(conn) as used:
            return await self._store.declare_recurring(used, entry, is_code=False)

    async def remove(self, name: str, *, conn: AnyConnection | None = None) -> None:
        """Drop an entry for good. What its code declares comes back at the next start of a worker.

        Raises `JobqError` if there is none of this name.
        """
        async with self._on(conn) as used:
            if not await self._store.remove_recurring(used, name):
                raise unknown(name)

    async def pause(self, name: str, *, why: str, by: str | None = None, conn: AnyConnection | None = None) -> None:
        """Enqueue no tick any more, until `resume`, whatever is started meanwhile. *by* is this user if not stated.

        Raises `JobqError` if there is none of this name, or if it is paused.
        """
        if not why.strip():
            raise RecurringError(f"recurring {name!r}: say why it is paused, for whoever wonders later")
        async with self._on(conn) as used:
            if not await self._store.pause_recurring(used, name, by=by or _user(), why=why):
                found = await self._find(used, name)
                raise JobqError(f"recurring {name!r} is paused already, by {found.paused_by}: {found.paused_why}")

    async def resume(self, name: str, *, conn: AnyConnection | None = None) -> None:
        """Go on with the next tick; what came during the pause does not run.

        Raises `JobqError` if there is none of this name, or if it is not paused.
        """
        async with self._on(conn) as used:
            if not await self._store.resume_recurring(used, name):
                await self._find(used, name)
                raise JobqError(f"recurring {name!r} is not paused")

    async def run(self, name: str, *, conn: AnyConnection | None = None) -> JobId:
        """Enqueue the job of an entry now, beside its ticks, also while it is paused. Returns the job's id.

        Raises `JobqError` if there is none of this name, or if its runs must not overlap and one is unfinished.
        """
        async with self._on(conn) as used:
            job_id = await self._store.run_recurring(used, name)
            if job_id is None:
                found = await self._find(used, name)
                raise JobqError(
                    f"recurring {name!r} does not overlap, and job {found.last_job_id} of it is unfinished: see"
                    f" `jobq explain {found.last_job_id}`"
                )
            return job_id

    async def list(self, *, conn: AnyConnection | None = None) -> Sequence[EntryNow]:
        """Return how each entry stands, by name."""
        async with self._on(conn) as used:
            return await self._store.list_recurring(used)

    async def next(self, name: str, count: int = 20, *, conn: AnyConnection | None = None) -> Sequence[datetime]:
        """Return the next *count* ticks of an entry, by the database's clock, in its zone.

        Raises `JobqError` if there is none of this name, or if its expression cannot be read.
        """
        async with self._on(conn) as used:
            found = await self._find(used, name)
        schedule = Schedule(found.expression, found.zone)
        return [tick.astimezone(schedule.zone) for tick in islice(schedule.after(found.now), count)]

    async def _find(self, conn: AnyConnection, name: str) -> EntryNow:
        for entry in await self._store.list_recurring(conn):
            if entry.name == name:
                return entry
        raise unknown(name)

    @asynccontextmanager
    async def _on(self, conn: AnyConnection | None) -> AsyncIterator[AnyConnection]:
        if conn is not None:
            yield conn
        else:
            async with self._pools.lend() as own:
                yield own


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number that has no name
        return "unknown"


def unknown(name: str) -> JobqError:
    """Return the error about an entry that is not there."""
    return JobqError(f"there is no recurring entry {name!r}: `jobq cron list` shows those that there are")
