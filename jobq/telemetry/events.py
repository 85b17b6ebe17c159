"""The closed list of things that happen in a worker. Logs and metrics are made from these.

An event carries ids and numbers, never a payload. Emitting one must not block and must not fail, and comes from the
event loop or from the heartbeat's thread. A *told* event is a line of the log; a *measured* one (`measured.py`) is only
counted, and stands for as many jobs as one round trip has moved, so that a worker at full speed does not pay for each.
What is a state rather than an event (slots busy, listener up) is read from the worker's memory when somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from jobq.telemetry.measured import Measured
from jobq.telemetry.recurring import RecurringEvent


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


class JobSlow(msgspec.Struct, frozen=True):
    """An attempt has run for *ran_s* seconds, which is far above what is usual for its kind. Said once an attempt.

    *usual_s* is what 99 % of the kind's attempts did not exceed lately, None if too few are known: then half of the
    time-out is over. *location* is the line of the application at which the handler stands.
    """

    id: int
    kind: str
    attempt: int
    ran_s: float
    usual_s: float | None
    location: str
    queue: str


class SlotsStuck(msgspec.Struct, frozen=True):
    """All slots have been busy for *still_s* seconds and nothing finished. Said once until something does.

    *oldest* names the three oldest attempts, `KIND ID at LINE`. What ended by its time-out does not count as finished.
    """

    queue: str
    executor: str
    slots: int
    still_s: float
    oldest: list[str]


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


class SuspectsHandedBack(msgspec.Struct, frozen=True):
    """These jobs may run only alone, and found no quiet moment within *waited_s* seconds: what runs here took longer.

    *suspects* and *running*, the oldest few, are named `KIND ID`; *unwritten* is the number of outcomes.
    """

    suspects: list[str]
    waited_s: float
    running: list[str]
    unwritten: int


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


class AlertTold(msgspec.Struct, frozen=True):
    """A hook was told of incidents, *subjects* being kinds if *what* is `dead`, and queues if it is `backlog`."""

    hook: str
    what: str
    subjects: list[str]


class AlertFailed(msgspec.Struct, frozen=True):
    """A hook raised, or took too long: any worker tells it again, in *again_in_s* seconds. *tries* counts the calls."""

    hook: str
    what: str
    subjects: list[str]
    tries: int
    error_type: str
    error_message: str
    traceback: str
    again_in_s: float


class AlertsHalted(msgspec.Struct, frozen=True):
    """What a hook is to be told cannot be read, or not be written down. Said once until it can; the worker tries on."""

    hook: str
    error: str


class PreparedStatementsLost(msgspec.Struct, frozen=True):
    """A pooler changes the server connection under prepared statements; what was asked is tried again."""

    error: str


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
    | JobSlow
    | SlotsStuck
    | LeaseLapsed
    | WorkerReaped
    | JobReaped
    | StraysReleased
    | SuspectsHandedBack
    | DatabaseAway
    | DatabaseBack
    | LoopCrashed
    | HistoryLeftAlone
    | ListenUnavailable
    | ListenRestored
    | OverviewFailed
    | AlertTold
    | AlertFailed
    | AlertsHalted
    | PreparedStatementsLost
    | RecurringEvent
)

Detailed = JobDone | JobReleased
"""Of what is told, this is made only if `log.tells_every_attempt()`: at 80,000 a second nobody else wants it."""

Event = Told | Measured

Emit = Callable[[Event], None]
