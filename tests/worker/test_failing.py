"""What a handler raises or answers decides about its job; the rule alone is in tests/core/test_outcomes.py."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio

from jobq import Job, Permanent, Queue, RetryAfter, Snooze
from jobq.core.states import State
from jobq.telemetry.events import JobDied, JobRetried, JobSnoozed
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Events, Jobs


class Refused(ConnectionError):
    """A class of the user's, listed by a base class."""


async def test_permanent_is_a_dead_letter_at_once(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """`Permanent` uses no second attempt, and its error is kept, from `async def` and `def`."""

    @queue.task("async")
    async def refuse() -> None:
        raise Permanent("no such address")

    @queue.task("def")
    def refuse_in_thread() -> None:
        raise Permanent("no such address")

    enqueued = await queue.enqueue_many([refuse.bind(), refuse_in_thread.bind()])
    async with working():
        await jobs.all_become(State.DEAD, 2)
        await seen(JobDied, nth=2)

    for job, kind in zip(enqueued, ("async", "def"), strict=True):
        now = await jobs.get(job.id)
        assert (now.attempt, len(now.errors)) == (1, 1)
        assert "raise Permanent" in now.errors[0]["traceback"]
        assert (
            JobDied(job.id, kind, 1, "permanent failure", "jobq.errors.Permanent", "no such address", "default")
            in seen.of(JobDied)
        )  # fmt: skip


async def test_retry_after_moves_run_at(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """The job waits as long as asked for, at most 30 days, by the database's clock, and the attempt counts."""
    asked: list[float | timedelta] = [3600, 3600.5, timedelta(hours=1), timedelta(days=4000)]

    @queue.task("limited")
    async def limited(n: int) -> None:
        raise RetryAfter(asked[n])

    enqueued = await queue.enqueue_many([limited.bind(n) for n in range(4)])
    async with working():
        await seen(JobRetried, nth=4)

    for job, delay_s in zip(enqueued, (3600, 3600.5, 3600, 30 * 86_400), strict=True):
        now = await jobs.get(job.id)
        assert (now.state, now.attempt) == (State.WAITING, 1)
        assert delay_s - 30 < now.due_in_s <= delay_s
    assert {event.note for event in seen.of(JobRetried)} == {""}


async def test_a_retry_after_without_a_usable_delay_uses_the_backoff(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F39: a delay that is none is replaced and noted, and the job is tried again."""
    asked: list[Any] = [-1, float("nan"), float("inf"), None, "soon", True]

    @queue.task("limited", backoff=AT_ONCE)
    async def limited(job: Job, n: int) -> None:
        if job.attempt == 1:
            raise RetryAfter(asked[n])

    await queue.enqueue_many([limited.bind(n) for n in range(len(asked))])
    async with working():
        await jobs.all_become(State.DONE, len(asked))

    assert {event.note for event in seen.of(JobRetried)} == {
        f"RetryAfter asked for {delay!r}, which is no delay: used the backoff" for delay in asked
    }
    assert all(0 < event.delay_s <= 0.001 for event in seen.of(JobRetried))


async def test_snoozing_uses_no_attempt(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """F42: after 50 snoozes the job succeeds at attempt 1, its row no larger than before."""
    sizes: list[int] = []
    size_of_row = jobs.text("select pg_column_size(j) from @schema@.job j where id = $1")

    @queue.task("nap", max_attempts=2)
    async def nap(job: Job) -> Snooze | None:
        assert job.attempt == 1
        pool = await queue.pool()
        sizes.append(await pool.fetchval(size_of_row, job.id))
        return Snooze(0.001) if len(sizes) <= 50 else None

    job = await queue.enqueue(nap.bind())
    async with working(poll_s=0.005):
        now = await jobs.become(job.id, State.DONE)

    assert now.attempt == 1
    assert sizes == [sizes[0]] * 51
    assert seen.of(JobRetried) == []


async def test_a_snooze_moves_run_at(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """F42: the job waits as long as asked for, its attempt given back, nothing recorded as a failure."""

    @queue.task("async")
    async def nap() -> Snooze:
        return Snooze(timedelta(hours=2))

    @queue.task("def")
    def nap_in_thread() -> Snooze:
        return Snooze(7200)

    @queue.task("odd")
    async def odd() -> Snooze:
        return Snooze("tomorrow")  # type: ignore[arg-type]

    enqueued = await queue.enqueue_many([nap.bind(), nap_in_thread.bind()])
    async with working():
        for job in enqueued:
            now = await jobs.waits_longer(job.id, 7000)
            assert (now.attempt, now.fence, now.errors) == (0, 1, [])
            assert now.due_in_s <= 7200
        await queue.enqueue(odd.bind())
        noted = await seen(JobSnoozed)

    assert noted.note == "Snooze asked for 'tomorrow', which is no delay: used the first backoff"
    assert 0 < noted.delay_s <= 2


async def test_retry_on_says_what_is_tried_again(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """An exception outside `retry_on` is permanent; `RetryAfter` is always tried again."""
    retried = [ConnectionError("reset"), Refused("subclass"), TimeoutError("slow"), RetryAfter(3600)]
    died = [ValueError("bad"), Permanent("never")]

    @queue.task("call", retry_on=(ConnectionError, TimeoutError))
    async def call(n: int) -> None:
        raise [*retried, *died][n]

    enqueued = await queue.enqueue_many([call.bind(n) for n in range(6)])
    async with working(default_slots=6):
        await seen(JobRetried, nth=4)
        await seen(JobDied, nth=2)

    assert {event.id for event in seen.of(JobRetried)} == {job.id for job in enqueued[:4]}
    assert {event.id for event in seen.of(JobDied)} == {job.id for job in enqueued[4:]}


async def test_a_group_is_judged_by_its_leaves(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """F62: one permanent leaf decides; the stored text tells a group of one as its leaf, and names all of several."""
    retried = [
        ExceptionGroup("g", [OSError("a")]),
        ExceptionGroup("g", [OSError("a"), ExceptionGroup("h", [TimeoutError("b")])]),
        BaseExceptionGroup("g", [OSError("a"), SystemExit("b")]),
    ]
    died = [
        ExceptionGroup("g", [OSError("a"), ExceptionGroup("h", [Permanent("b")])]),
        ExceptionGroup("g", [OSError("a"), KeyError("b")]),
    ]

    @queue.task("fan_out", retry_on=OSError)
    async def fan_out(n: int) -> None:
        raise [*retried, *died][n]

    enqueued = await queue.enqueue_many([fan_out.bind(n) for n in range(5)])
    async with working():
        await seen(JobRetried, nth=3)
        await seen(JobDied, nth=2)

    events: list[JobRetried | JobDied] = [*seen.of(JobRetried), *seen.of(JobDied)]
    told = {event.id: event.error_message for event in events}
    assert [told[job.id] for job in enqueued] == [
        "a",
        "2 leaves: OSError: a; TimeoutError: b",
        "2 leaves: OSError: a; SystemExit: b",
        "2 leaves: OSError: a; jobq.errors.Permanent: b",
        "2 leaves: OSError: a; KeyError: 'b'",
    ]
    assert {event.id for event in seen.of(JobDied)} == {job.id for job in enqueued[3:]}


async def test_leaves_of_a_task_group_are_stored(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """F62: what children of a task group raised is in the error, frame by frame, not only that some raised."""

    async def left() -> None:
        raise ValueError("left leaf")

    async def right() -> None:
        raise KeyError("right leaf")

    @queue.task("fan_out", max_attempts=1)
    async def fan_out() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(left)
            group.start_soon(right)

    job = await queue.enqueue(fan_out.bind())
    async with working():
        died = await seen(JobDied)
        (error,) = (await jobs.get(job.id)).errors

    assert "ValueError: left leaf" in died.error_message
    assert "KeyError: 'right leaf'" in died.error_message
    assert "in left" in error["traceback"]
    assert "in right" in error["traceback"]
