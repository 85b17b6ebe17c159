"""The closed list of things that happen in a worker. Logs are made from these, and from nothing else.

An event carries ids and numbers, never a payload. Emitting one must not block and must not fail, and comes from the
event loop or from the heartbeat's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec


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

    message: str


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


class JobDied(msgspec.Struct, frozen=True):
    """A job became a dead letter."""

    id: int
    kind: str
    attempt: int
    reason: str
    error_type: str
    error_message: str


class JobSnoozed(msgspec.Struct, frozen=True):
    """A handler asked to come back in *delay_s* seconds, oddly (*note*)."""

    id: int
    kind: str
    delay_s: float
    note: str


class LeaseLost(msgspec.Struct, frozen=True):
    """An outcome matched no row: another attempt owns the job, or it is settled already. Nothing was written."""

    id: int
    kind: str
    attempt: int


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

    worker_id: UUID
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


class PreparedStatementsLost(msgspec.Struct, frozen=True):
    """A pooler changes the server connection under prepared statements; what was asked is tried again."""

    error: str


Event = (
    WorkerStarted
    | DuplicatesUnstated
    | SchemaNewer
    | DrainStarted
    | DrainEnded
    | WorkerStopped
    | LifespanOverran
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
    | PreparedStatementsLost
)

Emit = Callable[[Event], None]
