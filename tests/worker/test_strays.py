"""A claim whose answer was lost has taken jobs all the same: they are handed back, and nobody waits for long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, JobId, Queue
from jobq.core.job import ClaimedJob
from jobq.core.states import State
from jobq.db.store import Store
from jobq.errors import DatabaseUnavailableError
from jobq.telemetry.events import DatabaseAway, LeaseLost, StraysReleased
from jobq.worker import pulse
from tests.db.rows import Rows
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]


@pytest.mark.parametrize("in_hand", [0, 2])
async def test_a_claim_without_an_answer_is_handed_back(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch, in_hand: int
) -> None:
    """F17: with the attempt, before the next claim; what the worker does run stays in its hands."""
    monkeypatch.setattr(pulse, "FIRST_PAUSE_S", 0.01)
    started, finish = asyncio.Semaphore(0), asyncio.Event()
    starts: list[tuple[int, int]] = []
    unseen: list[JobId] = []
    claim = Store.claim_jobs
    cut: list[bool] = []

    async def claim_unseen(store: Store, conn: Conn, **options: Any) -> list[ClaimedJob]:
        claimed = await claim(store, conn, **options)
        if claimed and cut:
            cut.clear()
            unseen.extend(job.id for job in claimed)
            raise DatabaseUnavailableError("injected: the answer was lost")
        return claimed

    monkeypatch.setattr(Store, "claim_jobs", claim_unseen)

    @queue.task("work")
    async def work(job: Job) -> None:
        starts.append((job.id, job.attempt))
        started.release()
        await finish.wait()

    held = await queue.enqueue_many([work.bind()] * in_hand)
    async with working(default_slots=10):
        for _ in held:
            await started.acquire()
        cut.append(True)
        strays = await queue.enqueue_many([work.bind()] * 3)
        released = await seen(StraysReleased)
        for _ in strays:
            await started.acquire()
        assert await jobs.count() == {State.RUNNING: in_hand + 3}
        finish.set()
        await jobs.all_become(State.DONE, in_hand + 3)

    assert released.ids == sorted(unseen) == [job.id for job in strays]
    assert sorted(starts) == [(job.id, 1) for job in (*held, *strays)]
    assert seen.of(LeaseLost) == []
    assert [event.loop for event in seen.of(DatabaseAway)] == ["claims of default"]
    assert await jobs.run("select max(crashes) from @schema@.done") == 0


@pytest.mark.parametrize("is_away", [False, True])
async def test_strays_of_a_worker_that_stops_at_once_are_handed_back_or_keep_its_lease(
    queue: Queue, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    """There is no next claim: the goodbye does it. If that fails, the row of the worker stays, for a reaper to find."""
    monkeypatch.setattr(pulse, "FIRST_PAUSE_S", 5.0)
    claim = Store.claim_jobs
    lost = asyncio.Event()

    async def claim_unseen(store: Store, conn: Conn, **options: Any) -> list[ClaimedJob]:
        claimed = await claim(store, conn, **options)
        if claimed and not lost.is_set():
            lost.set()
            raise DatabaseUnavailableError("injected: the answer was lost")
        return claimed

    async def release_nothing(store: Store, *_: object) -> list[JobId]:
        raise DatabaseUnavailableError("injected: the database is away")

    monkeypatch.setattr(Store, "claim_jobs", claim_unseen)
    if is_away:
        monkeypatch.setattr(Store, "release_strays", release_nothing)

    @queue.task("work")
    async def work() -> None:
        pytest.fail("nobody runs it")

    job = await queue.enqueue(work.bind())
    async with working():
        await lost.wait()

    now = await jobs.get(job.id)
    assert (now.state, now.attempt) == ((State.RUNNING, 1) if is_away else (State.WAITING, 0))
    assert await jobs.run("select count(*) from @schema@.worker") == is_away


async def test_what_is_claimed_after_the_look_for_it_is_found_by_a_later_one(
    queue: Queue, rows: Rows, seen: Events, jobs: Jobs, working: Working
) -> None:
    """C4: a claim that was given up commits late, for a worker that lives: the attempt is returned."""
    attempts: list[int] = []

    @queue.task("work")
    async def work(job: Job) -> None:
        attempts.append(job.attempt)

    async with working(worker_lease_s=0.3, beat_s=0.05, beat_deadline_s=0.2) as running:
        late = await rows.running(running.worker.worker_id, kind="work", queue="default", payload="{}")
        released = await seen(StraysReleased)
        await jobs.become(late.id, State.DONE)

    assert released.ids == [late.id]
    assert attempts == [1]
    assert await jobs.run("select max(crashes) from @schema@.done") == 0
