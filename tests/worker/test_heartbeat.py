"""The heartbeat keeps what the worker holds, whatever its handlers do, and says so when it can no longer be kept."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, Queue
from jobq.core.states import State
from jobq.db.store import Store
from jobq.settings import WorkerSettings
from jobq.telemetry.events import (
    JobReaped,
    JobRetried,
    LeaseLapsed,
    LeaseLost,
    LoopBlocked,
    LoopCrashed,
    LoopUnblocked,
    WorkerReaped,
)
from jobq.worker import pulse
from jobq.worker.supervisor import ExitCode
from tests.worker.beside import look_beside, worker_beside
from tests.worker.conftest import AT_ONCE, QUICK, Working
from tests.worker.observe import Events, Jobs, eventually, until_true

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]

LEASES: dict[str, Any] = {
    "worker_lease_s": 0.9,
    "beat_s": 0.2,
    "beat_deadline_s": 0.6,
    "job_lease_s": 2.0,
    "statement_deadline_s": 1.0,
}
LEASE_S: float = LEASES["worker_lease_s"]


# -- a blocked event loop ----------------------------------------------------------------------------


async def test_a_handler_that_blocks_the_loop_loses_no_lease(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, dsn: str, schema: str
) -> None:
    """F34: three leases long, beside a worker that would take its job; who blocks, and at which line, is said."""
    starts: list[int] = []
    lines: list[int] = []

    @queue.task("block")
    async def block(job: Job) -> None:
        starts.append(job.attempt)
        frame = inspect.currentframe()
        assert frame is not None
        lines.append(frame.f_lineno + 1)
        time.sleep(3 * LEASE_S)

    other = Queue(dsn, schema=schema)

    @other.task("something_else")
    async def something_else() -> None: ...

    async with worker_beside(other, WorkerSettings(**QUICK | LEASES)) as events, working(**LEASES):
        job = await queue.enqueue(block.bind())
        now = await jobs.become(job.id, State.DONE)
        blocked = await seen(LoopBlocked)
        await seen(LoopUnblocked)

    assert (starts, now.attempt) == ([1], 1)
    assert [event for event in events if isinstance(event, JobReaped | WorkerReaped)] == []
    assert not seen.has(LeaseLapsed, LeaseLost)
    assert (blocked.id, blocked.kind) == (job.id, "block")
    assert blocked.location == f"{__file__}:{lines[0]} in block"
    assert 1.0 <= blocked.still_s < 2.0


async def test_a_job_past_its_time_out_is_settled_though_the_loop_is_blocked(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, dsn: str
) -> None:
    """The side thread writes the time-out; what the handler says afterwards is refused. Its own line is named."""
    settled = threading.Event()
    in_time: list[bool] = []

    @queue.task("block", timeout=0.1, backoff=AT_ONCE)
    async def block(job: Job) -> None:
        if job.attempt == 1:
            in_time.append(settled.wait(8))

    job = await queue.enqueue(block.bind())
    text = jobs.text("select errors is not null from @schema@.job where id = $1")
    looking = look_beside(dsn, lambda conn: conn.fetchval(text, job.id), settled)
    async with working(**LEASES):
        lost = await seen(LeaseLost)
        now = await jobs.become(job.id, State.DONE)
    await looking.join()

    assert in_time == [True]
    assert (lost.id, lost.attempt, now.attempt) == (job.id, 1, 2)
    assert [event.attempt for event in seen.of(LeaseLost)] == [1]
    assert seen.of(LoopBlocked)[0].kind == "block"
    assert seen.of(LoopBlocked)[0].location.startswith(f"{__file__}:")


async def test_a_time_out_that_the_side_thread_settles_is_told(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, dsn: str
) -> None:
    """As any other: somebody who reads the log sees why the job runs again."""
    settled = threading.Event()

    @queue.task("block", timeout=0.1, backoff=AT_ONCE)
    async def block(job: Job) -> None:
        if job.attempt == 1:
            settled.wait(8)

    job = await queue.enqueue(block.bind())
    text = jobs.text("select errors is not null from @schema@.job where id = $1")
    looking = look_beside(dsn, lambda conn: conn.fetchval(text, job.id), settled)
    async with working(**LEASES):
        await jobs.become(job.id, State.DONE)
    await looking.join()

    assert [(event.id, event.error_type) for event in seen.of(JobRetried)] == [(job.id, "TimeoutError")]


# -- jobs in hand -------------------------------------------------------------------------------------


async def test_a_job_that_waits_for_its_settle_is_renewed(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished work is not given away because its outcome is late."""
    settle = Store.settle_done
    write = asyncio.Event()

    async def late(store: Store, *arguments: Any) -> Any:
        await write.wait()
        return await settle(store, *arguments)

    @queue.task("work")
    async def work() -> None: ...

    monkeypatch.setattr(Store, "settle_done", late)
    job = await queue.enqueue(work.bind())
    async with working(**QUICK | LEASES | {"statement_deadline_s": 8.0, "job_lease_s": 16.0}):
        first = await eventually(lambda: jobs.run("select lease_until from @schema@.job where id = $1", job.id))
        await eventually(lambda: jobs.run("select lease_until > $2 from @schema@.job where id = $1", job.id, first))
        write.set()
        await jobs.become(job.id, State.DONE)


