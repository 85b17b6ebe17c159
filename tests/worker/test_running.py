"""Handlers of every shape get what was enqueued, one attempt at a time, in a context of their own."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest

from jobq import Job, Queue, Snooze
from jobq.core.states import State
from jobq.telemetry.events import DuplicatesUnstated, JobDied, JobRetried, WorkerStarted
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Events, Jobs


class Line(msgspec.Struct, frozen=True):
    price: Decimal
    sku: str = "none"


@dataclasses.dataclass(frozen=True)
class Order:
    lines: list[Line]
    placed_at: datetime


async def test_handlers_of_every_shape_run(queue: Queue, jobs: Jobs, working: Working) -> None:
    """`async def` and `def`, with and without `job`, each get their payload and end as done."""
    calls: list[tuple[str, int, int | None]] = []

    @queue.task("async")
    async def plain_async(n: int) -> None:
        calls.append(("async", n, None))

    @queue.task("async_job")
    async def async_with_job(job: Job, n: int) -> None:
        calls.append(("async_job", n, job.id))

    @queue.task("def")
    def plain_def(n: int) -> None:
        calls.append(("def", n, None))

    @queue.task("def_job")
    def def_with_job(job: Job, n: int) -> None:
        calls.append(("def_job", n, job.id))

    enqueued = await queue.enqueue_many(
        [plain_async.bind(1), async_with_job.bind(2), plain_def.bind(3), def_with_job.bind(n=4)]
    )
    async with working():
        await jobs.all_become(State.DONE, 4)

    assert sorted(calls) == [
        ("async", 1, None),
        ("async_job", 2, enqueued[1].id),
        ("def", 3, None),
        ("def_job", 4, enqueued[3].id),
    ]


async def test_a_payload_arrives_as_its_types(queue: Queue, jobs: Jobs, working: Working) -> None:
    """F58: structs, dataclasses, decimals, ids and times are equal after the way through the database."""
    got: list[tuple[object, ...]] = []
    order = Order([Line(Decimal("0.10"), "a"), Line(Decimal("19.99"))], datetime(2024, 2, 29, 12, tzinfo=UTC))
    token = UUID(int=7)

    @queue.task("typed")
    async def typed(order: Order, token: UUID, pause: timedelta, note: str | None = None, limit: int = 3) -> None:
        got.append((order, token, pause, note, limit))

    await queue.enqueue(typed.bind(order, token, pause=timedelta(seconds=90), limit=4))
    async with working():
        await jobs.all_become(State.DONE, 1)

    assert got == [(order, token, timedelta(seconds=90), None, 4)]


async def test_a_job_tells_about_itself(queue: Queue, jobs: Jobs, working: Working) -> None:
    """`job` shows id, kind, queue, attempt, fence and times of the attempt that runs."""
    seen_jobs: list[tuple[object, ...]] = []

    @queue.task("tell", queue="mail")
    async def tell(job: Job) -> None:
        seen_jobs.append((job.id, job.kind, job.queue, job.attempt, job.fence, job.completed, repr(job)))
        assert job.enqueued_at <= job.run_at

    done = await queue.enqueue(tell.bind())
    async with working():
        await jobs.become(done.id, State.DONE)

    assert seen_jobs == [(done.id, "tell", "mail", 1, 1, False, f"<Job tell {done.id} attempt 1>")]


async def test_a_def_handler_leaves_the_loop_free(queue: Queue, jobs: Jobs, working: Working) -> None:
    """`def` handlers run in threads, two at once with two slots, while `async def` handlers go on."""
    both = threading.Barrier(3)  # passed only when two threads and the loop's job are there at once
    threads: set[str] = set()

    @queue.task("block")
    def block() -> None:
        threads.add(threading.current_thread().name)
        both.wait(10)

    @queue.task("go_on")
    async def go_on() -> None:
        await asyncio.to_thread(both.wait, 10)

    await queue.enqueue_many([block.bind(), block.bind(), go_on.bind()])
    async with working(default_slots=2):
        await jobs.all_become(State.DONE, 3)

    assert len(threads) == 2
    assert threading.main_thread().name not in threads


async def test_middleware_wraps_every_handler(queue: Queue, jobs: Jobs, working: Working) -> None:
    """The first registered is the outermost, for `async def` and `def`, and it sees answer and error."""
    steps: list[str] = []

    def note(name: str) -> Callable[[Job, Callable[[], Awaitable[object]]], Awaitable[object]]:
        async def middleware(job: Job, call_next: Callable[[], Awaitable[object]]) -> object:
            steps.append(f"{name} before {job.kind}")
            try:
                answer = await call_next()
            except Exception as error:
                steps.append(f"{name} saw {error!r}")
                raise
            steps.append(f"{name} got {answer}")
            return answer

        return middleware

    queue.middleware(note("outer"))
    queue.middleware(note("inner"))

    @queue.task("fine")
    async def fine() -> int:
        steps.append("handler")
        return 7

    @queue.task("bad", max_attempts=1)
    def bad() -> None:
        raise ValueError("no")

    await queue.enqueue(fine.bind())
    async with working():
        await jobs.all_become(State.DONE, 1)
        assert steps == ["outer before fine", "inner before fine", "handler", "inner got 7", "outer got 7"]
        steps.clear()
        died = await queue.enqueue(bad.bind())
        await jobs.become(died.id, State.DEAD)

    assert steps == ["outer before bad", "inner before bad", "inner saw ValueError('no')", "outer saw ValueError('no')"]


async def test_the_answer_of_the_outermost_middleware_counts(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """Middleware may answer in the handler's place, and what it raises fails the attempt."""
    ran: list[str] = []

    @queue.middleware
    async def gate(job: Job, call_next: Callable[[], Awaitable[object]]) -> object:
        match job.kind:
            case "later":
                return Snooze(3600)
            case "refused":
                raise PermissionError("closed")
            case _:
                return await call_next()

    @queue.task("later")
    async def later() -> None:
        ran.append("later")

    @queue.task("refused", max_attempts=1)
    async def refused() -> None:
        ran.append("refused")

    snoozed, failed = await queue.enqueue_many([later.bind(), refused.bind()])
    async with working():
        died = await seen(JobDied)
        waiting = await jobs.become(snoozed.id, State.WAITING)

    assert (died.id, died.error_type) == (failed.id, "PermissionError")
    assert waiting.attempt == 0
    assert waiting.due_in_s > 3500
    assert ran == []


