"""What systemd hears of a worker: ready, stopping, how it is, and the watchdog's food as long as it lives."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobq import Queue
from jobq.db import connect as connections
from jobq.db.connect import Ear
from jobq.db.store import Store
from jobq.telemetry.events import LoopBlocked, WorkerStarted
from jobq.worker import listener, loop_watch, pulse
from jobq.worker.claimer import Claimer
from jobq.worker.heartbeat import Heartbeat
from jobq.worker.reaper import Reaper
from jobq.worker.settler import Settler
from jobq.worker.supervisor import Worker
from jobq.worker.systemd import Notifier
from jobq.worker.upkeep import Upkeep
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs, Running, until_true
from tests.worker.systemd_socket import Systemd

EVERY_US = 60_000
"""What WatchdogSec= asks for here, in microseconds: a sign of life every 20 ms."""


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    """The socket alone."""
    systemd = Systemd(tmp_path / "notify")
    yield systemd
    systemd.close()


# -- the protocol ------------------------------------------------------------------------------------------


async def test_a_message_is_a_datagram(systemd: Systemd) -> None:
    """Nothing else is in it."""
    notifier = Notifier({"NOTIFY_SOCKET": systemd.address})

    notifier.ready()
    notifier.stopping()

    await systemd.hears("STOPPING=1")
    assert systemd.received == ["READY=1", "STOPPING=1"]


async def test_a_socket_may_be_abstract() -> None:
    """In containers its name begins with @."""
    systemd = Systemd(None, f"jobq-test-{os.getpid()}")

    Notifier({"NOTIFY_SOCKET": systemd.address}).ready()

    await systemd.hears("READY=1")
    systemd.close()


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
def test_without_a_listener_nothing_happens(environment: dict[str, str]) -> None:
    """By hand, in a container, or when systemd starts over."""
    Notifier(environment).ready()


def test_a_full_socket_does_not_hold_up_the_worker(tmp_path: Path) -> None:
    """Nobody reads: the side thread, which sends, must go on beating."""
    with socket_that_nobody_reads(tmp_path / "notify"):
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        for _ in range(5000):
            notifier.ready()


def socket_that_nobody_reads(path: Path) -> Any:
    """Bind a datagram socket."""
    import socket

    unread = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    unread.bind(str(path))
    return unread


@pytest.mark.parametrize(
    ("environment", "fed"),
    [
        ({"WATCHDOG_USEC": str(EVERY_US)}, True),
        ({"WATCHDOG_USEC": str(EVERY_US), "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": str(EVERY_US), "WATCHDOG_PID": str(os.getppid())}, False),
        ({"WATCHDOG_USEC": "0"}, False),
        ({"WATCHDOG_USEC": "soon"}, False),
        ({}, False),
    ],
)
async def test_the_watchdog_is_fed_if_it_is_this_process(
    systemd: Systemd, environment: dict[str, str], fed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child inherits the variables of its parent; whom they mean stands in WATCHDOG_PID."""
    monkeypatch.setattr("jobq.worker.systemd.STATUS_EVERY_S", 0.02)
    notifier = Notifier({"NOTIFY_SOCKET": systemd.address, **environment})
    reporting = asyncio.create_task(notifier.report(status=lambda: "one\ntwo", is_alive=lambda: True))

    await until_true(lambda: systemd.received.count("STATUS=one two") > 5)

    reporting.cancel()
    await asyncio.wait([reporting])
    assert ("WATCHDOG=1" in systemd.received) is fed


