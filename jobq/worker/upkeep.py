"""What a worker does now and then for the schema: give back old history, forget lapsed keys and sleepers."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import anyio

from jobq.db.connect import Link
from jobq.db.store import Store
from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.telemetry.events import Emit, HistoryLeftAlone
from jobq.worker.pulse import Pulse

ROWS_A_PAGE = 5000

ROUND_S = 300.0
"""How long one round may take; it is short statements, but possibly many."""

_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Upkeep:
    """The retention loop. Every worker has one; what two do at once does no harm."""

    def __init__(self, *, store: Store, link: Link, every_s: float, emit: Emit) -> None:
        self._store = store
        self._link = link
        self._every_s = every_s
        self._emit = emit
        self.pulse = Pulse("upkeep", bound_s=ROUND_S, emit=emit)

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
            else:
                self.pulse.worked()

    async def tidy(self) -> None:
        """Do one round."""
        async with self._link.lend() as conn:
            if await self._store.empty_oldest_slot(conn) is None:
                self._emit(HistoryLeftAlone())
        async with self._link.lend() as conn:
            await self._store.purge_sleepers(conn)
        purged = ROWS_A_PAGE
        while purged == ROWS_A_PAGE:
            async with self._link.lend() as conn:
                purged = await self._store.purge_kind_stats(conn, ROWS_A_PAGE)
        after: datetime | None = _BEGINNING
        seen = ROWS_A_PAGE
        while seen == ROWS_A_PAGE and after is not None:
            async with self._link.lend() as conn:
                seen, after = await self._store.purge_keys(conn, after, ROWS_A_PAGE)
