"""A handler that runs too long is cancelled and tried again; one that ignores it loses its slot, not the worker's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest

from jobq import Job, JobId, LostLeaseError, Permanent, Queue, Snooze
from jobq.core.job import ClaimedJob
from jobq.core.outcomes import DRAINED
from jobq.core.states import State
from jobq.telemetry.events import AttemptOverran, JobDied, JobRetried, LeaseLost
from jobq.worker.executor import Executor
from jobq.worker.supervisor import ExitCode
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Events, Jobs
from tests.worker.stubborn import swallow_cancellation


async def test_a_job_past_its_time_out_is_cancelled_and_tried_again(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """It sees a cancellation, its cleanup runs, its attempt counts, and its slot is free for the next."""
    cleaned_up: list[int] = []

    @queue.task("hang", timeout=0.05, backoff=AT_ONCE, retry_on=ValueError)
    async def hang(job: Job) -> None:
        if job.attempt == 3:
            return
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.append(job.attempt)

    job = await queue.enqueue(hang.bind())
    async with working(default_slots=1):
        now = await jobs.become(job.id, State.DONE)

    assert cleaned_up == [1, 2]
    assert now.attempt == 3
    assert [(event.error_type, event.error_message) for event in seen.of(JobRetried)] == [
        ("TimeoutError", "timed out after 0.05 s")
    ] * 2
    assert seen.of(AttemptOverran) == []


async def test_the_last_time_out_is_a_dead_letter(queue: Queue, seen: Events, working: Working) -> None:
    """A time-out uses up attempts like any other failure."""

    @queue.task("hang", timeout=timedelta(seconds=0.05), max_attempts=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    await queue.enqueue(hang.bind())
    async with working():
        died = await seen(JobDied)

    assert (died.reason, died.error_type, died.attempt) == ("attempts used up", "TimeoutError", 1)


async def test_what_a_cancelled_handler_answers_does_not_count(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """Whether it returns or raises after its cancellation, it has timed out; only a `Snooze` is taken from it."""

    @queue.task("hang", timeout=0.05, max_attempts=1)
    async def hang(then: str) -> Snooze | None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if then == "raise":
                raise Permanent("cleanup failed") from None
        return Snooze(3600) if then == "snooze" else None

    returns, raises, snoozes = await queue.enqueue_many([hang.bind("return"), hang.bind("raise"), hang.bind("snooze")])
    async with working():
        await seen(JobDied, nth=2)
        snoozed = await jobs.waits_longer(snoozes.id, 3500)

    assert {event.id for event in seen.of(JobDied)} == {returns.id, raises.id}
    assert {event.error_type for event in seen.of(JobDied)} == {"TimeoutError"}
    assert snoozed.attempt == 0


async def test_handlers_that_ignore_their_cancellation_do_not_hold_slots(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F35: four of them in four slots are named and settled after the cancel grace, and a fifth job starts."""
    release = asyncio.Event()

    @queue.task("stubborn", timeout=0.05, max_attempts=1)
    async def stubborn() -> None:
        await swallow_cancellation(release)

    @queue.task("fifth")
    async def fifth() -> None: ...

    stuck = await queue.enqueue_many([stubborn.bind()] * 4)
    async with working(default_slots=4, cancel_grace_s=0.1):
        await seen(AttemptOverran, nth=4)
        job = await queue.enqueue(fifth.bind())
        await jobs.become(job.id, State.DONE)
        await jobs.until({State.DONE: 1, State.DEAD: 4})
        release.set()

    assert {(event.id, event.kind, event.blocks_thread) for event in seen.of(AttemptOverran)} == {
        (job.id, "stubborn", False) for job in stuck
    }
    assert all(event.ran_s >= 0.15 for event in seen.of(AttemptOverran))
    assert {event.error_type for event in seen.of(JobDied)} == {"TimeoutError"}


async def test_what_a_given_up_handler_does_later_is_ignored(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """It cannot write any more, its return changes nothing, and the next attempt is settled as it ends itself."""
    release, finish = asyncio.Event(), asyncio.Event()
    refused: list[LostLeaseError] = []
    ended = asyncio.Event()

    @queue.task("stubborn", timeout=0.05, max_attempts=1)
    async def stubborn(job: Job) -> None:
        if job.fence == 1:
            await swallow_cancellation(release)
            try:
                async with job.transaction():
                    pass
            except LostLeaseError as error:
                refused.append(error)
            ended.set()
        else:
            release.set()
            await finish.wait()

    job = await queue.enqueue(stubborn.bind())
    async with working(cancel_grace_s=0.05):
        await jobs.become(job.id, State.DEAD)
        stubborn.timeout_s = 300.0
        await queue.redrive(job.id)
        await ended.wait()
        assert (await jobs.get(job.id)).state is State.RUNNING
        finish.set()
        now = await jobs.become(job.id, State.DONE)

    assert now.attempt == 1
    assert len(refused) == 1
    assert len(seen.of(AttemptOverran)) == 1
    assert seen.of(LeaseLost) == []


async def test_a_def_handler_past_its_time_out_ends_the_worker(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """A thread cannot be stopped: it is named, keeps its job, and the worker ends without it with exit code 3."""
    release = threading.Event()

    @queue.task("stuck", timeout=0.1)
    def stuck() -> None:
        release.wait(20)

    job = await queue.enqueue(stuck.bind())
    try:
        async with working(grace_s=20, cancel_grace_s=20) as running:
            overran = await seen(AttemptOverran)
            exit_code = await running.ended(5)
            kept = await jobs.get(job.id)
    finally:
        release.set()

    assert exit_code is ExitCode.HANDED_BACK
    assert (overran.id, overran.kind, overran.blocks_thread) == (job.id, "stuck", True)
    assert len(seen.of(AttemptOverran)) == 1
    assert running.worker.is_stuck
    assert (kept.state, kept.attempt) == (State.RUNNING, 1)


async def test_an_attempt_cancelled_before_its_first_step_gives_its_slot_back(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation in the moment between claim and start releases the jobs uncalled, and their slots are free."""
    calls: list[int] = []
    start = Executor.start
    cancelled: list[JobId] = []

    def start_and_cancel(executor: Executor, claimed: Sequence[ClaimedJob]) -> None:
        start(executor, claimed)
        if not cancelled:
            executor.interrupt_all(DRAINED)
            cancelled.extend(one.id for one in claimed)

    monkeypatch.setattr(Executor, "start", start_and_cancel)

    @queue.task("count")
    async def count(n: int) -> None:
        calls.append(n)

    enqueued = await queue.enqueue_many([count.bind(n) for n in range(3)])
    async with working(default_slots=3):
        await jobs.all_become(State.DONE, 3)

    assert cancelled == [job.id for job in enqueued]
    assert calls == [0, 1, 2]
    ends = [await jobs.get(job.id) for job in enqueued]
    assert [(now.attempt, now.errors) for now in ends] == [(1, [])] * 3
    assert not seen.has(AttemptOverran)
