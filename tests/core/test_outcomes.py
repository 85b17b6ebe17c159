"""What becomes of a job after its attempt: one rule, every case of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq.core.job import ClaimedJob, JobId
from jobq.core.outcomes import (
    DRAINED,
    KILLER,
    LEASE_LAPSED,
    PERMANENT,
    RELEASES,
    UNFIT,
    USED_UP,
    Dead,
    Done,
    Ended,
    Interrupted,
    Killer,
    Outcome,
    Raised,
    Released,
    Retry,
    RetryPolicy,
    Returned,
    Snooze,
    TimedOut,
    Unfit,
    UsedUp,
    attempts_allowed,
    before_start,
    is_permanent,
    judge,
    must_run_alone,
)
from jobq.core.retry import Backoff
from jobq.errors import JobqError, PayloadError, Permanent, RetryAfter
from tests.core.strategies import FEW

DRAWS = st.floats(0, 1, exclude_max=True)
PLAIN = RetryPolicy()
NEVER: tuple[type[BaseException], ...] = (ZeroDivisionError,)


def claimed(attempt: int = 1, max_attempts: int | None = None, crashes: int = 0, lone_crashes: int = 0) -> ClaimedJob:
    """A job as it is claimed for its *attempt*."""
    now = datetime(2024, 2, 29, tzinfo=UTC)
    return ClaimedJob(
        JobId(7),
        "default",
        "send",
        5,
        now,
        "{}",
        attempt,
        crashes,
        max_attempts,
        fence=9,
        enqueued_at=now,
        headers=None,
        lone_crashes=lone_crashes,
    )


def outcome(
    ended: Ended,
    policy: RetryPolicy = PLAIN,
    *,
    attempt: int = 1,
    max_attempts: int | None = None,
    draw: float = 0.0,
) -> Outcome:
    return judge(claimed(attempt, max_attempts), ended, policy, draw=draw)


class Rude(Exception):
    """An exception that fails at whatever it is asked."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class Nameless:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


EXCEPTIONS = st.sampled_from(
    [
        *(ValueError("v"), OSError(2, "o"), TimeoutError(), Permanent("p"), JobqError("j"), RetryAfter(60)),
        *(RetryAfter(-1), RetryAfter(math.nan), RetryAfter(timedelta.max), RetryAfter("soon")),  # type: ignore[arg-type]
    ]
)
ESCAPES = st.sampled_from([SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1)])
ERRORS = st.recursive(
    EXCEPTIONS | ESCAPES,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: BaseExceptionGroup("group", parts)),
    max_leaves=5,
)
ANSWERS = st.sampled_from(
    [
        *(None, 0, "text", Snooze(0), Snooze(1.5), Snooze(timedelta(days=400)), Snooze(-1), Snooze(math.inf)),
        *(Snooze(True), Snooze(None), Snooze("soon")),  # type: ignore[arg-type]
    ]
)
ENDS = st.one_of(
    ANSWERS.map(Returned),
    ERRORS.map(Raised),
    st.floats(1e-3, 86_400).map(TimedOut),
    st.just(Unfit(PayloadError("n is missing", field="$.n"))),
    st.builds(Interrupted, st.sampled_from([DRAINED, LEASE_LAPSED]), st.booleans()),
    st.just(UsedUp()),
    st.just(Killer()),
)
POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 2**31 - 1),
    retry_on=st.sampled_from([(Exception,), (OSError, TimeoutError), NEVER, (BaseException,)]),
    backoff=st.builds(Backoff, st.floats(1e-3, 10), st.floats(10, 86_400)),
)


@given(ENDS, POLICIES, st.integers(1, 2**31 - 1), st.none() | st.integers(1, 2**31 - 1), DRAWS)
@FEW
def test_every_end_has_an_outcome(
    ended: Ended, policy: RetryPolicy, attempt: int, max_attempts: int | None, draw: float
) -> None:
    """Whatever a handler does, the rule never raises, waits a possible time, and allows no attempt too many."""
    result = outcome(ended, policy, attempt=attempt, max_attempts=max_attempts, draw=draw)

    match result:
        case Retry(_, delay_s, _):
            assert 0 <= delay_s <= 30 * 86_400
            assert attempt < (policy.max_attempts if max_attempts is None else max_attempts)
        case Released(delay_s, _, record):
            assert 0 <= delay_s <= 30 * 86_400
            assert isinstance(ended, Returned | Interrupted)
            assert record == (ended.reason if isinstance(ended, Interrupted) and ended.started else None)
        case Dead(failure, reason, started):
            assert reason in {PERMANENT, USED_UP, UNFIT, KILLER}
            assert failure.fingerprint
            assert started == (not isinstance(ended, Unfit | UsedUp | Killer))
        case Done():
            assert isinstance(ended, Returned)


@pytest.mark.parametrize("delay", [10**5000, Nameless()], ids=["too long to print", "no repr"])
def test_a_delay_that_cannot_be_shown_has_an_outcome(delay: Any) -> None:
    """Python refuses to print a huge integer, and a class may refuse anything: the job waits all the same."""
    assert isinstance(outcome(Returned(Snooze(delay))), Released)
    assert isinstance(outcome(Raised(RetryAfter(delay, "odd"))), Retry)


