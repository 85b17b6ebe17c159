"""A stop: nothing more starts, what runs may finish, what does not is handed back, and the end comes in any case."""

from __future__ import annotations

import asyncio
import threading

import pytest

from jobq import Job, Queue
from jobq.core.states import State
from jobq.db import pools
from jobq.settings import WorkerSettings
from jobq.telemetry.events import AttemptOverran, DrainStarted, JobDied, JobRetried, WorkerStopped
from jobq.worker.supervisor import ExitCode, Worker
from tests.worker.conftest import QUICK, Working
from tests.worker.observe import DEADLINE_S, Events, Jobs, Running, eventually, within
from tests.worker.test_timeouts import swallow_cancellation


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
    """Its cleanup runs to its end, its attempt is given back, nothing is recorded as a failure; exit code 3."""
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
        assert (now.state, now.attempt, now.errors) == (State.WAITING, 0, [])
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
    """A handler is cancelled once: what timed out counts as that, and finishes its cleanup under both stops."""
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


async def test_a_handler_that_ignores_the_stop_is_named_and_left_behind(
    queue: Queue, seen: Events, working: Working
) -> None:
    """The worker ends within grace and cancel grace, with exit code 3, and says that the process has to go."""
    started, release = asyncio.Event(), asyncio.Event()

    @queue.task("stubborn")
    async def stubborn() -> None:
        started.set()
        await swallow_cancellation(release)

    job = await queue.enqueue(stubborn.bind())
    async with working(grace_s=0.05, cancel_grace_s=0.1) as running:
        await started.wait()
        exit_code = await running.stop(3)
        is_stuck = running.worker.is_stuck
        release.set()

    assert exit_code is ExitCode.HANDED_BACK
    assert is_stuck
    assert [(event.id, event.blocks_thread) for event in seen.of(AttemptOverran)] == [(job.id, False)]


async def test_a_def_handler_that_outlasts_the_stop_is_named_and_left_to_its_lease(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """A thread cannot be cancelled: its job stays running, and the log says which it is."""
    started, release = threading.Event(), threading.Event()

    @queue.task("stuck")
    def stuck() -> None:
        started.set()
        release.wait(20)

    job = await queue.enqueue(stuck.bind())
    try:
        async with working(grace_s=0.05, cancel_grace_s=0.05) as running:
            await asyncio.to_thread(started.wait)
            exit_code = await running.stop(3)
            kept = await jobs.get(job.id)
            is_stuck = running.worker.is_stuck
    finally:
        release.set()

    assert exit_code is ExitCode.HANDED_BACK
    assert is_stuck
    assert (kept.state, kept.attempt) == (State.RUNNING, 1)
    assert seen.of(WorkerStopped)[0].unsettled == 1
    assert [(event.id, event.blocks_thread) for event in seen.of(AttemptOverran)] == [(job.id, True)]


async def test_a_handler_that_keeps_a_connection_does_not_hold_up_the_end(
    queue: Queue, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool is closed without it."""
    monkeypatch.setattr(pools, "LEAVE_TIMEOUT_S", 0.1)
    started, release = asyncio.Event(), asyncio.Event()

    @queue.task("stubborn")
    async def stubborn() -> None:
        async with (await queue.pool()).acquire():
            started.set()
            await swallow_cancellation(release)

    await queue.enqueue(stubborn.bind())
    async with working(grace_s=0.05, cancel_grace_s=0.05) as running:
        await started.wait()
        exit_code = await running.stop(5)
        await eventually(jobs.backends, lambda found: found == [])
        release.set()

    assert exit_code is ExitCode.HANDED_BACK


async def test_a_worker_leaves_no_connection(queue: Queue, jobs: Jobs, working: Working) -> None:
    """After the end none of its backends is there, its pool's included."""

    @queue.task("work")
    async def work(job: Job) -> None:
        async with job.transaction():
            pass

    await queue.enqueue(work.bind())
    async with working() as running:
        await jobs.all_become(State.DONE, 1)
        names = await eventually(jobs.backends, lambda found: "jobq listener" in found)
        assert {"jobq claims", "jobq handlers", "jobq listener", "jobq upkeep"} <= set(names)
        await running.stop()

    await eventually(jobs.backends, lambda found: found == [])


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


async def test_outcomes_that_cannot_be_written_at_the_stop_are_counted(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """The end waits for them as long as a statement may take, then says how many are left, with exit code 3."""
    await jobs.script(
        """
        create function @schema@.away() returns trigger language plpgsql as
            $away$ begin raise exception 'away' using errcode = '25006'; end $away$;
        create trigger away before delete on @schema@.job for each row execute function @schema@.away();
        """
    )
    ran = asyncio.Semaphore(0)

    @queue.task("work")
    async def work() -> None:
        ran.release()

    await queue.enqueue_many([work.bind()] * 2)
    async with working(statement_deadline_s=0.3) as running:
        for _ in range(2):
            await ran.acquire()
        exit_code = await running.stop()

    assert exit_code is ExitCode.HANDED_BACK
    assert seen.of(WorkerStopped)[0].unsettled == 2
    assert await jobs.count() == {State.RUNNING: 2}


async def test_a_cancelled_run_takes_its_jobs_along(queue: Queue, jobs: Jobs, seen: Events) -> None:
    """Who cancels the task of `run`, as a web server's lifespan does, is left with no task of the worker's."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    @queue.task("endless")
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await queue.enqueue(endless.bind())
    before = asyncio.all_tasks()
    running = Running(
        worker := Worker(queue, WorkerSettings(**QUICK), emit=seen.emit), asyncio.create_task(worker.run())
    )
    await started.wait()
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.ended(3)
    left = {task.get_coro().__qualname__ for task in asyncio.all_tasks() - before}  # type: ignore[union-attr]

    assert cancelled.is_set()
    assert left == set()


async def test_a_lifespan_that_never_closes_does_not_hold_up_the_end(queue: Queue, working: Working) -> None:
    """Every step of the stop has a limit, that of the user's cleanup too."""
    never = asyncio.Event()

    @queue.lifespan
    async def lifespan():  # type: ignore[no-untyped-def]
        yield
        await never.wait()

    @queue.task("work")
    async def work() -> None: ...

    async with working(cancel_grace_s=0.1) as running:
        await running.stop(3)