async def test_a_broken_heartbeat_connection_costs_nothing(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened again at once: the job in hand runs on."""
    monkeypatch.setattr(pulse, "FIRST_PAUSE_S", 0.01)
    started, finish = asyncio.Event(), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    job = await queue.enqueue(work.bind())
    async with working(**LEASES):
        await started.wait()
        for _ in range(3):
            await eventually(lambda: jobs.terminate("jobq heartbeat"))
            later = await jobs.run("select max(lease_until) from @schema@.worker")
            await eventually(lambda: jobs.run("select max(lease_until) > $1 from @schema@.worker", later))  # noqa: B023
        finish.set()
        now = await jobs.become(job.id, State.DONE)

    assert now.attempt == 1
    assert not seen.has(LeaseLapsed, LeaseLost)


async def test_a_side_thread_that_crashes_is_replaced(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a loop and a connection of its own; the job in hand runs on."""
    started, finish = asyncio.Event(), asyncio.Event()
    beat, broken = Store.beat, [True]

    async def crash_once(store: Store, *arguments: Any) -> None:
        if started.is_set() and broken:
            broken.clear()
            raise RuntimeError("injected")
        await beat(store, *arguments)

    monkeypatch.setattr(Store, "beat", crash_once)

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    job = await queue.enqueue(work.bind())
    async with working(**LEASES):
        crash = await seen(LoopCrashed)
        later = await jobs.run("select clock_timestamp() + interval '1 s'")
        await eventually(lambda: jobs.run("select max(lease_until) > $1 from @schema@.worker", later))
        finish.set()
        now = await jobs.become(job.id, State.DONE)

    assert (crash.loop, crash.restarting, now.attempt) == ("side thread", True, 1)
    assert not seen.has(LeaseLost)
    seen.all.clear()


# -- the worker's row --------------------------------------------------------------------------------


async def test_a_worker_says_what_it_is_and_says_goodbye(queue: Queue, jobs: Jobs, working: Working) -> None:
    """Its row is there before it counts as started, and gone when it has drained."""

    @queue.task("b", queue="mail")
    async def b() -> None: ...

    @queue.task("a", queue="mail")
    def a() -> None: ...

    async with working() as running:
        row = "select row(worker_id, pid > 0, host <> '', version <> '', queues, kinds)::text from @schema@.worker"
        said = await jobs.run(row)
        await running.stop()

    assert said == f'({running.worker.worker_id},t,t,t,{{mail}},"{{a,b}}")'
    assert await jobs.run("select count(*) from @schema@.worker") == 0


async def test_a_worker_that_leaves_something_behind_keeps_its_row(
    queue: Queue, jobs: Jobs, working: Working, sql: Callable[[str], str]
) -> None:
    """A thread that runs on may still have effects: its job is free when the worker's lease has lapsed."""
    started, finish = threading.Event(), threading.Event()

    @queue.task("hang")
    def hang() -> None:
        started.set()
        finish.wait(8)

    job = await queue.enqueue(hang.bind())
    try:
        async with working(grace_s=0.05, cancel_grace_s=0.05) as running:
            await until_true(started.is_set)
            code = await running.stop()
    finally:
        finish.set()

    assert code is ExitCode.HANDED_BACK
    assert await jobs.run("select array_agg(worker_id) from @schema@.worker") == [running.worker.worker_id]
    assert (await jobs.get(job.id)).state is State.RUNNING
