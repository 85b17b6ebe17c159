"""A worker that no notification reaches: it says so once, polls, and hears again when it can."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from jobq import Queue
from jobq.core.states import State
from jobq.db.connect import Ear
from jobq.settings import Access
from jobq.telemetry.events import DatabaseAway, ListenUnavailable
from jobq.telemetry.log import describe
from jobq.worker import faults, listener
from jobq.worker.faults import Point
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs, Running, eventually, until_true

NEVER_POLL_S = 60.0


def elsewhere(dsn: str) -> str:
    """Return where LISTEN is accepted, as by a pooler, and nothing is heard: another database."""
    return urlsplit(dsn)._replace(path="/template1").geturl()


def ear_of(running: Running) -> Ear:
    """Return what the worker listens with."""
    assert running.worker._parts is not None
    return running.worker._parts.listener._ear


@pytest.fixture
async def deaf(queue: Queue, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue that listens where nothing is heard."""
    monkeypatch.setattr(listener, "HEAR_S", 0.1)
    queue.access = Access(dsn=dsn, listen_dsn=elsewhere(dsn))

    @queue.task("work")
    async def work() -> None: ...

    return queue


async def test_a_worker_that_hears_nothing_says_so_once_and_polls(
    deaf: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F12: it works all the same, is not called unready, and asks nobody to notify."""
    asleep: list[str] = []

    async with working(deaf, poll_s=NEVER_POLL_S) as running:
        said = await seen(ListenUnavailable)
        for _ in range(3):
            job = await deaf.enqueue("work")
            await jobs.become(job.id, State.DONE)
            asleep += await jobs.asleep()
        assert running.worker._parts is not None
        failing = running.worker._parts.failing()

    assert (said.poll_s, failing, asleep) == (0.25, [], [])
    assert "LISTEN unavailable, polling only" in describe(said)[1]
    assert len(seen.of(ListenUnavailable)) == 1
    assert not seen.has(DatabaseAway)


async def test_a_worker_tries_to_hear_again_without_a_word(
    deaf: Queue, seen: Events, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said once is not said with every try."""
    monkeypatch.setattr(listener, "TRY_AGAIN_S", 0.01)
    tries: list[None] = []

    async def count() -> None:
        tries.append(None)

    monkeypatch.setitem(faults._armed, Point.LISTEN, count)

    async with working(deaf):
        await seen(ListenUnavailable)
        await until_true(lambda: len(tries) > 3)

    assert len(seen.of(ListenUnavailable)) == 1


async def test_a_sleeper_that_nothing_can_wake_any_more_looks_by_itself(
    queue: Queue, dsn: str, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asleep for a minute when the listener was lost."""
    monkeypatch.setattr(listener, "HEAR_S", 0.1)

    @queue.task("work")
    async def work() -> None: ...

    async with working(queue, poll_s=NEVER_POLL_S) as running:
        await eventually(jobs.asleep)
        ear_of(running)._dsn = elsewhere(dsn)
        await jobs.terminate("jobq listener")
        await seen(ListenUnavailable)
        await eventually(jobs.asleep, lambda queues: queues == [])
        job = await queue.enqueue("work")
        await jobs.become(job.id, State.DONE)


async def test_a_worker_that_hears_again_is_woken_again(
    deaf: Queue, dsn: str, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was a moment's trouble does not cost the notifications for good."""
    monkeypatch.setattr(listener, "TRY_AGAIN_S", 0.01)

    async with working(deaf, poll_s=NEVER_POLL_S) as running:
        await seen(ListenUnavailable)
        ear_of(running)._dsn = dsn
        await eventually(jobs.asleep)
        job = await deaf.enqueue("work")
        await jobs.become(job.id, State.DONE)

    assert len(seen.of(ListenUnavailable)) == 1


async def test_a_worker_that_is_not_let_in_to_listen_runs_jobs(
    queue: Queue, dsn: str, seen: Events, jobs: Jobs, working: Working
) -> None:
    """No such database there: the listener tries on and says so, once; everything else works."""
    queue.access = Access(dsn=dsn, listen_dsn=urlsplit(dsn)._replace(path="/nowhere").geturl())

    @queue.task("work")
    async def work() -> None: ...

    async with working(queue):
        away = await seen(DatabaseAway)
        job = await queue.enqueue("work")
        await jobs.become(job.id, State.DONE)

    assert away.loop == "listener"
    assert len(seen.of(DatabaseAway)) == 1
