"""What a worker does now and then for the schema: give back old history, forget lapsed keys, sleepers, incidents."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio

from jobq.db.connect import Link
from jobq.db.incidents import Incidents
from jobq.db.pages import Pages
from jobq.db.store import Store
from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.telemetry.events import Emit, HistoryLeftAlone
from jobq.worker.pulse import Pulse

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection

ROWS_A_PAGE = 5000

_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Upkeep:
    """The retention loop. Every worker has one; what two do at once does no harm.

    A page is a turn of its pulse: a round may be long after a neglect, and is alive all the while.
    """

    def __init__(self, *, store: Store, link: Link, every_s: float, emit: Emit) -> None:
        self._store = store
        self._incidents = Incidents(store.schema)
        self._link = link
        self._every_s = every_s
        self._emit = emit
        self._pages = Pages(link, ROWS_A_PAGE)
        self.pulse = Pulse("upkeep", bound_s=link.patience_s, emit=emit)

    async def run(self) -> None:
        """Tidy up soon after the start and then once a period, until cancelled."""
        while True:
            self.pulse.rest()
            # Jittered, so that workers started together do not come together.
            await anyio.sleep(self._every_s * random.uniform(0.5, 1.0))
            self.pulse.begin()
            try:
                await self.tidy()
            except (DatabaseUnavailableError, ConflictError) as error:
                await self.pulse.pause(error)

    async def tidy(self) -> None:
        """Do one round."""
        async with self._link.lend() as conn:
            if await self._store.empty_oldest_slot(conn) is None:
                self._emit(HistoryLeftAlone())
        await self._purge(self._store.purge_sleepers)
        await self._purge(self._store.purge_kind_stats)
        await self._purge(self._incidents.purge_incidents)
        after = _BEGINNING

        async def purge_keys(conn: AnyConnection, limit: int) -> int:
            nonlocal after
            seen, last = await self._store.purge_keys(conn, after, limit)
            after = last or after
            return seen

        await self._purge(purge_keys)

    async def _purge(self, purge: Callable[[AnyConnection, int], Awaitable[int]]) -> None:
        async for purged in self._pages.each(purge):
            if purged is None:
                self.pulse.begin()
            else:
                self.pulse.worked()
