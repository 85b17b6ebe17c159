"""How an attempt ended, and what becomes of its job: the one rule that every attempt goes through.

`judge` gets everything it needs, chance included, and touches nothing. The executor says how the
attempt ended, the settler writes the outcome.
"""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never, final

import msgspec

from jobq.core.failure import Failure, describe, leaves, plain
from jobq.core.job import ClaimedJob
from jobq.core.names import shown
from jobq.core.redaction import cover_values
from jobq.core.retry import Backoff, asked_delay_s
from jobq.errors import PayloadError, Permanent, RetryAfter


class Snooze(msgspec.Struct, frozen=True):
    """A handler's answer: not now, come back after *delay* (seconds or `timedelta`, at most 30 days).

    It uses no attempt. An unusable delay is replaced by the kind's first backoff and logged.
    """

    delay: float | timedelta


# -- how an attempt ended ----------------------------------------------------------------------------


class Returned(msgspec.Struct, frozen=True):
    """The handler returned *answer*: `Snooze`, or anything else, which means done."""

    answer: object


class Raised(msgspec.Struct, frozen=True):
    """The handler raised *error*, of any kind, `SystemExit` and its like included."""

    error: BaseException


class TimedOut(msgspec.Struct, frozen=True):
    """The attempt was cancelled because it ran longer than its kind's time-out."""

    after_s: float


class Unfit(msgspec.Struct, frozen=True):
    """The payload does not fit the handler's signature; the handler was not called."""

    error: PayloadError


class Interrupted(msgspec.Struct, frozen=True):
    """The worker took the attempt back before it came to an end of its own: `DRAINED` or `LEASE_LAPSED`.

    *started* is false when the handler had not been called yet.
    """

    reason: Failure
    started: bool = True


class Killer(msgspec.Struct, frozen=True):
    """The claim found that the job has killed its worker too often; the handler was not called."""


class UsedUp(msgspec.Struct, frozen=True):
    """The claim found all attempts used already; the handler was not called."""


Ended = Returned | Raised | TimedOut | Unfit | Interrupted | Killer | UsedUp


# -- what becomes of the job -------------------------------------------------------------------------


class Done(msgspec.Struct, frozen=True):
    """The job is finished."""


class Retry(msgspec.Struct, frozen=True):
    """The attempt failed; the job waits *delay_s* seconds and is tried again.

    *note* says what is odd about the delay, or is empty.
    """

    failure: Failure
    delay_s: float
    note: str = ""


class Dead(msgspec.Struct, frozen=True):
    """The job failed for good. *started* is false when the handler was never called for this claim."""

    failure: Failure
    reason: str
    started: bool = True


@final
class Released(msgspec.Struct, frozen=True):
    """The attempt is given back and the job waits *delay_s* seconds: a `Snooze`, or 0 for what the worker took back.

    *record* says why a job runs again that has run already; None if it has not, or has asked for it.
    """

    delay_s: float = 0.0
    note: str = ""
    record: Failure | None = None


Outcome = Done | Retry | Dead | Released

DONE = Done()

PERMANENT = "permanent failure"
USED_UP = "attempts used up"
UNFIT = "payload does not fit the handler"
KILLER = "killed its worker"

DRAINED = plain("the worker was stopped and the grace was over; the attempt was returned", type="Drained")
LEASE_LAPSED = plain("the worker could not renew its lease in time; the attempt was returned", type="LeaseLapsed")

RELEASES = frozenset({DRAINED.type, LEASE_LAPSED.type})
"""The types of the records that stand among a job's errors and are no failures."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """What a kind's registration says about failures."""

    max_attempts: int = 10
    max_crashes: int = 3
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    backoff: Backoff = Backoff()
    redact: tuple[str, ...] = ()
    """Paths of payload fields whose values are covered in whatever is told of a failure."""


def tell_failure(job: ClaimedJob, error: BaseException, policy: RetryPolicy) -> Failure:
    """Describe the *error* of an attempt, with the values of redacted fields covered."""
    return describe(error, cover=cover_values(job.payload, policy.redact))


def judge(job: ClaimedJob, ended: Ended, policy: RetryPolicy, *, draw: float) -> Outcome:
    """Say what becomes of *job* after its attempt *ended*. Touches nothing.

    *draw* is a uniform random number in [0, 1) for the jitter.
    """
    outcome = _judge(job, ended, policy, draw)
    if not policy.redact:
        return outcome
    # Whoever shows the job later may not know its kind: the names of the fields go with the record.
    match outcome:
        case Retry() | Dead():
            failure = msgspec.structs.replace(outcome.failure, redact=policy.redact)
            return msgspec.structs.replace(outcome, failure=failure)
        case Released(record=Failure() as record):
            return msgspec.structs.replace(outcome, record=msgspec.structs.replace(record, redact=policy.redact))
        case _:
            return outcome


