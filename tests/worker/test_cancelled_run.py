"""The task that runs a worker is cancelled from outside, as a framework does at its end: nothing of it goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jobq import Job, Queue
from jobq.core.states import State
from jobq.settings import WorkerSettings
from jobq.telemetry.events import DrainEnded, DrainStarted, WorkerStarted
from jobq.worker.supervisor import Worker
from tests.worker.conftest import QUICK
from tests.worker.observe import Events, Jobs, eventually, until_true
from tests.worker.stubborn import swallow_cancellation

LIMIT_S = 20.0
"""Generous: the cancel grace, the end of the side thread and the leave of the server are a few seconds."""


class Cleanup:
    """The handler `tidy`: runs for ever, and once it is cancelled cleans up until it may end or is cancelled again."""

    def __init__(self, queue: Queue) -> None:
        self.cancelled = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended = asyncio.Event()

        @queue.task("tidy")
        async def tidy(job: Job) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
                try:
                    await self.may_end.wait()
                finally:
                    self.ended.set()

        self.bind = tidy.bind


@pytest.fixture
def cleanup(queue: Queue) -> Cleanup:
    """A handler whose clean-up takes as long as the test says."""
    return Cleanup(queue)


async def start(queue: Queue, seen: Events, **settings: Any) -> tuple[Worker, asyncio.Task[object]]:
    """Start a worker in a task of its own, and wait until it works."""
    worker = Worker(queue, WorkerSettings(**{**QUICK, **settings}), emit=seen.emit)
    task: asyncio.Task[object] = asyncio.create_task(worker.run())
    await seen(WorkerStarted)
    return worker, task


async def is_cancelled(task: asyncio.Task[object]) -> bool:
    """Wait for the end of *task*, at most the limit. Returns whether it ended as it was told: by its cancellation."""
    done, _ = await asyncio.wait([task], timeout=LIMIT_S)
    assert done, f"the worker has not ended within {LIMIT_S:g} s of its cancellation"
    return task.cancelled()


async def test_a_worker_that_is_cancelled_while_it_waits_for_a_cancelled_job_ends(
    queue: Queue, seen: Events, jobs: Jobs, cleanup: Cleanup
) -> None:
    """F24: its own cancellation is not taken for the job's: it ends cancelled, and none of its tasks lives on."""
    before = asyncio.all_tasks()
    job = await queue.enqueue(cleanup.bind())
    worker, task = await start(queue, seen, grace_s=0.0, cancel_grace_s=600.0)
    await jobs.become(job.id, State.RUNNING)
    worker.stop()
    await asyncio.wait_for(cleanup.cancelled.wait(), LIMIT_S)

    task.cancel()
    was_cancelled = await is_cancelled(task)

    assert was_cancelled
    assert cleanup.ended.is_set()
    assert asyncio.all_tasks() == before
    assert seen.has(DrainStarted)
    assert not seen.has(DrainEnded)
    await eventually(lambda: jobs.backends("application_name <> 'jobq handlers'"), lambda found: found == [])


async def test_a_worker_that_is_cancelled_while_a_timed_out_job_cleans_up_ends(
    queue: Queue, seen: Events, cleanup: Cleanup
) -> None:
    """F24: the same without a stop before: what the sweep has cancelled is no reason to go on."""
    before = asyncio.all_tasks()
    queue.handlers["tidy"].timeout_s = 0.05
    await queue.enqueue(cleanup.bind())
    _, task = await start(queue, seen, cancel_grace_s=600.0)
    await asyncio.wait_for(cleanup.cancelled.wait(), LIMIT_S)

    task.cancel()
    was_cancelled = await is_cancelled(task)

    assert was_cancelled
    assert cleanup.ended.is_set()
    assert asyncio.all_tasks() == before


async def test_a_worker_that_is_cancelled_does_not_wait_for_a_handler_that_will_not_be(
    queue: Queue, seen: Events
) -> None:
    """F24: it ends after the cancel grace; only that handler is left, which nothing can stop, and no task of ours."""
    inside, cancelled, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @queue.task("stubborn")
    async def stubborn() -> None:
        inside.set()
        try:
            await release.wait()
        except asyncio.CancelledError:
            cancelled.set()
        await swallow_cancellation(release)

    before = asyncio.all_tasks()
    await queue.enqueue(stubborn.bind())
    worker, task = await start(queue, seen, grace_s=0.0, cancel_grace_s=0.5)
    await asyncio.wait_for(inside.wait(), LIMIT_S)
    worker.stop()
    await asyncio.wait_for(cancelled.wait(), LIMIT_S)

    task.cancel()
    was_cancelled = await is_cancelled(task)
    left = asyncio.all_tasks() - before
    release.set()

    assert was_cancelled
    assert len(left) == 1
    assert worker.is_stuck
    await until_true(lambda: asyncio.all_tasks() == before)