async def test_the_watchdog_is_fed_three_times_as_often_as_it_asks(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is lost or late does not kill; and the status is not older than five seconds."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        raise asyncio.CancelledError

    monkeypatch.setattr("jobq.worker.systemd.asyncio.sleep", sleep)
    for watchdog_usec in ("3000000", "60000000", "0"):
        notifier = Notifier({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": watchdog_usec})
        with pytest.raises(asyncio.CancelledError):
            await notifier.report(status=str, is_alive=lambda: True)

    assert slept == [1.0, 5.0, 5.0]


# -- a worker ----------------------------------------------------------------------------------------------


@pytest.fixture
def watching(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    """What is systemd to the workers of the test, whose loops have a second or less to come round."""
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
    monkeypatch.setenv("WATCHDOG_USEC", str(EVERY_US))
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(connections, "CHECK_TIMEOUT_S", 0.3)
    monkeypatch.setattr(listener, "CHECK_S", 0.1)
    monkeypatch.setattr(loop_watch, "BLOCKED_AFTER_S", 0.3)
    monkeypatch.setattr(loop_watch, "TURN_S", 0.01)
    monkeypatch.setattr(loop_watch, "WATCH_S", 0.01)
    monkeypatch.setattr(pulse, "LONGEST_PAUSE_S", 0.05)
    return systemd


QUICK_TURNS: dict[str, Any] = {
    "statement_deadline_s": 0.2,
    "beat_s": 0.05,
    "beat_deadline_s": 0.2,
    "worker_lease_s": 0.8,
    "tally_s": 0.05,
    "upkeep_s": 0.05,
}


async def no_work() -> None:
    """Do nothing."""


async def never(*_: object) -> None:
    """Hang."""
    await asyncio.Event().wait()


async def test_ready_comes_after_the_first_beat(
    queue: Queue, seen: Events, watching: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for READY may take it that jobs are run: not while the worker is not registered yet."""
    registering, may_register = threading.Event(), threading.Event()
    beat = Store.beat

    async def late(*arguments: Any) -> None:
        registering.set()
        while not may_register.is_set():  # in the side thread's loop, which has no event of the test's
            await asyncio.sleep(0.005)
        await beat(*arguments)

    monkeypatch.setattr(Store, "beat", late)
    queue.task("work")(no_work)
    worker = Worker(queue, emit=seen.emit)
    running = Running(worker, asyncio.create_task(worker.run()))

    await until_true(registering.is_set)
    assert await watching.is_fed()
    assert "READY=1" not in watching.received
    may_register.set()
    await watching.hears("READY=1")
    await running.stop()

    assert watching.received.count("READY=1") == 1


async def test_a_stop_is_told_at_its_begin(queue: Queue, watching: Systemd, working: Working) -> None:
    """Once, before the drain; and what is alive while it drains is fed."""
    started, finish = asyncio.Event(), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    async with working() as running:
        await watching.hears("READY=1")
        await queue.enqueue(work.bind())
        await started.wait()
        assert "STOPPING=1" not in watching.received
        running.worker.stop()
        await watching.hears("STOPPING=1")
        assert await watching.is_fed()
        finish.set()

    assert watching.received.count("STOPPING=1") == 1
    assert watching.received.index("READY=1") < watching.received.index("STOPPING=1")


async def test_the_status_says_what_the_worker_does(queue: Queue, watching: Systemd, working: Working) -> None:
    """One line for `systemctl status`."""
    started, finish = asyncio.Event(), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    async with working(default_slots=7):
        await until_true(lambda: watching.status == "working; 0 of 7 slots busy")
        await queue.enqueue(work.bind())
        await until_true(lambda: watching.status == "working; 1 of 7 slots busy")
        finish.set()


async def test_a_database_that_is_away_is_told_and_the_watchdog_fed(
    queue: Queue, jobs: Jobs, watching: Systemd, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage must not make systemd kill the fleet."""

    async def refused(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("nobody there")

    queue.task("work")(no_work)
    async with working(**QUICK_TURNS):
        with monkeypatch.context() as outage:
            outage.setattr(connections, "connect", refused)
            await jobs.terminate()
            await until_true(lambda: "not working" in watching.status and "heartbeat" in watching.status)
            assert await watching.is_fed(100)  # two seconds, longer than any loop may take to come round
            assert watching.status.endswith("; 0 jobs running")
        await until_true(lambda: watching.status.startswith("working;"))


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Claimer, "_look"),
        (Settler, "_settle"),
        (Heartbeat, "_beat_once"),
        (Ear, "check"),
        (Reaper, "_reap_workers"),
        (Upkeep, "tidy"),
    ],
)
async def test_a_frozen_loop_starves_the_watchdog(
    queue: Queue,
    watching: Systemd,
    working: Working,
    monkeypatch: pytest.MonkeyPatch,
    where: type[object],
    name: str,
) -> None:
    """Each of them: a process that does half of its work is worse than one that is restarted."""

    @queue.task("work")
    async def work() -> None: ...

    async with working(grace_s=0.0, **QUICK_TURNS):
        assert await watching.is_fed()
        with monkeypatch.context() as frozen:
            frozen.setattr(where, name, never)
            await queue.enqueue(work.bind())
            await until_true(lambda: watching.unfed > 5)


async def test_a_handler_that_blocks_the_loop_within_its_time_out_is_borne(
    queue: Queue, seen: Events, watching: Systemd, working: Working
) -> None:
    """Killing it would cost every other job of the worker; the heartbeat goes on as well."""
    release = threading.Event()
    fed = 0

    @queue.task("block", timeout=30)
    async def block() -> None:
        release.wait(20)

    def watch() -> None:
        nonlocal fed
        while not seen.has(LoopBlocked):
            release.wait(0.005)
        before = len(watching.received)
        while watching.fed_since(before) < 50 and not release.wait(0.005):
            fed = watching.fed_since(before)
        release.set()

    watcher = threading.Thread(target=watch)
    async with working(**QUICK_TURNS):
        watcher.start()
        await queue.enqueue(block.bind())
        await asyncio.to_thread(watcher.join)

    assert fed >= 49


async def test_a_handler_that_blocks_the_loop_past_its_time_out_starves_the_watchdog(
    queue: Queue, watching: Systemd, working: Working
) -> None:
    """It cannot be cancelled: only the end of the process ends it."""
    release = threading.Event()
    unfed = 0

    @queue.task("block", timeout=0.1)
    async def block() -> None:
        release.wait(20)

    def watch() -> None:
        nonlocal unfed
        while watching.unfed < 10 and not release.wait(0.005):
            pass
        unfed = watching.unfed
        release.set()

    watcher = threading.Thread(target=watch)
    async with working(cancel_grace_s=0.1, grace_s=0.0, **{**QUICK_TURNS, "worker_lease_s": 5.0}):
        assert await watching.is_fed()
        watcher.start()
        await queue.enqueue(block.bind())
        await asyncio.to_thread(watcher.join)

    assert unfed >= 10


async def test_a_worker_that_systemd_did_not_start_is_silent(
    queue: Queue, seen: Events, systemd: Systemd, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under supervisord, in a container, in a terminal."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    queue.task("work")(no_work)

    async with working():
        await seen(WorkerStarted)

    assert systemd.received == []
