"""What a claim loop takes beyond its free slots waits here, and is no more this worker's than what runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jobq import Queue
from jobq.core.job import JobId
from jobq.core.states import State
from jobq.telemetry.events import LeaseLost, WorkerStopped
from jobq.worker import executor
from jobq.worker.pace import Ahead
from jobq.worker.supervisor import ExitCode
from tests.db.rows import Rows
from tests.worker.conftest import Working
from tests.worker.hall import Hall
from tests.worker.observe import Events, Jobs, eventually

AHEAD = 2

RENEWED: dict[str, Any] = {
    "worker_lease_s": 0.9,
    "beat_s": 0.05,
    "beat_deadline_s": 0.8,
    "job_lease_s": 2.0,
    "statement_deadline_s": 1.0,
}
"""Leases are renewed every 0.7 s."""


@pytest.fixture(autouse=True)
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first claim each loop takes two jobs ahead, whatever the rate; they may wait for long."""
    monkeypatch.setattr(Ahead, "after", lambda _, **measured: AHEAD)
    monkeypatch.setattr(executor, "MAX_WAIT_S", 30.0)


async def fill(queue: Queue, hall: Hall, jobs: Jobs) -> tuple[JobId, JobId, JobId]:
    """Let the first job take the only slot and two more wait for it. Returns their ids."""
    first = await queue.enqueue(hall.bind("first"))
    await hall.has("first")
    second, third = await queue.enqueue_many([hall.bind("second"), hall.bind("later")])
    await jobs.until({State.RUNNING: 3})
    return first.id, second.id, third.id


async def test_what_waits_starts_in_its_order_when_a_slot_is_free(
    queue: Queue, hall: Hall, jobs: Jobs, working: Working
) -> None:
    """Never more than the slots at once, and without another claim."""
    async with working(default_slots=1):
        await fill(queue, hall, jobs)
        fourth = await queue.enqueue(hall.bind("suspect"))
        for _ in range(20):  # the claim loop gets its chance
            assert (await jobs.get(fourth.id)).state is State.WAITING
            assert hall.inside == {"first"}
        for event in hall.may_go.values():
            event.set()
        await jobs.all_become(State.DONE, 4)

    names = [name for what, name in hall.log if what == "in"]
    assert hall.log == [(what, name) for name in names for what in ("in", "out")]
    assert names == ["first", "second", "later", "suspect"]


async def test_at_a_stop_it_is_handed_back_with_its_attempt(
    queue: Queue, hall: Hall, jobs: Jobs, working: Working
) -> None:
    """Whoever is idle has it at once; what runs is drained."""
    async with working(default_slots=1) as running:
        _, second, third = await fill(queue, hall, jobs)
        running.worker.stop()
        waiting = [await jobs.become(job_id, State.WAITING) for job_id in (second, third)]
        hall.may_go["first"].set()
        code = await running.ended()

    assert [(now.attempt, now.errors, now.due_in_s <= 0) for now in waiting] == [(0, [], True)] * 2
    assert (hall.log, code) == ([("in", "first"), ("out", "first")], ExitCode.DRAINED)


async def test_behind_slow_jobs_it_is_handed_back(
    queue: Queue, hall: Hall, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate was that of others: it could run elsewhere."""
    async with working(default_slots=1):
        _, second, third = await fill(queue, hall, jobs)
        monkeypatch.setattr(Ahead, "after", lambda _, **measured: 0)
        monkeypatch.setattr(executor, "MAX_WAIT_S", 0.05)
        waiting = [await jobs.become(job_id, State.WAITING) for job_id in (second, third)]
        for event in hall.may_go.values():
            event.set()
        await jobs.all_become(State.DONE, 3)

    assert [now.attempt for now in waiting] == [0, 0]


async def test_what_was_taken_away_while_it_waited_does_not_start(
    queue: Queue, hall: Hall, rows: Rows, jobs: Jobs, seen: Events, working: Working
) -> None:
    """The next renewal finds out."""
    async with working(default_slots=1, **RENEWED) as it:
        _, second, _ = await fill(queue, hall, jobs)
        await jobs.steal(second, into="elsewhere")
        lost = await seen(LeaseLost)
        it.worker.stop()
        hall.may_go["first"].set()

    assert lost.id == second
    assert ("in", "second") not in hall.log


async def test_its_lease_is_kept_while_it_waits(
    queue: Queue, hall: Hall, rows: Rows, jobs: Jobs, seen: Events, working: Working
) -> None:
    """Like that of a job that runs."""
    async with working(default_slots=1, **RENEWED):
        _, second, _ = await fill(queue, hall, jobs)
        left = "select lease_until from @schema@.job where id = $1"
        before = await rows.value(left, second)
        await eventually(lambda: rows.value("select lease_until > $2 from @schema@.job where id = $1", second, before))
        for event in hall.may_go.values():
            event.set()
        await jobs.all_become(State.DONE, 3)

    assert not seen.has(LeaseLost)


async def test_a_newer_claim_of_what_waits_is_the_one_that_runs(
    queue: Queue,
    hall: Hall,
    rows: Rows,
    jobs: Jobs,
    seen: Events,
    working: Working,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taken back and claimed again by the same worker: it runs once, as the attempt that owns it."""
    monkeypatch.setattr(Ahead, "after", lambda _, **measured: AHEAD + 1)  # room for another claim
    async with working(default_slots=1):
        _, second, _ = await fill(queue, hall, jobs)
        await jobs.steal(second)
        await rows.run("select @schema@.notify_sleepers('{default}')")
        await jobs.until({State.RUNNING: 3})
        lost = await seen(LeaseLost)
        for event in hall.may_go.values():
            event.set()
        await jobs.all_become(State.DONE, 3)

    assert (lost.id, lost.attempt) == (second, 1)
    assert [name for what, name in hall.log if what == "in"] == ["first", "later", "second"]


async def test_a_newer_claim_that_waits_ends_the_older_attempt_at_once(
    queue: Queue, hall: Hall, rows: Rows, jobs: Jobs, seen: Events, working: Working
) -> None:
    """The claim proves that the running attempt has lost its job: it is cancelled, and the newer has its slot."""
    async with working(default_slots=1):
        first = await queue.enqueue(hall.bind("first"))
        await hall.has("first")
        await jobs.steal(first.id)
        await rows.run("select @schema@.notify_sleepers('{default}')")
        lost = await seen(LeaseLost)
        hall.may_go["first"].set()
        now = await jobs.become(first.id, State.DONE)

    assert (lost.id, lost.attempt, now.attempt) == (first.id, 1, 2)
    assert [stopped.lost for stopped in seen.of(WorkerStopped)] == [1]
    assert hall.log == [("in", "first"), ("out", "first")] * 2


async def test_a_cancelled_worker_starts_nothing_more(queue: Queue, hall: Hall, jobs: Jobs, working: Working) -> None:
    """What waits is left to its lease: nobody would write down what became of it."""
    async with working(default_slots=1) as running:
        await fill(queue, hall, jobs)
        running.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running.ended()
        running.task = asyncio.create_task(asyncio.sleep(0, ExitCode.DRAINED))

    assert hall.log == [("in", "first"), ("out", "first")]
