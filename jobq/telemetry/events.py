"""The closed list of things that happen in a worker. Logs and metrics are made from these.

An event carries ids and numbers, never a payload. Emitting one must not block and must not fail, and comes from the
event loop or from the heartbeat's thread. A *told* event is a line of the log; a *measured* one is only counted, and
stands for as many jobs as one round trip has moved, so that a worker at full speed does not pay for each. What is a
state rather than an event (slots busy, listener up) is read from the worker's memory when somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from jobq.core.counts import CountsByKind


class WorkerStarted(msgspec.Struct, frozen=True):
    """The worker has checked the database and begins to claim. *slots*, by queue, are those of each executor."""

    worker_id: UUID
    slots: dict[str, int]
    kinds: list[str]


class DuplicatesUnstated(msgspec.Struct, frozen=True):
    """These kinds do not say what a duplicate run does (`on_duplicate=`)."""

    kinds: list[str]


class SchemaNewer(msgspec.Struct, frozen=True):
    """The schema is newer than this code; it is compatible."""

    warning: str


class DrainStarted(msgspec.Struct, frozen=True):
    """The worker claims no more and waits for *running* jobs, at most *grace_s* seconds."""

    running: int
    grace_s: float


class DrainEnded(msgspec.Struct, frozen=True):
    """The drain is over. *cancelled* names the jobs for which the grace did not suffice, `KIND ID`; *after_s* is when.

    *finished* and *handed_back* count since the drain began; what was cancelled is not among them.
    """

    finished: int
    handed_back: int
    cancelled: list[str]
    after_s: float


class WorkerStopped(msgspec.Struct, frozen=True):
    """The worker has ended. The counts are since its start: *unsettled* is left to its lease, *lost* are leases."""

    exit_code: int
    finished: int
    handed_back: int
    unsettled: int
    lost: int = 0


class LifespanOverran(msgspec.Struct, frozen=True):
    """The lifespan did not close within *limit_s* seconds and was cancelled."""

    limit_s: float


class JobRetried(msgspec.Struct, frozen=True):
    """An attempt failed; the job is tried again in *delay_s* seconds. *note* says what is odd, or is empty."""

    id: int
    kind: str
    attempt: int
    error_type: str
    error_message: str
    delay_s: float
    note: str
    queue: str


class JobDied(msgspec.Struct, frozen=True):
    """A job became a dead letter."""

    id: int
    kind: str
    attempt: int
    reason: str
    error_type: str
    error_message: str
    queue: str


class JobSnoozed(msgspec.Struct, frozen=True):
    """A handler asked to come back in *delay_s* seconds, oddly (*note*)."""

    id: int
    kind: str
    delay_s: float
    note: str
    queue: str


class JobDone(msgspec.Struct, frozen=True):
    """A job is done; its handler ran for *run_ms*. Only while the log shows DEBUG."""

    id: int
    kind: str
    attempt: int
    run_ms: int
    queue: str


class JobReleased(msgspec.Struct, frozen=True):
    """A job was handed back, or snoozed for *delay_s* seconds. Only while the log shows DEBUG."""

    id: int
    kind: str
    attempt: int
    delay_s: float
    queue: str


class LeaseLost(msgspec.Struct, frozen=True):
    """An outcome matched no row: another attempt owns the job, or it is settled already. Nothing was written."""

    id: int
    kind: str
    attempt: int
    queue: str


class AttemptOverran(msgspec.Struct, frozen=True):
    """A handler ignores its cancellation, or blocks a thread past its time-out, and runs on unowned."""

    id: int
    kind: str
    ran_s: float
    blocks_thread: bool


class FailedAfterCompletion(msgspec.Struct, frozen=True):
    """A handler raised after its `job.transaction()` had committed: the job is done all the same."""

    id: int
    kind: str
    error_type: str
    error_message: str


class OutcomeNotStored(msgspec.Struct, frozen=True):
    """PostgreSQL refuses an outcome as it is; *replaced* says whether a plain record went in its place."""

    id: int
    kind: str
    error: str
    replaced: bool


class LoopBlocked(msgspec.Struct, frozen=True):
    """The event loop has not turned for *still_s* seconds; *id* and *kind* are those of the handler that holds it."""

    id: int | None
    kind: str | None
    location: str
    still_s: float


class LoopUnblocked(msgspec.Struct, frozen=True):
    """The event loop turns again, after *blocked_s* seconds."""

    blocked_s: float


class LeaseLapsed(msgspec.Struct, frozen=True):
    """No beat came through for as long as the worker's lease lasts: *running* jobs are cancelled and handed back.

    *cancelled* names them, `KIND ID`. Said again for jobs that a claim under way brings while the lease is lapsed.
    """

    running: int
    cancelled: list[str]


class WorkerReaped(msgspec.Struct, frozen=True):
    """A worker fell silent; its *jobs* were taken back."""

    silent_worker_id: UUID
    jobs: int


class JobReaped(msgspec.Struct, frozen=True):
    """A job was taken back from a worker that fell silent, or forgot it, during *attempt*."""

    id: int
    kind: str
    attempt: int


class StraysReleased(msgspec.Struct, frozen=True):
    """Jobs of a claim whose answer was never seen were handed back, attempt returned."""

    ids: list[int]


class DatabaseAway(msgspec.Struct, frozen=True):
    """A loop cannot reach the database, or not write to it. Said once an outage; it tries on."""

    loop: str
    error: str


class DatabaseBack(msgspec.Struct, frozen=True):
    """The loop works again, after *away_s* seconds."""

    loop: str
    away_s: float


class LoopCrashed(msgspec.Struct, frozen=True):
    """A loop raised what it did not expect: a bug. It is restarted, or the worker stops (*restarting* false)."""

    loop: str
    error_type: str
    error_message: str
    traceback: str
    restarting: bool


class HistoryLeftAlone(msgspec.Struct, frozen=True):
    """The oldest slot of history holds rows that are too young to be dropped; it is kept for another round."""


class ListenUnavailable(msgspec.Struct, frozen=True):
    """No notification comes through (*reason*): claim loops look every *poll_s* seconds. LISTEN is tried on."""

    reason: str
    poll_s: float


class ListenRestored(msgspec.Struct, frozen=True):
    """Notifications come through again."""


class OverviewFailed(msgspec.Struct, frozen=True):
    """How the whole queue stands cannot be read; `/metrics` shows the last reading. Said once until it can."""

    error: str


class PreparedStatementsLost(msgspec.Struct, frozen=True):
    """A pooler changes the server connection under prepared statements; what was asked is tried again."""

    error: str


class RecurringChanged(msgspec.Struct, frozen=True):
    """These recurring entries are new, or ask for something else than before: this worker's code declares them so."""

    names: list[str]


