"""The records of a job: as enqueued, as claimed, as answered. Plain data; the rules live beside them.

They hold no containers, so no cycle can go through them: `gc=False` spares the collector a hundred thousand of them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NewType
from uuid import UUID

import msgspec

JobId = NewType("JobId", int)
WorkerId = NewType("WorkerId", UUID)

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 5
PRIORITIES = range(10)


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that is not enqueued yet: what `handler.bind(...)` returns and `enqueue_many` takes.

    *payload* is the encoded JSON object, already checked; *home* the queue of the handler. `None` means "not
    stated": the queue is then *home*, the priority 5, the time now, the limit of attempts the handler's.
    """

    kind: str
    payload: bytes
    home: str | None
    queue: str | None = None
    run_at: datetime | timedelta | None = None
    priority: int | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None

    def with_options(
        self,
        *,
        queue: str | None = None,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
    ) -> NewJob:
        """Return this job with what is not stated yet filled in; what it states already stays."""
        if (queue, run_at, priority, idempotency_key, max_attempts) == (None, None, None, None, None):
            return self
        return NewJob(
            kind=self.kind,
            payload=self.payload,
            home=self.home,
            queue=queue if self.queue is None else self.queue,
            run_at=run_at if self.run_at is None else self.run_at,
            priority=priority if self.priority is None else self.priority,
            idempotency_key=idempotency_key if self.idempotency_key is None else self.idempotency_key,
            max_attempts=max_attempts if self.max_attempts is None else self.max_attempts,
        )


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """One job as the statements take it: validated, encoded, every default filled in.

    *run_at* is ISO 8601 with an offset, *delay_s* counts from the database's now; both None means now. *immediate*
    says that it may be ready as soon as it is committed, by the producer's clock: whether to wake somebody.
    """

    kind: str
    payload: str
    queue: str
    run_at: str | None
    delay_s: float | None
    priority: int
    idempotency_key: str | None
    max_attempts: int | None
    immediate: bool = True

    @property
    def payload_bytes(self) -> int:
        """How long the payload is in UTF-8."""
        return len(self.payload) if self.payload.isascii() else len(self.payload.encode())


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What an enqueue answers: the job's id, and whether this call created it.

    `created` is false when the idempotency key was already taken: `id` is then the earlier job's.
    """

    id: JobId
    created: bool


class ClaimedJob(msgspec.Struct, frozen=True, gc=False):
    """One claimed row, in the order of the columns that `claim_jobs.sql` returns.

    *payload* and *headers* are JSON text; *fence* is the number that every write about this attempt
    must prove. Times are the database's.
    """

    id: JobId
    queue: str
    kind: str
    priority: int
    run_at: datetime
    payload: str
    attempt: int
    crashes: int
    max_attempts: int | None
    fence: int
    enqueued_at: datetime
    headers: str | None
    lone_crashes: int = 0
