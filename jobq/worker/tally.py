"""Counts what became of attempts, and writes the counts now and then: what `jobq stats` shows of each kind."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import anyio

from jobq.core.counts import CountsByKind, EndCounts, merge
from jobq.core.job import WorkerId
from jobq.db.connect import Link
from jobq.db.store import KindCount, Store
from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.telemetry.events import Emit
from jobq.worker.pulse import Pulse


class Tally:
    """The counts of one worker since they were written last."""

    def __init__(self, *, store: Store, link: Link, worker_id: WorkerId, every_s: float, emit: Emit) -> None:
        self._store = store
        self._link = link
        self._worker_id = worker_id
        self._every_s = every_s
        self.pulse = Pulse("tally", bound_s=every_s + link.patience_s, emit=emit)
        self._counts: CountsByKind = {}
        self._turn = threading.Lock()

    def add(self, counts: Mapping[tuple[str, str], EndCounts]) -> None:
        """Count outcomes that are written. From the event loop and from the side thread."""
        with self._turn:
            merge(self._counts, counts)

    async def run(self) -> None:
        """Write the counts once a period until cancelled."""
        while True:
            await anyio.sleep(self._every_s)
            try:
                await self.write()
            except (DatabaseUnavailableError, ConflictError) as error:
                await self.pulse.pause(error)
            else:
                self.pulse.worked()

    async def write(self) -> None:
        """Write what has been counted. What cannot be written is kept and written later."""
        with self._turn:
            taken, self._counts = self._counts, {}
        rows = [
            KindCount(queue, kind, counts.done, counts.retried, counts.dead, counts.durations)
            for (queue, kind), counts in taken.items()
            if counts.done or counts.retried or counts.dead
        ]
        if not rows:
            return
        try:
            async with self._link.lend() as conn:
                await self._store.record_kind_stats(conn, self._worker_id, rows)
        except BaseException:
            self.add(taken)
            raise