def _judge(job: ClaimedJob, ended: Ended, policy: RetryPolicy, draw: float) -> Outcome:
    match ended:
        case Returned(None):  # nearly always; a class pattern that does not match is dear
            return DONE
        case Returned(Snooze(delay)):
            return _snooze(delay, policy, draw)
        case Returned():
            return DONE
        case Interrupted(reason, started):
            return Released(record=reason if started else None)
        case Unfit(error):
            return Dead(tell_failure(job, error, policy), UNFIT, started=False)
        case UsedUp():
            return Dead(plain(f"{attempts_allowed(job, policy)} attempts were used before this claim"), USED_UP, False)
        case Killer():
            times = f"killed its worker {job.crashes} time{'s' * (job.crashes != 1)}, the last time while it ran alone"
            return Dead(plain(times, type="WorkerLost"), KILLER, started=False)
        case TimedOut(after_s):
            return _fail(job, plain(f"timed out after {after_s:g} s", type="TimeoutError"), policy, draw)
        case Raised(error):
            failure = tell_failure(job, error, policy)
            if is_permanent(error, policy.retry_on):
                return Dead(failure, PERMANENT)
            return _fail(job, failure, policy, draw, error)
        case _:
            assert_never(ended)


def before_start(job: ClaimedJob, policy: RetryPolicy) -> Killer | UsedUp | None:
    """Say why a claimed job must not be started any more, or None.

    A crash while others ran beside it may be theirs, so only one that it died in alone condemns a job.
    """
    if job.crashes >= policy.max_crashes and job.lone_crashes > 0:
        return Killer()
    if job.attempt > attempts_allowed(job, policy):
        return UsedUp()
    return None


def must_run_alone(job: ClaimedJob, policy: RetryPolicy) -> bool:
    """Say whether one more crash would be too many, so that it has to be clear whose it is."""
    return job.crashes >= policy.max_crashes - 1


def attempts_allowed(job: ClaimedJob, policy: RetryPolicy) -> int:
    """Return how often *job* may start: its own limit if it has one, else its kind's."""
    return policy.max_attempts if job.max_attempts is None else job.max_attempts


def is_permanent(error: BaseException, retry_on: tuple[type[BaseException], ...]) -> bool:
    """Say whether *error* must not be retried. A group is judged by its leaves: one decides for all.

    `Permanent` is, `RetryAfter` is not, an `Exception` is unless listed in *retry_on*. What is not an
    `Exception` (`SystemExit`, a stray `CancelledError`) says nothing about the job, so it is retried.
    """
    return any(_leaf_is_permanent(leaf, retry_on) for leaf in leaves(error))


def _leaf_is_permanent(leaf: BaseException, retry_on: tuple[type[BaseException], ...]) -> bool:
    # By the real class: `isinstance` asks the object, and an exception may answer anything.
    raised = type(leaf)
    if issubclass(raised, Permanent):
        return True
    if issubclass(raised, RetryAfter) or not issubclass(raised, Exception):
        return False
    return not issubclass(raised, retry_on)


def _fail(
    job: ClaimedJob, failure: Failure, policy: RetryPolicy, draw: float, error: BaseException | None = None
) -> Outcome:
    if job.attempt >= attempts_allowed(job, policy):
        return Dead(failure, USED_UP)
    delay_s = policy.backoff.delay_s(job.attempt, draw=draw)
    asked = _asked_delays(error) if error is not None else []
    if not asked:
        return Retry(failure, delay_s)
    usable = [seconds for seconds in map(asked_delay_s, asked) if seconds is not None]
    if not usable:
        return Retry(failure, delay_s, f"RetryAfter asked for {shown(asked[0])}, which is no delay: used the backoff")
    return Retry(failure, max(usable))


def _asked_delays(error: BaseException) -> list[object]:
    return [leaf.delay for leaf in leaves(error) if issubclass(type(leaf), RetryAfter) and isinstance(leaf, RetryAfter)]


def _snooze(delay: object, policy: RetryPolicy, draw: float) -> Released:
    seconds = asked_delay_s(delay)
    if seconds is None:
        seconds = policy.backoff.delay_s(1, draw=draw)
        return Released(seconds, f"Snooze asked for {shown(delay)}, which is no delay: used the first backoff")
    return Released(seconds)
