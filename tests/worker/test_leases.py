"""A job that its worker has lost: what the attempt still says about it matches nothing and is reported."""

from __future__ import annotations

import asyncio

from jobq import Job, Permanent, Queue, Snooze
from jobq.core.states import State
from jobq.telemetry.events import JobDied, JobRetried, LeaseLost
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs


async def test_outcomes_of_lost_jobs_are_reported_and_change_nothing(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """However the attempt ended, a job that was taken away stays as it is, and the other jobs are settled."""
    running, finish = asyncio.Semaphore(0), asyncio.Event()

    @queue.task("end", max_attempts=2)
    async def end(how: str) -> Snooze | None:
        running.release()
        await finish.wait()
        if how == "retry":
            raise OSError
        if how == "die":
            raise Permanent
        return Snooze(0) if how == "snooze" else None

    hows = ["return", "retry", "die", "snooze", "kept"]
    enqueued = await queue.enqueue_many([end.bind(how) for how in hows])
    async with working():
        for _ in hows:
            await running.acquire()
        for job in enqueued[:4]:
            await jobs.steal(job.id, into="elsewhere")
        finish.set()
        await seen(LeaseLost, nth=4)
        await jobs.become(enqueued[4].id, State.DONE)

    assert {event.id for event in seen.of(LeaseLost)} == {job.id for job in enqueued[:4]}
    for job in enqueued[:4]:
        now = await jobs.get(job.id)
        assert (now.state, now.attempt, now.errors) == (State.WAITING, 1, [])
    assert not seen.has(JobRetried, JobDied)


async def test_a_job_claimed_again_by_its_own_worker_takes_it_from_the_lost_attempt(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """The older attempt has lost its lease and is cancelled; the newer one settles the job."""
    started = asyncio.Semaphore(0)
    finish = {1: asyncio.Event(), 2: asyncio.Event()}
    inside: set[int] = set()
    most = 0

    @queue.task("count")
    async def count(job: Job) -> None:
        nonlocal most
        inside.add(id(job))
        most = max(most, len(inside))
        try:
            if job.id == twice.id:
                started.release()
                await finish[job.fence].wait()
        finally:
            inside.remove(id(job))

    twice = await queue.enqueue(count.bind())
    async with working(default_slots=2):
        await started.acquire()
        await jobs.steal(twice.id)
        await started.acquire()
        third = await queue.enqueue(count.bind())
        finish[1].set()
        lost = await seen(LeaseLost)
        await jobs.become(third.id, State.DONE)
        assert (await jobs.get(twice.id)).state is State.RUNNING
        finish[2].set()
        now = await jobs.become(twice.id, State.DONE)

    assert (lost.id, lost.attempt) == (twice.id, 1)
    assert now.attempt == 2
    assert most == 2
