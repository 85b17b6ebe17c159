"""Hooks that fail, hang or are stopped: they are told again, and cost no worker and no job anything."""

from __future__ import annotations

import asyncio
import logging

import anyio
import pytest

from jobq import DeadAlert, Queue
from jobq.core.states import State
from jobq.telemetry.events import AlertFailed, AlertsHalted, AlertTold, DatabaseAway
from jobq.telemetry.log import log_event
from jobq.worker import hook_call, teller
from jobq.worker.supervisor import ExitCode
from tests.worker.alerting import OFTEN, add_kinds, hurry, looks_pass
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs, eventually, until_true


@pytest.fixture(autouse=True)
def handlers(queue: Queue) -> None:
    """The kind `fail` dies at once, `work` is done."""
    add_kinds(queue)


async def test_a_hook_that_raises_is_named_and_told_again(
    queue: Queue, jobs: Jobs, working: Working, seen: Events
) -> None:
    """At least once, by whichever worker comes first after the pause; jobs go on beside it."""
    tried: list[DeadAlert] = []

    @queue.on_dead
    async def tell(alert: DeadAlert) -> None:
        tried.append(alert)
        if len(tried) < 3:
            raise ConnectionError("no route to https://me:secret@chat")

    pauses_s = []
    async with working(**OFTEN), working(**OFTEN):
        await queue.enqueue("fail")
        for nth in (1, 2):
            await seen(AlertFailed, nth=nth)
            await eventually(lambda: jobs.run("select telling_by is null from @schema@.incident"))
            pauses_s.append(await hurry(jobs))
        await seen(AlertTold)
        done = await queue.enqueue("work")
        await jobs.become(done.id, State.DONE)

    first, second = seen.of(AlertFailed)
    assert (first.hook, first.what, first.subjects) == (f"{__name__}.{tell.__qualname__}", "dead", ["fail"])
    assert (first.error_type, first.error_message) == ("ConnectionError", "no route to https://me:***@chat")
    assert "in tell" in first.traceback
    assert [(one.tries, one.again_in_s) for one in (first, second)] == [(1, 30.0), (2, 60.0)]
    assert 20.0 < pauses_s[0] <= 30.0 < 50.0 < pauses_s[1] <= 60.0
    assert [alert.job_id for alert in tried] == [tried[0].job_id] * 3


class Chat:
    """A chat that takes for ever, until it is there."""

    def __init__(self) -> None:
        self.is_there = False
        self.calls = 0

    async def say(self, what: str) -> None:
        """Say something, in one of the ways in which that can go wrong."""
        self.calls += 1
        if self.is_there:
            return
        match what:
            case "hangs":
                await asyncio.sleep(600)
            case "ignores its cancellation":
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    return
            case "is cancelled by itself":
                raise asyncio.CancelledError
            case "exits":
                raise SystemExit(1)
            case "raises a group":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self.fail)
            case _:
                raise ValueError(what)

    async def fail(self) -> None:
        """Fail."""
        raise ConnectionError("no chat")


@pytest.mark.parametrize(
    ("what", "error_type"),
    [
        ("hangs", "TimeoutError"),
        ("ignores its cancellation", "TimeoutError"),
        ("is cancelled by itself", "asyncio.exceptions.CancelledError"),
        ("exits", "SystemExit"),
        ("raises a group", "ConnectionError"),
    ],
)
async def test_a_hook_can_neither_block_nor_crash_its_worker(
    queue: Queue,
    jobs: Jobs,
    working: Working,
    seen: Events,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    error_type: str,
) -> None:
    """Meanwhile jobs are done; afterwards its loop still tells."""
    chat = Chat()
    monkeypatch.setattr(teller, "CALL_S", 0.2)

    @queue.on_dead
    async def tell(alert: DeadAlert) -> None:
        await chat.say(what)

    async with working(**OFTEN) as running:
        await queue.enqueue("fail")
        await until_true(lambda: chat.calls)
        done = await queue.enqueue("work")
        await jobs.become(done.id, State.DONE)
        failed = await seen(AlertFailed)
        await eventually(lambda: jobs.run("select telling_by is null from @schema@.incident"))
        chat.is_there = True
        await hurry(jobs)
        await seen(AlertTold)
        code = await running.stop()

    assert failed.error_type == error_type
    assert code is ExitCode.DRAINED


