"""Writes outcomes, in batches: the next batch is what came in while the last one was being written.

No timer, so a lone job is settled at once and a flood by the thousand. A batch is tried until the database has
said of each job whether it matched; a success never turns into a failure because the database was away. One
outcome that PostgreSQL refuses does not hold up the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from jobq.core.counts import CountsByKind, count
from jobq.core.failure import Failure, plain
from jobq.core.job import ClaimedJob, JobId, WorkerId
from jobq.core.outcomes import Dead, Done, Outcome, Released, Retry
from jobq.db.connect import Link
from jobq.db.store import Owned, Store
from jobq.errors import ConflictError, DatabaseError, DatabaseUnavailableError
from jobq.telemetry.events import (
    Emit,
    JobDied,
    JobDone,
    JobReleased,
    JobRetried,
    JobSnoozed,
    LeaseLost,
    OutcomeNotStored,
)
from jobq.telemetry.log import tells_every_attempt
from jobq.telemetry.measured import AttemptsSettled
from jobq.worker.faults import Point, reach
from jobq.worker.pulse import Pulse

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection

MAX_BATCH = 1000
"""Outcomes in one statement: a second's worth at most, so that locks are held for milliseconds."""

MAX_BACKLOG = 4 * MAX_BATCH
"""Unwritten outcomes above which the worker claims no more: work done twice if it died now."""


class Settlement(msgspec.Struct, frozen=True):
    """One outcome to write. *run_ms* is how long the handler ran."""

    claimed: ClaimedJob
    outcome: Outcome
    run_ms: int


class Settler:
    """The one loop of a worker that writes outcomes."""

    def __init__(self, *, store: Store, link: Link, worker_id: WorkerId, emit: Emit) -> None:
        self._store = store
        self._link = link
        self._worker_id = worker_id
        self._emit = emit
        self.pulse = Pulse("settling", bound_s=link.patience_s, emit=emit)
        self._waiting: dict[type[Outcome], list[Settlement]] = {Done: [], Retry: [], Dead: [], Released: []}
        self._more = asyncio.Event()
        self._less = asyncio.Event()
        self.given_up: list[JobId] = []
        """Jobs whose outcomes PostgreSQL has refused for good: they are left to their lease, which counts and tells."""

    @property
    def unwritten(self) -> list[ClaimedJob]:
        """The jobs whose outcomes are not written yet. May be asked from another thread."""
        return [one.claimed for waiting in self._waiting.values() for one in list(waiting)]

    @property
    def backlog(self) -> int:
        """How many outcomes are not written yet."""
        return sum(map(len, self._waiting.values()))

    def put(self, settlement: Settlement) -> None:
        """Take an outcome over; from now on it is this loop's to write."""
        self._waiting[type(settlement.outcome)].append(settlement)
        self._more.set()

    async def wait_room(self) -> None:
        """Wait until the backlog allows more claims."""
        while self.backlog > MAX_BACKLOG:
            self._less.clear()
            await self._less.wait()

    async def wait_settled(self) -> None:
        """Wait until every outcome is written."""
        while self.backlog:
            self._less.clear()
            await self._less.wait()

    async def run(self) -> None:
        """Write outcomes until cancelled."""
        while True:
            self._more.clear()
            for waiting in self._waiting.values():
                while waiting:
                    batch = waiting[:MAX_BATCH]
                    await self._settle(batch)
                    del waiting[: len(batch)]
                    self._less.set()
            self.pulse.rest()
            await self._more.wait()
            self.pulse.begin()

    async def _settle(self, batch: Sequence[Settlement]) -> None:
        while True:
            await reach(Point.BEFORE_SETTLE)
            try:
                async with self._link.lend() as conn:
                    sent_at = time.monotonic()
                    matched = await write_outcomes(self._store, conn, self._worker_id, batch)
                    took_s = time.monotonic() - sent_at
            except (DatabaseUnavailableError, ConflictError) as error:
                await self.pulse.pause(error)
            except DatabaseError as error:
                self.pulse.worked()
                await self._settle_refused(batch, error)
                return
            else:
                self.pulse.worked()
                tell(self._emit, batch, matched, took_s=took_s)
                return

    async def _settle_refused(self, batch: Sequence[Settlement], error: DatabaseError) -> None:
        """Settle one by one what was refused as a batch; replace or give up the one that is to blame."""
        if len(batch) > 1:
            for one in batch:
                await self._settle([one])
            return
        (one,) = batch
        replacement = _plain_record(one, error)
        said = str(error).partition("\nDETAIL:")[0]  # the detail quotes the row, and its payload
        self._emit(OutcomeNotStored(one.claimed.id, one.claimed.kind, said, replacement is not None))
        if replacement is None:
            self.given_up.append(one.claimed.id)
        else:
            await self._settle([replacement])


