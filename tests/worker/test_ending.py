"""The end of a worker comes in any case, within its limits, and says what it leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, Queue
from jobq.core.job import ClaimedJob
from jobq.core.states import State
from jobq.db import pools
from jobq.db.store import Store
from jobq.settings import WorkerSettings
from jobq.telemetry.events import AttemptOverran, LifespanOverran, WorkerStopped
from jobq.worker.supervisor import ExitCode, Worker
from tests.worker.conftest import QUICK, Working
from tests.worker.observe import Events, Jobs, Running, eventually
from tests.worker.stubborn import swallow_cancellation

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]


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
    async with working(statement_deadline_s=1.0) as running:
        for _ in range(2):
            await ran.acquire()
        exit_code = await running.stop()

    assert exit_code is ExitCode.HANDED_BACK
    assert seen.of(WorkerStopped)[0].unsettled == 2
    assert await jobs.count() == {State.RUNNING: 2}


async def test_a_lifespan_that_never_closes_does_not_hold_up_the_end(
    queue: Queue, seen: Events, working: Working
) -> None:
    """Every step of the stop has a limit, that of the user's cleanup too."""

    @queue.lifespan
    async def lifespan() -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()

    @queue.task("work")
    async def work() -> None: ...

    async with working(cancel_grace_s=0.1) as running:
        exit_code = await running.stop(3)

    assert exit_code is ExitCode.DRAINED
    assert seen.of(LifespanOverran) == [LifespanOverran(0.1)]


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
        assert {"jobq claims", "jobq handlers", "jobq listener", "jobq heartbeat"} <= set(names)
        await running.stop()

    await eventually(jobs.backends, lambda found: found == [])


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
    worker = Worker(queue, WorkerSettings(**QUICK), emit=seen.emit)
    running = Running(worker, asyncio.create_task(worker.run()))
    await started.wait()
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.ended(3)
    left = {task.get_coro().__qualname__ for task in asyncio.all_tasks() - before}  # type: ignore[union-attr]

    assert cancelled.is_set()
    assert left == set()


async def test_a_cancelled_run_starts_nothing_any_more(
    queue: Queue, jobs: Jobs, seen: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that is under way comes to its end, and its jobs are not left running without a worker."""
    claimed, answer = asyncio.Event(), asyncio.Event()
    cancelled: list[bool] = []
    claim = Store.claim_jobs

    async def claim_slowly(store: Store, conn: Conn, **options: Any) -> list[ClaimedJob]:
        found = await claim(store, conn, **options)
        claimed.set()
        await answer.wait()
        return found

    monkeypatch.setattr(Store, "claim_jobs", claim_slowly)

    @queue.task("endless")
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    await queue.enqueue(endless.bind())
    before = asyncio.all_tasks()
    worker = Worker(queue, WorkerSettings(**QUICK), emit=seen.emit)
    running = Running(worker, asyncio.create_task(worker.run()))
    await claimed.wait()
    running.task.cancel()
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await running.ended(3)

    assert asyncio.all_tasks() - before == set()
    assert len(cancelled) <= 1
