"""A stop: nothing more starts, what runs may finish, and what does not is handed back."""

from __future__ import annotations

import asyncio

from jobq import Queue
from jobq.core.states import State
from jobq.settings import WorkerSettings
from jobq.telemetry.events import AttemptOverran, DrainStarted, JobDied, JobRetried, WorkerStopped
from jobq.worker.supervisor import ExitCode, Worker
from tests.worker.conftest import QUICK, Working
from tests.worker.observe import DEADLINE_S, Events, Jobs, eventually, within


async def test_running_jobs_finish(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """Within the grace they end as they end, and the exit code is 0."""
    started, finish = asyncio.Semaphore(0), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.release()
        await finish.wait()

    @queue.task("work_in_thread")
    def work_in_thread() -> None:
        loop.call_soon_threadsafe(started.release)
        asyncio.run_coroutine_threadsafe(finish.wait(), loop).result(10)

    loop = asyncio.get_running_loop()
    await queue.enqueue_many([work.bind(), work.bind(), work_in_thread.bind()])
    async with working() as running:
        for _ in range(3):
            await started.acquire()
        running.worker.stop()
        drain = await seen(DrainStarted)
        finish.set()
        exit_code = await running.ended()

    assert exit_code is ExitCode.DRAINED
    assert drain == DrainStarted(3, 5.0)
    assert await jobs.count() == {State.DONE: 3}
    assert seen.of(WorkerStopped) == [WorkerStopped(0, 3, 0, 0)]
    assert not running.worker.is_stuck


async def test_nothing_starts_after_a_stop(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """Of twenty jobs enqueued during the drain, notified ones, none is claimed though slots are free."""
    started, finish = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    @queue.task("first")
    async def first() -> None:
        started.set()
        await finish.wait()

    @queue.task("late")
    async def late(n: int) -> None:
        ran.append(n)

    await queue.enqueue(first.bind())
    async with working() as running:
        await started.wait()
        running.worker.stop()
        await seen(DrainStarted)
        enqueued = await queue.enqueue_many([late.bind(n) for n in range(20)])
        finish.set()
        exit_code = await running.ended()

    assert exit_code is ExitCode.DRAINED
    assert ran == []
    assert {(await jobs.get(job.id)).fence for job in enqueued} == {0}


async def test_what_outlasts_the_grace_is_cancelled_and_handed_back(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F21, N4: its cleanup runs to its end, its attempt is given back, and the row says why; exit code 3."""
    started, cleaned_up = asyncio.Semaphore(0), asyncio.Semaphore(0)

    @queue.task("endless", max_attempts=1)
    async def endless() -> None:
        started.release()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            cleaned_up.release()

    enqueued = await queue.enqueue_many([endless.bind()] * 5)
    async with working(grace_s=0.05, cancel_grace_s=5) as running:
        for _ in range(5):
            await started.acquire()
        exit_code = await running.stop()

    assert exit_code is ExitCode.HANDED_BACK
    for _ in range(5):
        await cleaned_up.acquire()
    for job in enqueued:
        now = await jobs.get(job.id)
        assert (now.state, now.attempt, now.records) == (State.WAITING, 0, [("Drained", 1)])
        assert now.errors[0]["worker_id"] == str(running.worker.worker_id)
        assert now.due_in_s <= 0
    assert seen.of(WorkerStopped) == [WorkerStopped(3, 0, 5, 0)]
    assert not seen.has(JobRetried, JobDied, AttemptOverran)


async def test_a_second_stop_skips_the_grace(queue: Queue, jobs: Jobs, working: Working) -> None:
    """It cancels at once, and a third one does not disturb the cleanup."""
    started, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()
    cleaned_up: list[bool] = []

    @queue.task("endless")
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await within(DEADLINE_S, clean.wait())
            cleaned_up.append(True)

    await queue.enqueue(endless.bind())
    async with working(grace_s=60, cancel_grace_s=10) as running:
        await started.wait()
        running.worker.stop()
        running.worker.stop()
        await cleaning.wait()
        running.worker.stop()
        clean.set()
        exit_code = await running.ended()

    assert exit_code is ExitCode.HANDED_BACK
    assert cleaned_up == [True]
    assert await jobs.count() == {State.WAITING: 1}


async def test_a_stop_does_not_disturb_a_cleanup_that_runs_already(
    queue: Queue, seen: Events, working: Working
) -> None:
    """F22: a handler is cancelled once: what timed out counts as that, and finishes its cleanup under both stops."""
    cleaning, clean = asyncio.Event(), asyncio.Event()
    cancellations: list[str] = []

    @queue.task("hang", timeout=0.05)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            try:
                await within(DEADLINE_S, clean.wait())
            except asyncio.CancelledError:
                cancellations.append("in the cleanup")

    job = await queue.enqueue(hang.bind())
    async with working(grace_s=60, cancel_grace_s=10) as running:
        await cleaning.wait()
        running.worker.stop()
        running.worker.stop()
        await seen(DrainStarted)
        clean.set()
        await running.ended()

    assert cancellations == []
    assert [(event.id, event.error_type) for event in seen.of(JobRetried)] == [(job.id, "TimeoutError")]


async def test_a_stop_before_the_run_and_after_it_does_nothing(queue: Queue, jobs: Jobs, seen: Events) -> None:
    """A worker that was stopped before it ran claims nothing; asking again is legal at any time."""

    @queue.task("work")
    async def work() -> None: ...

    await queue.enqueue(work.bind())
    worker = Worker(queue, WorkerSettings(**QUICK), emit=seen.emit)
    worker.stop()
    exit_code = await worker.run()
    worker.stop()

    assert exit_code is ExitCode.DRAINED
    assert await jobs.count() == {State.WAITING: 1}


async def test_a_stop_in_the_middle_of_a_flood_ends_the_claims(queue: Queue, jobs: Jobs, working: Working) -> None:
    """There is always room and always a full claim, so the loop never has to wait: it ends all the same."""

    @queue.task("quick")
    async def quick() -> None: ...

    await queue.enqueue_many([quick.bind() for _ in range(20_000)])
    async with working(default_slots=50) as running:
        await eventually(jobs.count, lambda found: found[State.DONE] > 0)
        running.worker.stop()
        code = await running.ended()

    left = await jobs.count()
    assert (code, left[State.RUNNING]) == (ExitCode.DRAINED, 0)
    assert left[State.WAITING] > 0
