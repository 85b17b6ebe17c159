"""A loop of the worker that raises what it should not is restarted, or the worker ends: never alive but idle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jobq import Job, Queue
from jobq.core.states import State
from jobq.db.store import Store
from jobq.telemetry.events import DatabaseAway, DrainStarted, LoopCrashed, WorkerStopped
from jobq.worker import loops, pulse
from jobq.worker.executor import Executor
from jobq.worker.listener import Listener
from jobq.worker.supervisor import ExitCode
from jobq.worker.upkeep import Upkeep
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs, eventually, within

AnyMethod = Callable[..., Awaitable[Any]]


def broken(method: AnyMethod, times: int) -> AnyMethod:
    """Return *method*, raising a bug at its first *times* calls."""
    calls = 0

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= times:
            raise ZeroDivisionError(f"bug {calls}")
        return await method(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("where", "name", "loop"),
    [
        (Store, "claim_jobs", "claims of default"),
        (Store, "settle_done", "settler"),
        (Executor, "sweep", "async sweep"),
        (Listener, "_stay", "listener"),
        (Upkeep, "tidy", "upkeep"),
    ],
    ids=["claims", "settler", "sweep", "listener", "upkeep"],
)
async def test_a_loop_that_crashes_once_is_restarted(
    queue: Queue,
    seen: Events,
    jobs: Jobs,
    working: Working,
    monkeypatch: pytest.MonkeyPatch,
    where: type[object],
    name: str,
    loop: str,
) -> None:
    """F03: the crash is told with its traceback, no outcome is lost, and the worker goes on."""
    runs = 0
    monkeypatch.setattr(where, name, broken(getattr(where, name), 1))

    @queue.task("work")
    async def work() -> None:
        nonlocal runs
        runs += 1

    await queue.enqueue(work.bind())
    async with working(upkeep_s=0.02) as running:
        crash = await seen(LoopCrashed)
        await jobs.all_become(State.DONE, 1)
        exit_code = await running.stop()
    seen.all.clear()

    assert (crash.loop, crash.error_type, crash.error_message, crash.restarting) == (
        loop,
        "ZeroDivisionError",
        "bug 1",
        True,
    )
    assert 'raise ZeroDivisionError(f"bug {calls}")' in crash.traceback
    assert exit_code is ExitCode.DRAINED
    assert runs == 1


async def test_a_loop_that_keeps_crashing_ends_the_worker(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs may still finish; the exit code is 1, so that the process is started again."""
    started, finish = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(loops, "RESTARTS", 2)

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    await queue.enqueue(work.bind())
    async with working() as running:
        await started.wait()
        monkeypatch.setattr(Store, "claim_jobs", broken(Store.claim_jobs, 100))
        await seen(DrainStarted)
        finish.set()
        exit_code = await running.ended()
    crashes = seen.of(LoopCrashed)
    stopped = seen.of(WorkerStopped)
    seen.all.clear()

    assert {crash.loop for crash in crashes} == {"claims of default"}
    assert [crash.restarting for crash in crashes] == [True, True, False]
    assert exit_code is ExitCode.CRASHED
    assert stopped == [WorkerStopped(1, 1, 0, 0)]
    assert await jobs.count() == {State.DONE: 1}


async def test_a_settler_that_keeps_crashing_ends_the_worker(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever for outcomes that nobody writes."""
    monkeypatch.setattr(loops, "RESTARTS", 1)
    monkeypatch.setattr(Store, "settle_done", broken(Store.settle_done, 100))

    @queue.task("work")
    async def work() -> None: ...

    await queue.enqueue(work.bind())
    async with working(statement_deadline_s=1.0) as running:
        exit_code = await running.ended(5)
    stopped = seen.of(WorkerStopped)
    seen.all.clear()

    assert exit_code is ExitCode.CRASHED
    assert stopped[0].unsettled == 1


async def test_a_worker_survives_the_loss_of_every_connection(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job in hand is run once, new ones are heard of, and no loop says more than once that the database is away."""
    monkeypatch.setattr(pulse, "FIRST_PAUSE_S", 0.01)
    started, finish = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    @queue.task("work")
    async def work(job: Job) -> None:
        attempts.append(job.attempt)
        started.set()
        await finish.wait()

    await queue.enqueue(work.bind())
    async with working():
        await started.wait()
        await eventually(lambda: jobs.backends("query ilike 'listen%' and state = 'idle'"))
        assert await jobs.terminate() >= 4
        await eventually(lambda: jobs.backends("query ilike 'listen%' and state = 'idle'"))
        finish.set()
        await jobs.all_become(State.DONE, 1)
        job = await queue.enqueue(work.bind())
        await within(5, jobs.become(job.id, State.DONE))

    assert attempts == [1, 1]
    away = [event.loop for event in seen.of(DatabaseAway)]
    assert sorted(away) == sorted(set(away))