def test_an_exception_that_answers_nothing_has_an_outcome() -> None:
    """One whose text, name and class cannot be asked for is an exception like any other."""
    assert isinstance(outcome(Raised(Rude())), Retry)
    assert isinstance(outcome(Raised(ExceptionGroup("g", [Rude(), OSError()]))), Retry)
    assert isinstance(outcome(Raised(Rude()), RetryPolicy(retry_on=(OSError,))), Dead)


@pytest.mark.parametrize("answer", [None, False, "retry", Snooze, Exception("returned, not raised")], ids=repr)
def test_any_other_answer_is_done(answer: object) -> None:
    """Only `Snooze` is more than a return."""
    assert outcome(Returned(answer)) == Done()


def test_the_failure_at_the_last_allowed_attempt_is_the_death() -> None:
    """F41: N allowed attempts are N starts: the N-th failure dies, the one before is tried again."""
    for limit in (1, 2, 5, 2**31 - 1):
        policy = RetryPolicy(max_attempts=limit)
        for ended in (Raised(ValueError("no")), TimedOut(3.0), Raised(RetryAfter(5)), Raised(SystemExit())):
            last = outcome(ended, policy, attempt=limit)
            assert isinstance(last, Dead)
            assert last.reason == USED_UP
            assert isinstance(outcome(ended, policy, attempt=limit - 1), Retry)


def test_a_job_s_own_limit_goes_before_that_of_its_handler() -> None:
    """Above it and below it."""
    policy = RetryPolicy(max_attempts=3)

    assert attempts_allowed(claimed(), policy) == 3
    assert attempts_allowed(claimed(max_attempts=1), policy) == 1
    assert attempts_allowed(claimed(max_attempts=7), policy) == 7


def test_a_retry_waits_for_the_backoff_of_its_attempt() -> None:
    """With the draw that it was given."""
    policy = RetryPolicy(backoff=Backoff(base_s=10, cap_s=1000))
    waits = []

    for attempt, draw in ((1, 0.0), (2, 0.5), (9, 0.0)):
        result = outcome(Raised(ValueError("no")), policy, attempt=attempt, draw=draw)
        assert isinstance(result, Retry)
        waits.append((result.delay_s, result.note))

    assert waits == [(10.0, ""), (10.0, ""), (1000.0, "")]


def test_retry_after_says_the_delay_and_the_longest_of_a_group_counts() -> None:
    """It is honoured beyond the cap of the backoff; unusable ones beside usable ones are passed over."""
    policy = RetryPolicy(backoff=Backoff(1, 10))

    single = outcome(Raised(RetryAfter(timedelta(hours=1))), policy)
    group = ExceptionGroup("g", [RetryAfter(5), ExceptionGroup("h", [RetryAfter(70), OSError()]), RetryAfter(-1)])

    assert isinstance(single, Retry)
    assert (single.delay_s, single.note) == (3600.0, "")
    several = outcome(Raised(group), policy)
    assert isinstance(several, Retry)
    assert (several.delay_s, several.note) == (70.0, "")


def test_an_unusable_retry_after_is_noted() -> None:
    """The backoff stands in, and the note shows what was asked for, shortened."""
    result = outcome(Raised(RetryAfter("x" * 1000)), RetryPolicy(backoff=Backoff(4, 10)))  # type: ignore[arg-type]

    assert isinstance(result, Retry)
    assert result.delay_s == 4.0
    assert result.note.startswith("RetryAfter asked for 'xxx")
    assert len(result.note) < 200


@pytest.mark.parametrize(
    ("delay", "delay_s", "is_odd"),
    [(0, 0.0, False), (90, 90.0, False), (timedelta(days=31), 2_592_000.0, False), (-1, 2.0, True), ("now", 2.0, True)],
)
def test_a_snooze_gives_the_attempt_back(delay: Any, delay_s: float, is_odd: bool) -> None:
    """F42: after the last allowed attempt, too; an unusable delay becomes the first backoff whatever the attempt."""
    result = outcome(Returned(Snooze(delay)), RetryPolicy(max_attempts=3), attempt=3)

    assert isinstance(result, Released)
    assert result.delay_s == delay_s
    assert bool(result.note) == is_odd


def test_what_the_worker_took_back_is_released_at_once() -> None:
    """A drain is no failure, after the last allowed attempt neither; what had started says why it runs again."""
    policy = RetryPolicy(max_attempts=1)

    assert outcome(Interrupted(DRAINED), policy) == Released(0.0, "", DRAINED)
    assert outcome(Interrupted(LEASE_LAPSED), policy) == Released(0.0, "", LEASE_LAPSED)
    assert outcome(Interrupted(DRAINED, started=False), policy) == Released(0.0, "", None)
    assert {DRAINED.type, LEASE_LAPSED.type} == RELEASES


