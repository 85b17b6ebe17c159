"""Whatever a handler raises is a failure of its job: the others finish and the worker lives."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, NoReturn

import msgspec
import pytest

from jobq import Job, Queue, Snooze
from jobq.core.states import State
from jobq.telemetry.events import JobDied, OutcomeNotStored
from jobq.worker.supervisor import ExitCode
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Events, Jobs


class Custom(BaseException):
    """No `Exception`, so that a plain `except` does not see it."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Liar(Exception):
    """Says that it is of a class that cannot be asked for."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class Big(msgspec.Struct, weakref=True):
    body: str = ""


ESCAPES = [
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    StopIteration,
    StopAsyncIteration,
    Custom,
    asyncio.CancelledError,
]


@pytest.mark.parametrize("style", ["async", "def"])
async def test_what_is_no_exception_fails_only_its_job(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, style: str
) -> None:
    """F63: exits, interrupts and stray cancellations are retried with their type told; jobs beside them finish."""
    beside, finish = asyncio.Semaphore(0), asyncio.Event()

    @queue.task("beside")
    async def beside_them() -> None:
        beside.release()
        await finish.wait()

    async def escape(n: int) -> None:
        raise ESCAPES[n]("out")

    def escape_in_thread(n: int) -> None:
        raise ESCAPES[n]("out")

    queue.task("escape", max_attempts=2, backoff=AT_ONCE)(escape if style == "async" else escape_in_thread)
    await queue.enqueue_many([beside_them.bind()] * 3)
    async with working() as running:
        for _ in range(3):
            await beside.acquire()
        enqueued = await queue.enqueue_many([queue.job("escape", {"n": n}) for n in range(len(ESCAPES))])
        await seen(JobDied, nth=len(ESCAPES))
        finish.set()
        await jobs.until({State.DONE: 3, State.DEAD: len(ESCAPES)})
        assert await running.stop() is ExitCode.DRAINED

    died = {event.id: event for event in seen.of(JobDied)}
    told = [died[job.id].error_type for job in enqueued]
    assert told == [
        "SystemExit",
        "KeyboardInterrupt",
        "GeneratorExit",
        "RuntimeError",  # Python's own doing: "coroutine raised StopIteration"
        "StopAsyncIteration",
        "tests.worker.test_containment.Custom",
        "asyncio.exceptions.CancelledError",
    ]
    assert {(event.attempt, event.reason) for event in died.values()} == {(2, "attempts used up")}


async def test_a_handler_that_cancels_its_own_task_fails_only_its_job(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F63: a cancellation that the handler made itself is its failure if it gets out, and nothing if it does not."""

    @queue.task("stray", max_attempts=1)
    async def stray() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @queue.task("late")
    async def late() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # Delivered at the next await, of which there is none.

    stray_job, late_job = await queue.enqueue_many([stray.bind(), late.bind()])
    async with working():
        await jobs.become(stray_job.id, State.DEAD)
        await jobs.become(late_job.id, State.DONE)

    assert seen.of(JobDied)[0].error_type == "asyncio.exceptions.CancelledError"


async def test_an_exception_without_text_is_settled_all_the_same(queue: Queue, seen: Events, working: Working) -> None:
    """A `__str__` that raises does not keep the job running for ever."""

    @queue.task("unprintable", max_attempts=1)
    async def unprintable() -> NoReturn:
        raise Unprintable

    await queue.enqueue(unprintable.bind())
    async with working():
        died = await seen(JobDied)

    assert died.error_type == "tests.worker.test_containment.Unprintable"
    assert died.error_message == "(no message: its __str__ raised RuntimeError)"


async def test_an_exception_that_hides_its_class_is_settled_all_the_same(
    queue: Queue, seen: Events, working: Working
) -> None:
    """A `__class__` that raises does not keep the job running for ever."""

    @queue.task("liar", max_attempts=1)
    async def liar() -> NoReturn:
        raise Liar

    await queue.enqueue(liar.bind())
    async with working():
        died = await seen(JobDied)

    assert died.error_type == "tests.worker.test_containment.Liar"


async def test_an_answer_that_cannot_be_told_is_settled_all_the_same(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """A `Snooze` of a number that Python refuses to print waits for the first backoff."""

    @queue.task("nap")
    async def nap() -> Snooze:
        return Snooze(10**5000)

    job = await queue.enqueue(nap.bind())
    async with working():
        await jobs.waits_longer(job.id, 0)


async def test_error_text_that_postgres_refuses_is_stored_without_it(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F55: NUL and lone surrogates in message, type name and notes end in a stored outcome, as do 10 MB of text."""

    @queue.task("message", max_attempts=1)
    async def message() -> NoReturn:
        raise ValueError("a\0b \ud800 c")

    @queue.task("name", max_attempts=1)
    async def name() -> NoReturn:
        error = type("Odd\ud800", (Exception,), {"__module__": "m\udc00"})("x")
        error.add_note("note \0 \udfff")
        raise error

    @queue.task("huge", max_attempts=1)
    def huge() -> NoReturn:
        raise ValueError("x" * 10_000_000)

    @queue.task("again", max_attempts=2, backoff=AT_ONCE)
    async def again() -> NoReturn:
        raise KeyError("\0\ud800")

    enqueued = await queue.enqueue_many([message.bind(), name.bind(), huge.bind(), again.bind()])
    async with working():
        await jobs.all_become(State.DEAD, 4)

    messages = [(await jobs.get(job.id)).errors[-1]["message"] for job in enqueued]
    assert messages[0] == "a\ufffdb \ufffd c"
    assert len(messages[2]) <= 2048
    assert seen.of(OutcomeNotStored) == []
    assert await jobs.run("select max(pg_column_size(d)) < 40000 from @schema@.dead_letter d")


async def test_history_of_errors_is_bounded(queue: Queue, jobs: Jobs, working: Working) -> None:
    """F64: of many failed attempts the first error and the last 20 are kept."""

    @queue.task("flaky", max_attempts=30, backoff=AT_ONCE)
    async def flaky(job: Job) -> NoReturn:
        raise OSError(f"attempt {job.attempt}")

    job = await queue.enqueue(flaky.bind())
    async with working(poll_s=0.005):
        now = await jobs.become(job.id, State.DEAD)

    assert [error["attempt"] for error in now.errors] == [1, *range(11, 31)]
    assert (now.errors[0]["message"], now.errors[-1]["message"]) == ("attempt 1", "attempt 30")


@pytest.mark.parametrize("style", ["async", "def"])
async def test_nothing_of_a_failed_attempt_is_kept(queue: Queue, seen: Events, working: Working, style: str) -> None:
    """F100: payload and exception are let go as soon as the outcome is written, without the garbage collector."""
    kept: list[weakref.ref[Big]] = []

    async def fail(big: Big) -> NoReturn:
        kept.append(weakref.ref(big))
        raise ValueError("no")

    def fail_in_thread(big: Big) -> NoReturn:
        kept.append(weakref.ref(big))
        raise ValueError("no")

    queue.task("fail", max_attempts=1)(fail if style == "async" else fail_in_thread)
    await queue.enqueue("fail", {"big": {"body": "x"}})
    gc.collect()
    gc.disable()
    try:
        async with working():
            await seen(JobDied)

        assert [ref() for ref in kept] == [None]
    finally:
        gc.enable()
