"""Alive and working: what a worker in trouble looks like through its probes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, Protocol

import asyncpg
import pytest

from jobq import Queue
from jobq.core.states import State
from jobq.db import connect as connections
from jobq.db.connect import Ear
from jobq.errors import DatabaseUnavailableError
from jobq.settings import WorkerSettings
from jobq.telemetry.events import LoopBlocked, WorkerStarted
from jobq.worker import listener, loop_watch, pulse
from jobq.worker.claimer import Claimer
from jobq.worker.heartbeat import Heartbeat
from jobq.worker.loop_watch import LoopWatch
from jobq.worker.probes import Address, listen
from jobq.worker.reaper import Reaper
from jobq.worker.settler import Settler
from jobq.worker.supervisor import ExitCode, Worker
from jobq.worker.tally import Tally
from jobq.worker.upkeep import Upkeep
from tests.worker.asking import OK, Client, asking_in_thread, stays_alive
from tests.worker.conftest import QUICK
from tests.worker.observe import Events, Jobs, Running, eventually, until_true

HERE = Address("127.0.0.1", 0)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A socket that listens on a free port."""
    with listen(HERE) as listening:
        yield listening


class Seen(NamedTuple):
    """A worker, and who asks its probes."""

    running: Running
    client: Client


class Probing(Protocol):
    """Run a worker of the test's queue with probes; the block begins when it has started, unless told otherwise."""

    def __call__(self, *, wait: bool = True, **settings: Any) -> AbstractAsyncContextManager[Seen]: ...


@pytest.fixture
def probing(queue: Queue, seen: Events, listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> Probing:
    """Workers whose turns may take a second or less."""
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(connections, "CHECK_TIMEOUT_S", 0.3)
    monkeypatch.setattr(listener, "CHECK_S", 0.1)
    monkeypatch.setattr(loop_watch, "BLOCKED_AFTER_S", 0.3)
    monkeypatch.setattr(loop_watch, "TURN_S", 0.01)
    monkeypatch.setattr(loop_watch, "WATCH_S", 0.01)
    monkeypatch.setattr(pulse, "LONGEST_PAUSE_S", 0.05)
    quick = {
        "statement_deadline_s": 0.2,
        "beat_s": 0.05,
        "beat_deadline_s": 0.2,
        "worker_lease_s": 2.0,
        "tally_s": 0.05,
        "upkeep_s": 0.05,
    }

    @asynccontextmanager
    async def probing(*, wait: bool = True, **settings: Any) -> AsyncIterator[Seen]:
        worker = Worker(queue, WorkerSettings(**QUICK | quick | settings), http=listening, emit=seen.emit)
        running = Running(worker, asyncio.create_task(worker.run()))
        try:
            if wait:
                await seen(WorkerStarted)
            yield Seen(running, Client(listening))
            worker.stop()
            await running.ended()
        finally:
            running.task.cancel()
            await asyncio.wait([running.task], timeout=1)

    return probing


@pytest.fixture
def work(queue: Queue) -> None:
    """A kind, so that there is something to run."""

    @queue.task("work")
    async def work() -> None: ...


@pytest.mark.usefixtures("work")
async def test_an_idle_worker_is_alive_and_working(probing: Probing) -> None:
    """From its start on."""
    async with probing() as (_, client):
        assert await client.ask("/healthz") == OK
        assert await client.ask("/readyz") == OK


async def never(*_: object, **__: object) -> Any:
    """Hang."""
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("where", "name", "loop"),
    [
        (Claimer, "_look", "claims of default"),
        (Settler, "_settle", "settling"),
        (Heartbeat, "_beat_once", "heartbeat"),
        (LoopWatch, "_look", "loop watch"),
        (Ear, "check", "listener"),
        (Reaper, "_reap_workers", "reaper"),
        (Upkeep, "tidy", "upkeep"),
        (Tally, "write", "tally"),
    ],
)
async def test_a_frozen_loop_is_seen(
    queue: Queue,
    seen: Events,
    probing: Probing,
    monkeypatch: pytest.MonkeyPatch,
    where: type[object],
    name: str,
    loop: str,
) -> None:
    """F03: liveness is progress of every loop, and not that something answers."""

    @queue.task("work")
    async def work() -> None: ...

    async with probing(grace_s=0.0, worker_lease_s=0.5) as (_, client):
        await client.answers("/healthz", OK)
        with monkeypatch.context() as frozen:
            frozen.setattr(where, name, never)
            await queue.enqueue(work.bind())
            answer = await eventually(lambda: client.ask("/healthz"), lambda answer: answer.status == 503)

    assert loop in answer.text


@contextmanager
def outage(monkeypatch: pytest.MonkeyPatch, *, silent: bool = False) -> Iterator[None]:
    """Let no connection be made in the block: refused, or without an answer."""

    async def no_connection(*_: object, **__: object) -> Any:
        if silent:
            await asyncio.sleep(connections.CONNECT_TIMEOUT_S)
            raise TimeoutError
        raise ConnectionRefusedError("nobody there")

    with monkeypatch.context() as context:
        context.setattr(connections, "connect", no_connection)
        yield


