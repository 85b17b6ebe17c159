"""Counts what became of attempts, and writes the counts now and then: what `jobq stats` shows of each kind."""

from __future__ import annotations

import anyio
import msgspec

from jobq.core.histogram import bucket_of
from jobq.core.job import ClaimedJob, WorkerId
from jobq.core.outcomes import Dead, Done, Outcome, Released, Retry
from jobq.db.connect import Link
from jobq.db.store import KindCount, Store
from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.telemetry.events import Emit
from jobq.worker.pulse import Pulse


class _Counts(msgspec.Struct):
    done: int = 0
    retried: int = 0
    dead: int = 0
    durations: dict[int, int] = msgspec.field(default_factory=dict)


class Tally:
    """The counts of one worker since they were written last."""

    def __init__(self, *, store: Store, link: Link, worker_id: WorkerId, every_s: float, emit: Emit) -> None:
        self._store = store
        self._link = link
        self._worker_id = worker_id
        self._every_s = every_s
        self.pulse = Pulse("tally", bound_s=every_s + link.patience_s, emit=emit)
        self._counts: dict[tuple[str, str], _Counts] = {}

    def add(self, claimed: ClaimedJob, outcome: Outcome, run_ms: int) -> None:
        """Count one settled outcome."""
        if type(outcome) is Released:
            return
        counts = self._counts.get((claimed.queue, claimed.kind))
        if counts is None:
            counts = self._counts[claimed.queue, claimed.kind] = _Counts()
        match outcome:
            case Done():
                counts.done += 1
            case Retry():
                counts.retried += 1
            case Dead():
                counts.dead += 1
                if not outcome.started:
                    return  # no handler ran, so there is no duration
        bucket = bucket_of(run_ms)
        counts.durations[bucket] = counts.durations.get(bucket, 0) + 1

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
        taken, self._counts = self._counts, {}
        rows = [
            KindCount(queue, kind, counts.done, counts.retried, counts.dead, counts.durations)
            for (queue, kind), counts in taken.items()
        ]
        if not rows:
            return
        try:
            async with self._link.lend() as conn:
                await self._store.record_kind_stats(conn, self._worker_id, rows)
        except BaseException:
            self._put_back(taken)
            raise

    def _put_back(self, taken: dict[tuple[str, str], _Counts]) -> None:
        for key, old in taken.items():
            counts = self._counts.setdefault(key, _Counts())
            counts.done += old.done
            counts.retried += old.retried
            counts.dead += old.dead
            for bucket, number in old.durations.items():
                counts.durations[bucket] = counts.durations.get(bucket, 0) + number