async def test_a_hook_that_does_not_end_is_left_behind_and_another_worker_tells(
    queue: Queue, jobs: Jobs, working: Working, seen: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It catches everything and tries again: it is cancelled once, and called by this worker no more while it runs."""
    monkeypatch.setattr(teller, "CALL_S", 0.2)
    monkeypatch.setattr(hook_call, "CLEAN_UP_S", 0.1)
    monkeypatch.setattr(hook_call, "LAST_CALL_S", 0.1)
    calls, cancelled, may_end = 0, 0, asyncio.Event()

    @queue.on_dead
    async def tell(alert: DeadAlert) -> None:
        nonlocal calls, cancelled
        calls += 1
        while calls == 1 and not may_end.is_set():
            try:
                await may_end.wait()
            except BaseException:
                cancelled += 1

    async with working(**OFTEN) as first:
        await queue.enqueue("fail")
        failed = await seen(AlertFailed)
        await eventually(lambda: jobs.run("select telling_by is null from @schema@.incident"))
        await hurry(jobs)
        await looks_pass(jobs)
        alone = calls
        async with working(**OFTEN):
            await seen(AlertTold)
        code = await first.stop()
    may_end.set()

    assert failed.error_message == "the call took longer than 0.2 s, ignores its cancellation and is left behind"
    assert (alone, calls, cancelled) == (1, 2, 1)
    assert code is ExitCode.DRAINED


async def test_a_worker_that_stops_cancels_its_hook_and_another_tells(
    queue: Queue, jobs: Jobs, working: Working, seen: Events
) -> None:
    """What it was telling is its own until the lease is over, at most a minute; then whoever comes tells."""
    inside, tell_of = asyncio.Event(), []

    @queue.on_dead
    async def tell(alert: DeadAlert) -> None:
        if not inside.is_set():
            inside.set()
            await asyncio.sleep(600)
        tell_of.append(alert)

    async with working(**OFTEN) as running:
        await queue.enqueue("fail")
        await asyncio.wait_for(inside.wait(), 10)
        code = await running.stop()
    cancelled = list(tell_of)
    left_s = await hurry(jobs)
    async with working(**OFTEN):
        await seen(AlertTold)

    assert code is ExitCode.DRAINED
    assert cancelled == []
    assert 0.0 < left_s <= teller.LEASE_S
    assert len(tell_of) == 1


async def test_what_cannot_be_written_down_is_written_when_it_can_and_not_told_twice(
    queue: Queue, jobs: Jobs, working: Working, seen: Events
) -> None:
    """The hook was told, and then the table is gone for a while: said once, and the loop goes on."""
    told: list[DeadAlert] = []

    @queue.on_dead
    async def tell(alert: DeadAlert) -> None:
        told.append(alert)
        await jobs.script("alter table @schema@.incident rename to hidden")

    async with working(**OFTEN):
        await queue.enqueue("fail")
        halted = await seen(AlertsHalted)
        await jobs.script("alter table @schema@.hidden rename to incident")
        await eventually(lambda: jobs.run("select told_at is not null from @schema@.incident"))
        await looks_pass(jobs)

    assert halted.hook == f"{__name__}.{tell.__qualname__}"
    assert "incident" in halted.error
    assert len(told) == len(seen.of(AlertsHalted)) == len(seen.of(AlertTold)) == 1
    assert not seen.has(DatabaseAway)


def test_what_a_hook_raises_is_one_record_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """With the hook's name, what it should have told, when it is told again, and where it was raised."""
    log_event(AlertFailed("app.tell", "dead", ["mail", "pdf"], 2, "OSError", "no route", "Traceback: here", 60.0))

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        "alerts: app.tell failed at try 2, next in 60 s (dead: mail, pdf): OSError: no route\nTraceback: here"
    )