@pytest.mark.usefixtures("work")
async def test_a_database_that_is_away_is_not_ready_and_alive(
    probing: Probing, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage must not restart the fleet; when it is over, so is the 503."""
    async with probing() as (_, client):
        with outage(monkeypatch):
            await jobs.terminate()
            answer = await eventually(
                lambda: client.ask("/readyz"), lambda answer: all(loop in answer.text for loop in ("heart", "claims"))
            )
            assert answer.status == 503
            assert await client.ask("/healthz") == OK
        await client.answers("/readyz", OK)


async def test_a_silent_database_does_not_make_many_claim_loops_stuck(
    queue: Queue, probing: Probing, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for their turn on one connection, each for as long as a connection may take."""
    for number in range(20):
        queue.task(f"kind{number}", queue=f"queue{number}")(no_work)

    async with probing() as (_, client):
        with outage(monkeypatch, silent=True):
            await jobs.terminate()
            await eventually(lambda: client.ask("/readyz"), lambda answer: answer.status == 503)
            await stays_alive(client)
        await client.answers("/readyz", OK)


@pytest.mark.usefixtures("work")
async def test_a_pooler_without_a_server_does_not_make_the_listener_stuck(
    probing: Probing, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets clients in and keeps their first statement waiting, for two minutes if it is PgBouncer."""
    async with probing() as (_, client):
        with monkeypatch.context() as waiting:
            waiting.setattr(asyncpg.Connection, "add_listener", never)
            await jobs.terminate("jobq listener")
            await stays_alive(client)


async def no_work() -> None:
    """Do nothing."""


async def test_a_handler_that_blocks_the_loop_within_its_time_out_is_borne(
    queue: Queue, seen: Events, probing: Probing
) -> None:
    """The probes answer from their own thread, and a restart would cost the other jobs."""
    release = threading.Event()

    @queue.task("block", timeout=30)
    async def block() -> None:
        release.wait(20)

    async with probing() as (_, client):

        def ask() -> None:
            try:
                while not seen.has(LoopBlocked):
                    assert client.ask_now("/healthz") == OK
                for _ in range(20):
                    assert client.ask_now("/healthz") == OK
            finally:
                release.set()

        async with asking_in_thread(ask):
            await queue.enqueue(block.bind())
        await client.answers("/readyz", OK)


async def test_a_handler_that_blocks_the_loop_past_its_time_out_is_stuck(
    queue: Queue, seen: Events, probing: Probing
) -> None:
    """Nothing but a new process helps."""
    assert "event loop" in await blocked_past_its_time_out(queue, probing)


async def test_a_job_in_a_thread_does_not_excuse_a_blocked_loop(queue: Queue, probing: Probing) -> None:
    """It cannot be what blocks the loop, and has no hard time-out that would end the excuse."""
    started, finish = threading.Event(), threading.Event()

    @queue.task("thread", timeout=60)
    def thread() -> None:
        started.set()
        finish.wait(20)

    await queue.enqueue(thread.bind())
    try:
        assert "event loop" in await blocked_past_its_time_out(queue, probing, first=started)
    finally:
        finish.set()


async def blocked_past_its_time_out(queue: Queue, probing: Probing, *, first: threading.Event | None = None) -> str:
    """Block the loop until `/healthz` is 503, and return what it says. Waits for *first* before."""
    release = threading.Event()

    @queue.task("block", timeout=0.1)
    async def block() -> None:
        release.wait(20)

    said = ""
    async with probing(cancel_grace_s=0.1, grace_s=0.0) as (_, client):

        def ask() -> None:
            nonlocal said
            try:
                for _ in range(500):
                    answer = client.ask_now("/healthz")
                    if answer.status == 503:
                        said = answer.text
                        break
                    release.wait(0.01)
            finally:
                release.set()

        if first is not None:
            await until_true(first.is_set)
        async with asking_in_thread(ask):
            await queue.enqueue(block.bind())
    return said


async def test_after_a_block_the_worker_is_alive_at_once(queue: Queue, seen: Events, probing: Probing) -> None:
    """The other loops could not come round; they have their bound anew."""
    release = threading.Event()
    blocked, answers = threading.Event(), []

    @queue.task("block", timeout=30)
    async def block() -> None:
        blocked.set()
        release.wait(20)

    async with probing() as (_, client):

        def ask() -> None:
            blocked.wait(20)
            threading.Timer(2, release.set).start()  # longer than any loop's bound
            while not release.is_set():
                answers.append(client.ask_now("/healthz"))
            answers.extend(client.ask_now("/healthz") for _ in range(200))

        async with asking_in_thread(ask):
            await queue.enqueue(block.bind())

    assert set(answers) == {OK}


async def test_a_worker_is_ready_once_it_is_registered(
    queue: Queue, seen: Events, probing: Probing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first beat it may not claim, so it does not work yet; alive it is."""
    registered = asyncio.Event()
    beat = Heartbeat._beat_once

    async def late(heartbeat: Heartbeat) -> None:
        if registered.is_set():
            await beat(heartbeat)
        else:
            await asyncio.sleep(0.01)
            raise DatabaseUnavailableError("not yet")

    monkeypatch.setattr(Heartbeat, "_beat_once", late)
    queue.task("work")(no_work)
    async with probing(wait=False) as (_, client):
        answer = await client.ask("/readyz")
        assert (answer.status, await client.ask("/healthz")) == (503, OK)
        registered.set()
        await client.answers("/readyz", OK)


async def test_a_long_drain_is_alive(queue: Queue, jobs: Jobs, probing: Probing) -> None:
    """The claim loops have ended, as they should: no reason to kill the job that the drain waits for."""
    started, finish = asyncio.Event(), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    async with probing(grace_s=60.0) as (running, client):
        await queue.enqueue(work.bind())
        await started.wait()
        running.worker.stop()
        await stays_alive(client)
        finish.set()
        assert await running.ended() is ExitCode.DRAINED
    assert await jobs.count() == {State.DONE: 1}
