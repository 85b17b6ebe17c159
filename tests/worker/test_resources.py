"""What `lifespan` opens is there for every job, and closed after the last one."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar

import pytest

from jobq import Job, Queue
from jobq.core.states import State
from jobq.settings import WorkerSettings
from jobq.telemetry.events import JobDied
from jobq.worker.supervisor import ExitCode, Worker
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Mailer:
    is_open = True


class SlowMailer(Mailer): ...


async def test_a_resource_is_found_by_its_type(queue: Queue, jobs: Jobs, working: Working) -> None:
    """Handlers get what lifespan yielded, by class or a base class, in `async def` and `def`."""
    found: list[object] = []
    mailer, buffer = SlowMailer(), io.StringIO()

    @queue.lifespan
    async def lifespan() -> AsyncIterator[object]:
        yield mailer, buffer

    @queue.task("async")
    async def use(job: Job) -> None:
        found.append(job.resource(Mailer))

    @queue.task("def")
    def use_in_thread(job: Job) -> None:
        found.append(job.resource(io.StringIO))

    await queue.enqueue_many([use.bind(), use_in_thread.bind()])
    async with working():
        await jobs.all_become(State.DONE, 2)

    assert set(found) == {mailer, buffer}


@pytest.mark.parametrize(
    ("opened", "message"),
    [
        (None, "0 resources are a Mailer: lifespan yielded nothing"),
        ([], "0 resources are a Mailer: lifespan yielded nothing"),
        (io.StringIO(), "0 resources are a Mailer: lifespan yielded StringIO"),
        ([Mailer(), SlowMailer()], "2 resources are a Mailer: lifespan yielded Mailer, SlowMailer"),
    ],
    ids=["none", "empty", "missing", "ambiguous"],
)
async def test_a_resource_that_is_not_exactly_one_fails_the_attempt(
    queue: Queue, seen: Events, working: Working, opened: object, message: str
) -> None:
    """The error says what was asked for and what there is."""

    @queue.lifespan
    async def lifespan() -> AsyncIterator[object]:
        yield opened

    @queue.task("use", max_attempts=1)
    async def use(job: Job) -> None:
        job.resource(Mailer)

    await queue.enqueue(use.bind())
    async with working():
        died = await seen(JobDied)

    assert died.error_type == "jobq.errors.ResourceError"
    assert died.error_message.startswith(message)


async def test_resources_outlive_the_last_job(queue: Queue, working: Working) -> None:
    """The part after `yield` runs when the running jobs have ended."""
    mailer = Mailer()
    started, finish = asyncio.Event(), asyncio.Event()
    states: list[bool] = []

    @queue.lifespan
    async def lifespan() -> AsyncIterator[object]:
        yield mailer
        mailer.is_open = False

    @queue.task("use")
    async def use(job: Job) -> None:
        started.set()
        await finish.wait()
        states.append(job.resource(Mailer).is_open)

    await queue.enqueue(use.bind())
    async with working() as running:
        await started.wait()
        running.worker.stop()
        finish.set()
        await running.ended()

    assert states == [True]
    assert not mailer.is_open


async def test_a_lifespan_that_fails_starts_nothing(queue: Queue, jobs: Jobs) -> None:
    """F05: what it raises comes out of the worker's run, and no job was touched."""

    @queue.lifespan
    async def lifespan() -> AsyncIterator[object]:
        raise LookupError("no mail server")
        yield

    @queue.task("use")
    async def use() -> None: ...

    waiting = await queue.enqueue(use.bind())

    with pytest.raises(LookupError, match="no mail server"):
        await Worker(queue, WorkerSettings()).run()

    assert (await jobs.get(waiting.id)).attempt == 0
    assert await jobs.backends("application_name <> 'jobq handlers'") == []


async def test_context_set_in_lifespan_is_seen_and_fresh_for_each_job(
    queue: Queue, jobs: Jobs, working: Working
) -> None:
    """Every job sees the context variables of lifespan, and none sees what another job has set."""
    values: list[str] = []

    @queue.lifespan
    async def lifespan() -> AsyncIterator[None]:
        token = tenant.set("lifespan")
        yield
        tenant.reset(token)

    @queue.task("async")
    async def look() -> None:
        values.append(tenant.get())
        tenant.set("job")

    @queue.task("def")
    def look_in_thread() -> None:
        values.append(tenant.get())
        tenant.set("thread")

    await queue.enqueue_many([look.bind(), look_in_thread.bind()] * 3)
    async with working(default_slots=1) as running:
        await jobs.all_become(State.DONE, 6)
        exit_code = await running.stop()

    assert values == ["lifespan"] * 6
    assert tenant.get() == "nobody"
    assert exit_code is ExitCode.DRAINED


async def test_context_set_in_middleware_is_seen_by_its_handler(queue: Queue, jobs: Jobs, working: Working) -> None:
    """In the loop and in a thread, and by no other job."""
    values: list[str] = []

    @queue.middleware
    async def name_tenant(job: Job, call_next: Callable[[], Awaitable[object]]) -> object:
        assert tenant.get() == "nobody"
        tenant.set(job.kind)
        return await call_next()

    @queue.task("async")
    async def look() -> None:
        values.append(tenant.get())

    @queue.task("def")
    def look_in_thread() -> None:
        values.append(tenant.get())

    await queue.enqueue_many([look.bind(), look_in_thread.bind()] * 2)
    async with working(default_slots=1):
        await jobs.all_become(State.DONE, 4)

    assert sorted(values) == ["async", "async", "def", "def"]