class RecurringCaughtUp(msgspec.Struct, frozen=True):
    """No worker was there at a tick: it runs *late_s* seconds late, and stands for *covered* earlier ones."""

    name: str
    tick: datetime
    late_s: float
    covered: int


class RecurringMissed(msgspec.Struct, frozen=True):
    """So many ticks should have run and did not, the last of them *tick*: too late now, by the entry's `catch_up`."""

    name: str
    tick: datetime
    missed: int


class RecurringSkipped(msgspec.Struct, frozen=True):
    """So many ticks, up to *tick*, gave way to a run that is unfinished, as the entry's `overlap` says."""

    name: str
    tick: datetime
    skipped: int


class RecurringFailed(msgspec.Struct, frozen=True):
    """An entry cannot be declared or looked at, or its *tick* not be enqueued. It is tried again, the others go on."""

    name: str
    tick: datetime | None
    error: str


class WakeUp(StrEnum):
    """Why a claim loop looked: `again` follows a claim that took all it might, so it was none."""

    AGAIN = "again"
    NOTIFICATION = "notification"
    POLL = "poll"
    BUSY_POLL = "busy_poll"
    LOOK_BEHIND = "look_behind"
    REAP = "reap"
    RECONNECT = "reconnect"


class ClaimAnswered(msgspec.Struct, frozen=True):
    """A claim of *queue* brought so many *jobs*, after *took_s* seconds."""

    queue: str
    source: WakeUp
    jobs: int
    took_s: float


class AttemptsSettled(msgspec.Struct, frozen=True):
    """Outcomes are written: how many of each, by queue and kind, of those that matched.

    *took_s* is how long the statement took; None if the handler's own transaction wrote it.
    """

    counts: CountsByKind
    took_s: float | None


class LoopTurned(msgspec.Struct, frozen=True):
    """The event loop came to a timer *lag_s* seconds late."""

    lag_s: float


Told = (
    WorkerStarted
    | DuplicatesUnstated
    | SchemaNewer
    | DrainStarted
    | DrainEnded
    | WorkerStopped
    | LifespanOverran
    | JobDone
    | JobReleased
    | JobRetried
    | JobDied
    | JobSnoozed
    | LeaseLost
    | AttemptOverran
    | FailedAfterCompletion
    | OutcomeNotStored
    | LoopBlocked
    | LoopUnblocked
    | LeaseLapsed
    | WorkerReaped
    | JobReaped
    | StraysReleased
    | DatabaseAway
    | DatabaseBack
    | LoopCrashed
    | HistoryLeftAlone
    | ListenUnavailable
    | ListenRestored
    | OverviewFailed
    | PreparedStatementsLost
    | RecurringChanged
    | RecurringCaughtUp
    | RecurringMissed
    | RecurringSkipped
    | RecurringFailed
)

Detailed = JobDone | JobReleased
"""Of what is told, this is made only if `log.tells_every_attempt()`: at 80,000 a second nobody else wants it."""

Measured = ClaimAnswered | AttemptsSettled | LoopTurned

Event = Told | Measured

Emit = Callable[[Event], None]