async def test_jobs_start_by_priority_then_time_then_id(queue: Queue, jobs: Jobs, working: Working) -> None:
    """With one slot, the order of starts is the order promised."""
    order: list[int] = []

    @queue.task("turn")
    async def turn(n: int) -> None:
        order.append(n)

    await queue.enqueue_many([turn.bind(3), turn.bind(4)])
    await queue.enqueue(turn.bind(5), priority=9)
    await queue.enqueue(turn.bind(1), priority=0)
    await queue.enqueue(turn.bind(2), priority=4)
    async with working(default_slots=1):
        await jobs.all_become(State.DONE, 5)

    assert order == [1, 2, 3, 4, 5]


async def test_a_scheduled_job_waits_for_its_time(queue: Queue, jobs: Jobs, working: Working) -> None:
    """A job that is due later starts by itself, and not earlier by the database's clock."""

    @queue.task("alarm")
    async def alarm() -> None: ...

    later = await queue.enqueue(alarm.bind(), run_at=timedelta(seconds=0.3))
    far = await queue.enqueue(alarm.bind(), run_at=timedelta(hours=1))
    due_at = await jobs.run("select run_at from @schema@.job where id = $1", later.id)
    async with working():
        await jobs.become(later.id, State.DONE)

        assert (await jobs.get(far.id)).state is State.WAITING
    assert await jobs.run("select claimed_at >= $1 from @schema@.done", due_at)


async def test_every_job_runs_once_with_many_workers(
    queue: Queue, dsn: str, schema: str, jobs: Jobs, working: Working
) -> None:
    """Three workers on one queue share 300 jobs, and none runs twice."""
    runs: Counter[int] = Counter()
    others = [Queue(dsn, schema=schema) for _ in range(2)]

    async def count(n: int) -> None:
        runs[n] += 1

    for each in (queue, *others):
        each.task("count")(count)
    await queue.enqueue_many([queue.job("count", {"n": n}) for n in range(300)])
    async with working(default_slots=5), working(others[0], default_slots=5), working(others[1], default_slots=5):
        await jobs.all_become(State.DONE, 300)

    assert runs == Counter(range(300))


async def test_a_worker_says_what_it_serves(queue: Queue, seen: Events, working: Working) -> None:
    """The start names kinds, and the slots of each executor by queue; kinds without `on_duplicate` are named."""

    @queue.task("a", queue="mail", on_duplicate="harmless")
    async def a() -> None: ...

    @queue.task("b", queue="mail")
    def b() -> None: ...

    @queue.task("c")
    async def c() -> None: ...

    async with working(slots={"mail": 3}, default_slots=7) as running:
        said = await seen(WorkerStarted)
        unstated = await seen(DuplicatesUnstated)

    assert said == WorkerStarted(running.worker.worker_id, {"mail": 3, "default": 7}, ["a", "b", "c"])
    assert unstated.kinds == ["b", "c"]


@pytest.mark.parametrize("style", ["async", "def"])
async def test_a_handler_may_enqueue(queue: Queue, jobs: Jobs, working: Working, style: str) -> None:
    """A job that is enqueued by a handler runs like any other."""

    @queue.task("parent")
    async def parent() -> None:
        await queue.enqueue("child", {})

    def child() -> None: ...

    async def async_child() -> None: ...

    queue.task("child")(async_child if style == "async" else child)
    await queue.enqueue(parent.bind())
    async with working():
        await jobs.all_become(State.DONE, 2)


async def test_attempts_are_numbered_from_one(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """`job.attempt` counts the starts, `job.fence` grows with them, and the event tells the failed one."""
    attempts: list[tuple[int, int]] = []

    @queue.task("flaky", backoff=AT_ONCE)
    async def flaky(job: Job) -> None:
        attempts.append((job.attempt, job.fence))
        if job.attempt < 3:
            raise OSError("again")

    done = await queue.enqueue(flaky.bind())
    async with working():
        now = await jobs.become(done.id, State.DONE)

    assert attempts == [(1, 1), (2, 2), (3, 3)]
    assert now.attempt == 3
    assert [(event.attempt, event.error_type) for event in seen.of(JobRetried)] == [(1, "OSError"), (2, "OSError")]
