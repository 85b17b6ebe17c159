"""Redrive and delete dead letters, one by one or in bulk: the same code for `queue.redrive` and `jobq dead`.

In bulk, each page is a transaction of its own: what was done stays done if the command dies, and running it
again goes on. Never "all" by accident: a filter that states nothing is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from jobq.core.job import JobId
from jobq.db.connect import driver_errors
from jobq.db.reports import DeadFilter, Reports
from jobq.db.store import Redriven, Store
from jobq.errors import ConfigurationError

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection

PAGE = 500
"""Dead letters in one transaction."""


class RedriveReport(msgspec.Struct, frozen=True):
    """What a redrive did. *held* are those that stay, because a newer job holds their idempotency key."""

    redriven: int
    held: tuple[Redriven, ...] = ()


class DeadLetters:
    """The dead letters of one schema."""

    def __init__(self, schema: str) -> None:
        self._store = Store(schema)
        self._reports = Reports(schema)

    async def redrive(self, conn: AnyConnection, wanted: DeadFilter) -> RedriveReport:
        """Make the dead letters that match ready again: same id, no attempts used, errors kept.

        Raises `ConfigurationError` if *wanted* states nothing.
        """
        redriven, held = 0, []
        async for ids in self._pages(conn, wanted):
            with driver_errors():
                async with conn.transaction():
                    done = await self._store.redrive_jobs(conn, ids)
                    moved = [one for one in done if one.owner_id == one.id]
                    await self._store.notify_sleepers(conn, sorted({one.queue for one in moved}))
            redriven += len(moved)
            held += [one for one in done if one.owner_id != one.id]
        return RedriveReport(redriven, tuple(held))

    async def delete(self, conn: AnyConnection, wanted: DeadFilter) -> int:
        """Drop the dead letters that match, for good. Returns how many.

        Raises `ConfigurationError` if *wanted* states nothing.
        """
        deleted = 0
        async for ids in self._pages(conn, wanted):
            deleted += len(await self._store.delete_dead_letters(conn, ids))
        return deleted

    async def _pages(self, conn: AnyConnection, wanted: DeadFilter) -> AsyncIterator[list[JobId]]:
        if wanted.is_empty:
            raise ConfigurationError(
                "which dead letters? state ids, a kind, a queue, a fingerprint or an age (older than 0 seconds is all)"
            )
        # What dies while this runs has an id passed already, or one above `upto`: it is not met again.
        _, upto = await self._reports.count_dead(conn, wanted)
        after = JobId(0)
        while ids := await self._reports.page_dead_ids(conn, wanted, after=after, upto=upto, limit=PAGE):
            yield ids
            after = ids[-1]
