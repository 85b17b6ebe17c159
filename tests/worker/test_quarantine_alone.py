"""The last try of a suspect is the only job in its worker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from jobq import Queue
from jobq.core.job import JobId
from jobq.core.states import State
from jobq.db.store import Store
from jobq.errors import DatabaseUnavailableError
from jobq.telemetry.events import AttemptOverran, LeaseLost, SuspectsHandedBack
from jobq.worker import pulse, quarantine
from jobq.worker.quarantine import Quarantine
from jobq.worker.supervisor import ExitCode
from tests.db.rows import Rows
from tests.worker.conftest import Working
from tests.worker.hall import Hall, suspect
from tests.worker.observe import Events, Jobs, until_true

BOTH = {State.RUNNING: 2}


async def test_a_suspect_runs_alone(queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working) -> None:
    """F18: it waits for what runs, nothing is claimed meanwhile, and afterwards the claims go on."""
    await queue.enqueue_many([hall.bind("first"), hall.bind("second")])

    async with working(default_slots=5):
        await hall.has("first", "second")
        job_id = await suspect(rows)
        await jobs.until({State.RUNNING: 3})
        await queue.enqueue(hall.bind("later"))
        hall.may_go["first"].set()
        await jobs.until({State.RUNNING: 2, State.WAITING: 1, State.DONE: 1})
        assert hall.inside == {"second"}
        hall.may_go["second"].set()
        await hall.has("suspect")
        for _ in range(20):  # the claim loops get their chance
            assert await jobs.count() == {State.RUNNING: 1, State.WAITING: 1, State.DONE: 2}
        hall.may_go["suspect"].set()
        hall.may_go["later"].set()
        await jobs.all_become(State.DONE, 4)

    suspects_turn = hall.log.index(("in", "suspect"))
    assert hall.log[suspects_turn:] == [("in", "suspect"), ("out", "suspect"), ("in", "later"), ("out", "later")]
    assert (await jobs.get(job_id)).attempt == 3


async def test_a_suspect_waits_also_for_those_that_were_claimed_with_it(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working
) -> None:
    """A claim as large as could be is followed by the next at once, and they start after that: no moment of quiet."""
    await suspect(rows)
    await queue.enqueue_many([hall.bind("first"), hall.bind("second")])

    async with working(default_slots=3):
        await hall.has("first", "second")
        for _ in range(20):  # the quarantine gets its chance
            assert await jobs.count() == {State.RUNNING: 3}
        assert hall.inside == {"first", "second"}
        for name in ("first", "second", "suspect"):
            hall.may_go[name].set()
        await jobs.all_become(State.DONE, 3)

    assert hall.log[-2:] == [("in", "suspect"), ("out", "suspect")]


async def test_a_suspect_is_alone_among_all_queues_and_executors(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working
) -> None:
    """A crash takes the whole process, threads and other queues as well."""
    started, finish = threading.Event(), threading.Event()

    @queue.task("thread", queue="mail")
    def thread() -> None:
        started.set()
        finish.wait(8)

    await queue.enqueue(thread.bind())
    async with working():
        await until_true(started.is_set)
        await suspect(rows)
        await jobs.until(BOTH)
        another = await queue.enqueue(thread.bind())
        assert hall.inside == set()
        finish.set()
        await hall.has("suspect")
        for _ in range(20):
            assert (await jobs.get(another.id)).state is State.WAITING
        hall.may_go["suspect"].set()
        await jobs.all_become(State.DONE, 3)


async def test_nobody_comes_while_the_outcome_of_the_one_before_is_unwritten(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a suspect, between two, and after: a killer's victims must be those that ran, not those that were done."""
    may_write, settle = asyncio.Semaphore(0), Store.settle_done

    async def settle_when_told(*arguments: Any) -> set[JobId]:
        await may_write.acquire()
        return await settle(*arguments)

    monkeypatch.setattr(Store, "settle_done", settle_when_told)
    for name in ("suspect", "later"):
        hall.may_go[name].set()
    await queue.enqueue(hall.bind("first"))
    for _ in range(2):
        await suspect(rows)

    async with working(default_slots=5):
        await jobs.until({State.RUNNING: 3})
        await queue.enqueue(hall.bind("later"))
        hall.may_go["first"].set()
        turns = ["first", "suspect", "suspect", "later"]
        for done in range(1, 5):
            await hall.has_logged(2 * done)
            for _ in range(20):  # whoever is next gets the chance
                assert (await jobs.count()).get(State.DONE, 0) == done - 1
            assert [name for what, name in hall.log if what == "in"] == turns[:done]
            may_write.release()
        await jobs.all_become(State.DONE, 4)


async def test_suspects_run_one_after_the_other(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working
) -> None:
    """Claimed together, each has its turn."""
    hall.may_go["suspect"].set()
    for _ in range(3):
        await suspect(rows)

    async with working(default_slots=5):
        await jobs.all_become(State.DONE, 3)

    assert hall.log == [("in", "suspect"), ("out", "suspect")] * 3


