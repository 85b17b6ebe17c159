"""From what a caller says to rows: every check of an enqueue, before any SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from jobq.core.job import DEFAULT_PRIORITY, PRIORITIES, JobRow, NewJob
from jobq.core.names import idempotency_key_fault, kind_fault, queue_fault, shown
from jobq.errors import EnqueueError, UnknownKindError

FARTHEST = timedelta(days=3660)
"""Ten years: a `run_at` beyond it is milliseconds taken for seconds, or a placeholder for never."""

CHUNK_JOBS = 10_000
CHUNK_BYTES = 8 * 1024 * 1024
"""One statement of a bulk enqueue carries at most this: memory on both sides stays bounded."""

LONGEST_ANSWER_S = 366 * 86_400.0


def make_row(job: NewJob, *, now: datetime) -> JobRow:
    """Check *job* and fill in the defaults. *now* only bounds a far `run_at`; the database's clock decides.

    Raises `EnqueueError` with the field, the value and the remedy.
    """
    if fault := kind_fault(job.kind):
        raise EnqueueError(fault, field="kind", value=job.kind)
    queue = job.home if job.queue is None else job.queue
    if queue is None:
        raise UnknownKindError(
            f"kind {job.kind!r} has no handler here, so its queue is not known: pass queue='...', or import the module"
            " that registers it",
            field="queue",
        )
    if fault := queue_fault(queue):
        raise EnqueueError(fault, field="queue", value=queue)
    priority = DEFAULT_PRIORITY if job.priority is None else job.priority
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        raise EnqueueError(
            f"priority is {shown(priority)}; it is 0 (first) to 9 (last), 5 by default",
            field="priority",
            value=priority,
        )
    key = job.idempotency_key
    if key is not None and (fault := idempotency_key_fault(key)):
        raise EnqueueError(fault, field="idempotency_key", value=key)
    limit = job.max_attempts
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit < 2**31):
        raise EnqueueError(
            f"max_attempts is {shown(limit)}; it counts all starts, so it is 1 or more",
            field="max_attempts",
            value=limit,
        )
    run_at, delay_s, immediate = _due(job.run_at, now)
    return JobRow(
        job.kind,
        job.payload.decode(),
        queue,
        run_at,
        delay_s,
        priority,
        key,
        limit,
        immediate,
    )


def _due(run_at: datetime | timedelta | None, now: datetime) -> tuple[str | None, float | None, bool]:
    match run_at:
        case None:
            return None, None, True
        case timedelta():
            if abs(run_at) > FARTHEST:
                raise _refused(run_at, "is more than ten years away; pass a nearer time")
            return None, run_at.total_seconds(), run_at <= timedelta(0)
        case datetime():
            if run_at.utcoffset() is None:
                raise _refused(run_at, "has no time zone; use datetime.now(UTC) or .replace(tzinfo=...)")
            try:
                at = run_at.astimezone(UTC)
            except (OverflowError, ValueError) as error:
                raise _refused(run_at, f"is no possible time ({error}); pass one between 1 and 9999 in UTC") from error
            if at - now > FARTHEST:
                raise _refused(run_at, "is more than ten years away (milliseconds taken for seconds?)")
            return at.isoformat(), None, at <= now
        case _:
            raise _refused(run_at, "is neither a datetime with a time zone nor a timedelta from now")


def _refused(run_at: object, why: str) -> EnqueueError:
    return EnqueueError(f"run_at {shown(run_at)} {why}", field="run_at", value=run_at)


def answer_seconds(idempotency_for: timedelta | float) -> float:
    """Return for how many seconds an idempotency key answers. Raises `EnqueueError` unless 0 to a year."""
    seconds = idempotency_for.total_seconds() if isinstance(idempotency_for, timedelta) else idempotency_for
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= LONGEST_ANSWER_S:
        raise EnqueueError(
            f"idempotency_for is {shown(idempotency_for)}; pass 0 seconds to a year, as a number or timedelta",
            field="idempotency_for",
            value=idempotency_for,
        )
    return float(seconds)


def chunks(rows: Sequence[JobRow]) -> Iterator[slice]:
    """Cut *rows* into pieces of at most `CHUNK_JOBS` jobs and about `CHUNK_BYTES` of payload."""
    start, size = 0, 0
    for position, row in enumerate(rows):
        if position > start and (position - start == CHUNK_JOBS or size + row.payload_bytes > CHUNK_BYTES):
            yield slice(start, position)
            start, size = position, 0
        size += row.payload_bytes
    if rows:
        yield slice(start, len(rows))
