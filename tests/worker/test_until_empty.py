"""`run(until_empty=True)` works until nothing is ready, running or unwritten, and ends by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, Queue
from jobq.core.job import ClaimedJob
from jobq.core.states import State
from jobq.db.reports import Reports
from jobq.db.store import Store
from jobq.worker.assembly import Parts
from jobq.worker.supervisor import ExitCode
from tests.worker.conftest import Working
from tests.worker.observe import Jobs, eventually

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]


async def test_an_empty_queue_ends_at_once(queue: Queue, working: Working) -> None:
    """Nothing to do is done."""

    @queue.task("work")
    async def work() -> None: ...

    async with working(until_empty=True) as running:
        assert await running.ended() is ExitCode.DRAINED


async def test_all_that_is_ready_runs_also_what_comes_of_it(queue: Queue, jobs: Jobs, working: Working) -> None:
    """Jobs of all queues, both kinds of handlers, follow-ups; what is due later or of no kind here is left."""

    @queue.task("parent", queue="mail")
    async def parent(n: int) -> None:
        await queue.enqueue(child.bind(n))

    @queue.task("child")
    def child(n: int) -> None: ...

    await queue.enqueue_many([parent.bind(n) for n in range(30)])
    await queue.enqueue(child.bind(-1), run_at=timedelta(hours=1))
    await queue.enqueue("stranger", {}, queue="default")
    async with working(until_empty=True, default_slots=4) as running:
        exit_code = await running.ended()

    assert exit_code is ExitCode.DRAINED
    assert await jobs.count() == {State.DONE: 60, State.WAITING: 2}


async def test_a_claim_under_way_is_not_taken_for_emptiness(
    queue: Queue, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is claimed already and not started yet is neither ready nor running, and must not be left."""
    claim, is_busy = Store.claim_jobs, Parts.is_busy
    asked = asyncio.Event()

    async def claim_slowly(store: Store, conn: Conn, **options: Any) -> list[ClaimedJob]:
        found = await claim(store, conn, **options)
        if found:
            async with asyncio.timeout(3):
                await asked.wait()
        return found

    def ask(parts: Parts) -> bool:
        answer: bool = is_busy.__get__(parts)
        if answer:
            asked.set()
        return answer

    monkeypatch.setattr(Store, "claim_jobs", claim_slowly)
    monkeypatch.setattr(Parts, "is_busy", property(ask))

    @queue.task("work")
    async def work(job: Job) -> None: ...

    job = await queue.enqueue(work.bind())
    async with working(until_empty=True) as running:
        await running.ended()

    assert (await jobs.get(job.id)).state is State.DONE


async def test_a_job_that_no_loop_of_this_worker_takes_is_not_waited_for(
    queue: Queue, jobs: Jobs, working: Working
) -> None:
    """A known kind in another kind's queue is claimed by nobody here, so it does not keep the worker."""

    @queue.task("a", queue="one")
    async def a() -> None: ...

    @queue.task("b", queue="two")
    async def b() -> None: ...

    await queue.enqueue(a.bind(), queue="two")
    async with working(until_empty=True) as running:
        await running.ended(3)


async def test_what_a_job_enqueues_during_the_check_is_not_left(
    queue: Queue, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that starts and ends between the questions about two queues has put another into the first: it runs too."""
    has_ready = Reports.has_ready
    started, finish = asyncio.Event(), asyncio.Event()
    asked: list[list[str]] = []

    @queue.task("first", queue="one")
    async def first() -> None:
        started.set()
        await finish.wait()

    @queue.task("child", queue="one")
    async def child() -> None: ...

    @queue.task("parent", queue="two")
    async def parent() -> None:
        await queue.enqueue(child.bind(), notify=False)

    async def ask(reports: Reports, conn: Conn, queues: list[str], kinds: list[str]) -> bool:
        answer = await has_ready(reports, conn, queues, kinds)
        if finish.is_set() and not asked:
            asked.append(queues)
            await jobs.run("select @schema@.notify_sleepers('{two}')")
            await jobs.become(waiting.id, State.DONE)
        return answer

    await queue.enqueue(first.bind())
    async with working(until_empty=True, poll_s=30) as running:
        await started.wait()
        await eventually(jobs.asleep, lambda asleep: asleep == ["one", "two"])
        await eventually(lambda: jobs.backends("query ilike 'listen%' and state = 'idle'"))
        waiting = await queue.enqueue(parent.bind(), notify=False)
        monkeypatch.setattr(Reports, "has_ready", ask)
        finish.set()
        await running.ended()

    assert asked == [["one"]]
    assert await jobs.count() == {State.DONE: 3}