async def test_suspects_that_would_stand_in_a_long_line_are_left_to_other_workers(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working
) -> None:
    """With their attempts; whoever is there takes them, be it this one, when it is through with those that it kept."""
    suspects = [await suspect(rows) for _ in range(quarantine.KEPT + 3)]

    async with working(default_slots=20):
        await hall.has("suspect")
        await jobs.until({State.RUNNING: quarantine.KEPT, State.WAITING: 3})
        waiting = [now for one in suspects if (now := await jobs.get(one)).state is State.WAITING]
        hall.may_go["suspect"].set()
        await jobs.all_become(State.DONE, len(suspects))

    assert [(now.attempt, now.errors) for now in waiting] == [(2, [])] * 3
    assert hall.log == [("in", "suspect"), ("out", "suspect")] * len(suspects)


async def test_a_suspect_that_finds_no_quiet_moment_is_handed_back(
    queue: Queue,
    rows: Rows,
    hall: Hall,
    seen: Events,
    jobs: Jobs,
    working: Working,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F18: with its attempt, for later, and it is said what was in the way; this worker goes on claiming meanwhile."""
    monkeypatch.setattr(quarantine, "PATIENCE_S", 0.05)
    first = await queue.enqueue(hall.bind("first"))

    async with working(default_slots=5):
        await hall.has("first")
        job_id = await suspect(rows)
        now = await jobs.waits_longer(job_id, 2.0)
        await queue.enqueue(hall.bind("later"))
        await hall.has("first", "later")
        for event in hall.may_go.values():
            event.set()

    assert (now.state, now.attempt, now.errors) == (State.WAITING, 2, [])
    told = seen.of(SuspectsHandedBack)[0]
    assert (told.suspects, told.running, told.unwritten) == ([f"run {job_id}"], [f"run {first.id}"], 0)
    assert quarantine.LATER_S - 2 < now.due_in_s <= quarantine.LATER_S
    assert ("in", "suspect") not in hall.log


async def test_a_suspect_that_waits_is_handed_back_at_a_stop(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working
) -> None:
    """With its attempt; what runs is drained."""
    await queue.enqueue(hall.bind("first"))

    async with working(default_slots=5) as running:
        await hall.has("first")
        job_id = await suspect(rows)
        await jobs.until(BOTH)
        running.worker.stop()
        now = await jobs.become(job_id, State.WAITING)
        hall.may_go["first"].set()
        code = await running.ended()

    assert (now.attempt, now.errors, code) == (2, [], ExitCode.DRAINED)
    assert hall.log == [("in", "first"), ("out", "first")]


async def test_a_suspect_that_was_taken_away_does_not_start(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working
) -> None:
    """Whoever owns it now decides; this worker goes on."""
    await queue.enqueue(hall.bind("first"))

    async with working(default_slots=5):
        await hall.has("first")
        job_id = await suspect(rows)
        await jobs.until(BOTH)
        await jobs.steal(job_id, into="elsewhere")
        hall.may_go["first"].set()
        lost = await seen(LeaseLost)
        hall.may_go["later"].set()
        later = await queue.enqueue(hall.bind("later"))
        await jobs.become(later.id, State.DONE)

    assert lost.id == job_id
    assert ("in", "suspect") not in hall.log


async def test_a_suspect_outlives_an_outage_before_its_turn(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts only when it is on record that it runs alone."""
    monkeypatch.setattr(pulse, "FIRST_PAUSE_S", 0.01)
    isolate, failures = Store.isolate_job, [1, 2]

    async def fail_twice(store: Store, *arguments: Any) -> bool:
        assert hall.log == []
        if failures:
            failures.pop()
            raise DatabaseUnavailableError("injected")
        return await isolate(store, *arguments)

    monkeypatch.setattr(Store, "isolate_job", fail_twice)
    job_id = await suspect(rows)
    hall.may_go["suspect"].set()

    async with working():
        now = await jobs.become(job_id, State.DONE)

    assert (now.attempt, failures) == (3, [])


@pytest.mark.timeout(30)
async def test_a_thread_past_its_time_out_does_not_hold_up_a_worker_with_a_suspect(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There will be no quiet: the suspect is handed back, and the worker ends with 3."""
    started, finish = threading.Event(), threading.Event()
    rounds, is_quiet = 0, Quarantine._is_quiet

    def counted(of: Quarantine) -> bool:
        nonlocal rounds
        rounds += 1
        return rounds > 1000 or is_quiet(of)  # so that a loop that spins ends, and the test with it

    monkeypatch.setattr(Quarantine, "_is_quiet", counted)

    @queue.task("hang", timeout=0.5)
    def hang() -> None:
        started.set()
        finish.wait(8)

    await queue.enqueue(hang.bind())
    try:
        async with working() as running:
            await until_true(started.is_set)
            job_id = await suspect(rows)
            await jobs.until(BOTH)
            await seen(AttemptOverran)
            code = await running.ended()
    finally:
        finish.set()

    now = await jobs.get(job_id)
    assert rounds < 1000
    assert (code, now.state, now.attempt) == (ExitCode.HANDED_BACK, State.WAITING, 2)
