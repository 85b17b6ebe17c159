"""A job that a renewal finds lost: its handler is cancelled, or runs to an end that nobody hears of."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from jobq import Job, Queue
from jobq.core.states import State
from jobq.telemetry.events import AttemptOverran, LeaseLost
from jobq.worker.supervisor import ExitCode
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs, until_true

LEASES: dict[str, Any] = {
    "worker_lease_s": 0.9,
    "beat_s": 0.2,
    "beat_deadline_s": 0.6,
    "job_lease_s": 2.0,
    "statement_deadline_s": 1.0,
}
"""Jobs are renewed every two thirds of a second."""


async def test_a_renewal_that_finds_a_job_lost_cancels_its_handler(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """Nothing is written about it, and the others are renewed."""
    started, finish = asyncio.Semaphore(0), asyncio.Event()
    cancelled: list[int] = []

    @queue.task("work")
    async def work(job: Job) -> None:
        started.release()
        try:
            await finish.wait()
        except asyncio.CancelledError:
            cancelled.append(job.id)
            raise

    lost, kept = await queue.enqueue_many([work.bind()] * 2)
    async with working(**LEASES):
        for _ in range(2):
            await started.acquire()
        await jobs.steal(lost.id, into="elsewhere")
        event = await seen(LeaseLost)
        await until_true(lambda: cancelled)
        finish.set()
        await jobs.become(kept.id, State.DONE)

    now = await jobs.get(lost.id)
    assert (event.id, cancelled) == (lost.id, [lost.id])
    assert (now.state, now.attempt, now.errors) == (State.WAITING, 1, [])
    assert len(seen.of(LeaseLost)) == 1


async def test_a_thread_that_lost_its_job_runs_to_its_end_and_writes_nothing(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """A thread cannot be cancelled; its slot is free again when it ends."""
    started, finish = threading.Event(), threading.Event()

    @queue.task("work")
    def work(wait: bool) -> None:
        if wait:
            started.set()
            finish.wait(8)

    lost = await queue.enqueue(work.bind(wait=True))
    async with working(default_slots=1, **LEASES):
        await until_true(started.is_set)
        await jobs.steal(lost.id, into="elsewhere")
        await seen(LeaseLost)
        after = await queue.enqueue(work.bind(wait=False))
        finish.set()
        await jobs.become(after.id, State.DONE)

    now = await jobs.get(lost.id)
    assert (now.state, now.attempt) == (State.WAITING, 1)
    assert len(seen.of(LeaseLost)) == 1


async def test_a_thread_that_lost_its_job_and_never_ends_is_named_all_the_same(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """It holds its slot for good, so past its time-out the worker ends with 3, as for any other blocked thread."""
    started, finish = threading.Event(), threading.Event()

    @queue.task("work", timeout=2.0)
    def work() -> None:
        started.set()
        finish.wait(8)

    job = await queue.enqueue(work.bind())
    try:
        async with working(default_slots=1, **LEASES) as running:
            await until_true(started.is_set)
            await jobs.steal(job.id, into="elsewhere")
            await seen(LeaseLost)
            overran = await seen(AttemptOverran)
            code = await running.ended()
    finally:
        finish.set()

    assert (overran.id, overran.blocks_thread, code) == (job.id, True, ExitCode.HANDED_BACK)
