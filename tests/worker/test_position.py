"""Claims that start at a position find what becomes visible behind it: late commits, and rows that were locked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Handler, Job, JobId, Queue
from jobq.core import position
from jobq.core.position import FRONT
from jobq.core.states import State
from jobq.db.store import Store
from jobq.worker import look_behind
from tests.db.rows import Rows
from tests.worker.conftest import Working
from tests.worker.observe import Jobs, Running, eventually, until_true

if TYPE_CHECKING:
    from datetime import datetime

    from asyncpg import Connection, Record

    Conn = Connection[Record]

ISOLATIONS = ["read_committed", "repeatable_read", "serializable"]
HELD = {"reading": "select count(*) from @schema@.worker", "writing": "select pg_current_xact_id()"}
QUEUE, KIND = "mail", "send_receipt"
"""Those of `Rows`."""


@pytest.fixture
def ran(queue: Queue) -> set[JobId]:
    """The jobs whose handler was called."""
    ran: set[JobId] = set()

    @queue.task(KIND, queue=QUEUE)
    async def work(job: Job) -> None:
        ran.add(job.id)

    return ran


@pytest.fixture
def handler(queue: Queue, ran: set[JobId]) -> Handler[..., object]:
    """The handler that fills *ran*."""
    return queue.handlers[KIND]


@asynccontextmanager
async def flood(queue: Queue, handler: Handler[..., object]) -> AsyncIterator[None]:
    """Keep jobs coming, so that the worker does not sleep and its position moves on."""

    async def feed() -> None:
        while True:
            await queue.enqueue_many([handler.bind()] * 5)
            await asyncio.sleep(0.01)

    feeding = asyncio.create_task(feed())
    yield
    feeding.cancel()


async def passed_by(running: Running, jobs: Jobs, moment: datetime) -> None:
    """Wait until claims start later than *moment*, a second back from the database's clock and more."""
    parts = running.worker._parts
    assert parts is not None
    (claimer,) = parts.claimers
    await until_true(lambda: claimer.position.marks[5].run_at > moment)
    await eventually(lambda: jobs.run("select clock_timestamp() - $1 > interval '1.01 seconds'", moment))


@pytest.mark.parametrize("holder", [None, *HELD])
async def test_what_is_committed_late_starts_all_the_same(
    queue: Queue,
    rows: Rows,
    jobs: Jobs,
    working: Working,
    ran: set[JobId],
    handler: Handler[..., object],
    connect: Callable[[], Awaitable[Conn]],
    holder: str | None,
) -> None:
    """New, released and redriven jobs of transactions that outlast the position, at every isolation level."""
    letters = await rows.many_dead(len(ISOLATIONS))
    held = [await rows.running() for _ in ISOLATIONS]
    late: list[JobId] = []
    async with AsyncExitStack() as stack:
        if holder is not None:
            keeper = await connect()
            await stack.enter_async_context(keeper.transaction(isolation="repeatable_read"))
            await keeper.fetchval(jobs.text(HELD[holder]))
        running = await stack.enter_async_context(working())
        await stack.enter_async_context(flood(queue, handler))
        transactions = []
        for isolation, letter, attempt in zip(ISOLATIONS, letters, held, strict=True):
            conn = await connect()
            transaction = conn.transaction(isolation=isolation)  # type: ignore[arg-type]
            await transaction.start()
            late.append((await queue.enqueue(handler.bind(), conn=conn)).id)
            await rows.store.redrive_jobs(conn, [letter])
            await rows.store.settle_released(conn, attempt.worker_id, [attempt], [0.0], [None])
            transactions.append(transaction)
        await passed_by(running, jobs, await jobs.run("select clock_timestamp()"))

        for transaction in transactions:
            await transaction.commit()

        await until_true(lambda: ran.issuperset([*late, *letters, *(attempt.id for attempt in held)]))


async def test_a_job_that_was_locked_when_claims_came_by_starts_when_it_is_free(
    queue: Queue,
    rows: Rows,
    jobs: Jobs,
    working: Working,
    ran: set[JobId],
    handler: Handler[..., object],
    connect: Callable[[], Awaitable[Conn]],
) -> None:
    """Claims pass over it; nobody else may be there to find it."""
    job_id = await rows.waiting()
    locker = await connect()
    async with working() as running, flood(queue, handler):
        async with locker.transaction():
            await locker.execute(jobs.text("select from @schema@.job where id = $1 for update"), job_id)
            await passed_by(running, jobs, await jobs.run("select clock_timestamp()"))

        await until_true(lambda: job_id in ran)


async def test_a_job_put_behind_by_hand_is_found(
    queue: Queue, rows: Rows, jobs: Jobs, working: Working, ran: set[JobId], handler: Handler[..., object]
) -> None:
    """Somebody sets `run_at` to yesterday with SQL while the worker is busy."""
    job_id = await rows.scheduled()
    async with working() as running, flood(queue, handler):
        await passed_by(running, jobs, await jobs.run("select clock_timestamp()"))

        await jobs.run("update @schema@.job set run_at = now() - interval '1 day' where id = $1", job_id)

        await jobs.become(job_id, State.DONE)


async def test_a_sleeping_worker_does_not_look_behind(
    queue: Queue,
    jobs: Jobs,
    working: Working,
    ran: set[JobId],
    handler: Handler[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its polls start at the front, so it asks nothing more than an idle worker has to."""
    looks: list[object] = []
    find_passed = Store.find_passed

    async def counted(store: Store, conn: Conn, **options: Any) -> datetime | None:
        looks.append(options)
        return await find_passed(store, conn, **options)

    monkeypatch.setattr(Store, "find_passed", counted)
    monkeypatch.setattr(look_behind, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(position, "CHEAP_S", 60.0)  # on however slow a machine
    async with working() as running:
        job = await queue.enqueue(handler.bind())
        await jobs.become(job.id, State.DONE)
        parts = running.worker._parts
        assert parts is not None
        (claimer,) = parts.claimers
        await until_true(lambda: claimer.is_asleep and claimer.position.marks == FRONT)
        before = len(looks)
        pulse = parts.look_behind.pulse
        rounds = [pulse._worked_at]
        while len(rounds) < 10:
            seen = rounds[-1]
            rounds.append(await until_true(lambda: pulse._worked_at if pulse._worked_at > seen else 0.0))  # noqa: B023

    assert len(looks) == before