def tell(emit: Emit, batch: Sequence[Settlement], matched: set[JobId], *, took_s: float | None) -> None:
    """Emit what became of a batch whose outcomes are written: of all together, and of single jobs what there is to say.

    Those that have not *matched* are lost leases.
    """
    counts: CountsByKind = {}
    tells_all = tells_every_attempt()
    for one in batch:
        if one.claimed.id not in matched:
            emit(LeaseLost(one.claimed.id, one.claimed.kind, one.claimed.attempt, one.claimed.queue))
            continue
        count(counts, one.claimed, one.outcome, one.run_ms)
        if tells_all or type(one.outcome) is not Done:
            _tell_one(emit, one, tells_all=tells_all)
    emit(AttemptsSettled(counts, took_s))


def _tell_one(emit: Emit, one: Settlement, *, tells_all: bool) -> None:
    claimed = one.claimed
    job_id, kind, attempt, queue = claimed.id, claimed.kind, claimed.attempt, claimed.queue
    match one.outcome:
        case Retry(failure, delay_s, note):
            emit(JobRetried(job_id, kind, attempt, failure.type, failure.message, delay_s, note, queue))
        case Dead(failure, reason, started):
            attempts = attempt if started else attempt - 1
            emit(JobDied(job_id, kind, attempts, reason, failure.type, failure.message, queue))
        case Released(delay_s, note) if note:
            emit(JobSnoozed(job_id, kind, delay_s, note, queue))
        case Released(delay_s) if tells_all:
            emit(JobReleased(job_id, kind, attempt, delay_s, queue))
        case Done() if tells_all:
            emit(JobDone(job_id, kind, attempt, one.run_ms, queue))
        case _:
            pass


async def write_outcomes(
    store: Store, conn: AnyConnection, worker_id: WorkerId, batch: Sequence[Settlement]
) -> set[JobId]:
    """Write outcomes of one type. Returns the jobs that matched; the others are lost leases."""
    owned = [Owned(one.claimed.id, one.claimed.fence) for one in batch]
    outcomes = [one.outcome for one in batch]
    match outcomes[0]:
        case Done():
            return await store.settle_done(conn, worker_id, owned, [one.run_ms for one in batch])
        case Released():
            releases = [outcome for outcome in outcomes if isinstance(outcome, Released)]
            return await store.settle_released(
                conn,
                worker_id,
                owned,
                [release.delay_s for release in releases],
                [None if release.record is None else _as_json(release.record) for release in releases],
            )
        case Retry():
            retries = [outcome for outcome in outcomes if isinstance(outcome, Retry)]
            return await store.settle_retry(
                conn,
                worker_id,
                owned,
                [retry.delay_s for retry in retries],
                [_as_json(retry.failure) for retry in retries],
            )
        case Dead():
            deaths = [outcome for outcome in outcomes if isinstance(outcome, Dead)]
            return await store.settle_dead(
                conn,
                worker_id,
                owned,
                [death.started for death in deaths],
                [death.reason for death in deaths],
                [_as_json(death.failure) for death in deaths],
            )


_UNSTORABLE = "the error of this attempt could not be stored"


def _plain_record(one: Settlement, error: DatabaseError) -> Settlement | None:
    """Return *one* with a plain failure in place of the one that was refused, or None if it has none to replace."""
    failure = plain(f"{_UNSTORABLE}: {type(error).__name__}")
    match one.outcome:
        case Retry(refused, delay_s, note) if refused.message != failure.message:
            failure = msgspec.structs.replace(failure, redact=refused.redact)
            return msgspec.structs.replace(one, outcome=Retry(failure, delay_s, note))
        case Dead(refused, reason, started) if refused.message != failure.message:
            failure = msgspec.structs.replace(failure, redact=refused.redact)
            return msgspec.structs.replace(one, outcome=Dead(failure, reason, started))
        case _:
            return None


def _as_json(failure: Failure) -> str:
    return msgspec.json.encode(failure).decode()