def test_a_record_names_the_redacted_fields_of_its_kind() -> None:
    """Whoever shows the job later may not know the kind: a release says it, as a failure does."""
    policy = RetryPolicy(redact=("card_number",))

    released = outcome(Interrupted(DRAINED), policy)
    failed = outcome(TimedOut(1.0), policy)

    assert isinstance(released, Released)
    assert isinstance(failed, Retry)
    assert released.record is not None
    assert released.record.redact == failed.failure.redact == ("card_number",)
    assert outcome(Returned(None), policy) == Done()


def test_what_was_not_called_is_dead_without_a_start() -> None:
    """A payload that does not fit, and a claim beyond the limit: the attempt is not counted."""
    unfit = outcome(Unfit(PayloadError("$.n is missing", field="$.n")))
    used_up = outcome(UsedUp(), RetryPolicy(max_attempts=4), attempt=5)

    assert isinstance(unfit, Dead)
    assert (unfit.reason, unfit.started, unfit.failure.message) == (UNFIT, False, "$.n is missing")
    assert isinstance(used_up, Dead)
    assert (used_up.reason, used_up.started) == (USED_UP, False)
    assert used_up.failure.message == "4 attempts were used before this claim"


def test_a_time_out_is_tried_again_whatever_retry_on_says() -> None:
    """It says nothing about the job; its text has the limit that it ran into."""
    result = outcome(TimedOut(30.0), RetryPolicy(retry_on=NEVER))

    assert isinstance(result, Retry)
    assert (result.failure.type, result.failure.message) == ("TimeoutError", "timed out after 30 s")


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (Permanent(), True),
        (OSError(), False),
        (FileNotFoundError(), False),
        (ValueError(), True),
        (RetryAfter(1), False),
        (SystemExit(), False),
        (KeyboardInterrupt(), False),
        (type("SubPermanent", (Permanent,), {})(), True),
        (type("SubRetryAfter", (RetryAfter,), {})(1), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_permanent_is_what_retry_on_does_not_list(error: BaseException, permanent: bool) -> None:
    """Subclasses count as their bases; what is no `Exception` is never permanent."""
    assert is_permanent(error, (OSError,)) == permanent


def test_permanent_is_permanent_even_if_listed() -> None:
    """It says so itself."""
    assert is_permanent(Permanent(), (Exception,))


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves_of(part)
    else:
        yield error


@given(
    st.lists(st.sampled_from([OSError(), ValueError(), Permanent(), RetryAfter(1), SystemExit()]), min_size=1),
    st.data(),
)
@FEW
def test_a_group_is_permanent_if_one_leaf_is(parts: list[BaseException], data: st.DataObject) -> None:
    """F62: however they are nested."""
    error: BaseException = BaseExceptionGroup("g", parts)
    for _ in range(data.draw(st.integers(0, 3))):
        error = BaseExceptionGroup("outer", [error, *data.draw(st.lists(st.sampled_from(parts), max_size=2))])

    assert is_permanent(error, (OSError,)) == any(is_permanent(leaf, (OSError,)) for leaf in leaves_of(error))


# -- poison pills ------------------------------------------------------------------------------------


def test_a_killer_is_dead_and_the_letter_says_how_often() -> None:
    """Without a start, because the handler is not called again."""
    result = judge(claimed(attempt=4, crashes=3, lone_crashes=1), Killer(), PLAIN, draw=0.0)

    assert isinstance(result, Dead)
    assert (result.reason, result.started, result.failure.type) == (KILLER, False, "WorkerLost")
    assert result.failure.message == "killed its worker 3 times, the last time while it ran alone"


@pytest.mark.parametrize(
    ("crashes", "lone_crashes", "refused"),
    [(0, 0, False), (2, 0, False), (2, 2, False), (3, 0, False), (9, 0, False), (3, 1, True), (9, 1, True)],
)
def test_only_a_crash_alone_condemns(crashes: int, lone_crashes: int, refused: bool) -> None:
    """And only when there were as many as the kind allows."""
    job = claimed(attempt=1, crashes=crashes, lone_crashes=lone_crashes)

    assert before_start(job, RetryPolicy(max_crashes=3)) == (Killer() if refused else None)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 10), st.integers(1, 10), st.integers(1, 10))
@FEW
def test_no_crash_that_condemns_is_run_among_others(
    crashes: int, lone_crashes: int, attempt: int, max_crashes: int, max_attempts: int
) -> None:
    """Whoever would be condemned by one more crash runs alone, and whoever has tries left may start."""
    policy = RetryPolicy(max_crashes=max_crashes, max_attempts=max_attempts)
    job = claimed(attempt, crashes=crashes, lone_crashes=lone_crashes)
    one_more = claimed(attempt, crashes=crashes + 1, lone_crashes=lone_crashes + 1)

    if before_start(one_more, policy) == Killer():
        assert must_run_alone(job, policy)
    if lone_crashes == 0:
        assert before_start(job, policy) == (None if attempt <= max_attempts else UsedUp())


def test_a_killer_is_one_before_its_attempts_are_used_up() -> None:
    """The letter names the graver reason."""
    job = claimed(attempt=11, crashes=3, lone_crashes=1)

    assert before_start(job, PLAIN) == Killer()
    assert before_start(claimed(attempt=11, crashes=3), PLAIN) == UsedUp()
    assert before_start(claimed(attempt=10), PLAIN) is None
