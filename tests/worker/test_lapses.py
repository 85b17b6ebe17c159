"""A worker whose beats do not come through hands its jobs back, and goes on when they do."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, Queue
from jobq.core.states import State
from jobq.db.store import Store
from jobq.telemetry.events import DatabaseAway, LeaseLapsed, LeaseLost
from jobq.worker import heartbeat, pulse
from tests.worker.beside import look_beside
from tests.worker.conftest import Working
from tests.worker.faults import Faults
from tests.worker.observe import Events, Jobs, eventually, until_true

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]

LEASES: dict[str, Any] = {"worker_lease_s": 0.9, "beat_s": 0.2, "beat_deadline_s": 0.6}
LEASE_S: float = LEASES["worker_lease_s"]


class Silence:
    """No beat comes through while the database refuses to write the worker's row."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def begin(self) -> None:
        await self._jobs.script(
            """
            create function @schema@.refuse_beat() returns trigger language plpgsql as $refuse$
            begin
                raise exception 'injected' using errcode = 'read_only_sql_transaction';
            end
            $refuse$;
            create trigger silence before insert or update on @schema@.worker
                for each row execute function @schema@.refuse_beat();
            """
        )

    async def end(self) -> None:
        await self._jobs.script("drop trigger silence on @schema@.worker")


@pytest.fixture
def silence(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Silence:
    """A database that refuses beats, met with pauses of milliseconds."""
    monkeypatch.setattr(pulse, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(pulse, "LONGEST_PAUSE_S", 0.02)
    return Silence(jobs)


async def test_a_worker_that_cannot_beat_hands_its_jobs_back(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, silence: Silence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F32: its handlers are cancelled, their attempt is returned, nothing is claimed, and afterwards all goes on."""
    beats: list[float] = []
    claims: list[float] = []
    cancelled: list[int] = []
    beat, claim = Store.beat, Store.claim_jobs

    async def counted_beat(store: Store, *arguments: Any) -> None:
        sent_at = time.monotonic()
        await beat(store, *arguments)
        beats.append(sent_at)

    async def counted_claim(store: Store, conn: Conn, **options: Any) -> Any:
        claims.append(time.monotonic() - beats[-1])
        return await claim(store, conn, **options)

    monkeypatch.setattr(Store, "beat", counted_beat)
    monkeypatch.setattr(Store, "claim_jobs", counted_claim)
    started, finish = asyncio.Semaphore(0), asyncio.Event()

    @queue.task("work")
    async def work(job: Job) -> None:
        started.release()
        try:
            await finish.wait()
        except asyncio.CancelledError:
            cancelled.append(job.id)
            raise

    first, second = await queue.enqueue_many([work.bind()] * 2)
    async with working(default_slots=2, **LEASES):
        for _ in range(2):
            await started.acquire()
        await silence.begin()
        lapsed = await seen(LeaseLapsed)
        for job in (first, second):
            now = await jobs.become(job.id, State.WAITING)
            assert (now.attempt, now.records) == (0, [("LeaseLapsed", 1)])
        finish.set()
        await silence.end()
        await jobs.all_become(State.DONE, 2)

    assert lapsed.running == 2
    assert sorted(lapsed.cancelled) == [f"work {first.id}", f"work {second.id}"]
    assert sorted(cancelled) == [first.id, second.id]
    done = await jobs.get(first.id)
    assert (done.attempt, done.records) == (1, [("LeaseLapsed", 1)])
    assert len(seen.of(LeaseLapsed)) == 1
    assert max(claims) < LEASE_S
    assert [event.loop for event in seen.of(DatabaseAway)] == ["heartbeat"]


async def test_what_had_finished_is_written_though_the_lease_has_lapsed(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, silence: Silence
) -> None:
    """Until the database says that the fence no longer matches, a finished job is done."""
    faults = Faults(jobs)
    started, finish = asyncio.Event(), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    job = await queue.enqueue(work.bind())
    async with working(**LEASES):
        await started.wait()
        await faults.fail_settling("25006")
        finish.set()
        await eventually(faults.count)
        await silence.begin()
        await seen(LeaseLapsed)
        await faults.mend()
        now = await jobs.become(job.id, State.DONE)
        await silence.end()

    assert now.attempt == 1
    assert not seen.has(LeaseLost)


async def test_a_release_that_comes_after_the_reap_gives_no_attempt_back(
    queue: Queue, store: Store, conn: Conn, seen: Events, jobs: Jobs, working: Working, silence: Silence
) -> None:
    """The reaper of another worker was first: the crash is counted, and the lapsed worker has lost the job."""
    faults = Faults(jobs)
    started = asyncio.Event()

    @queue.task("work")
    async def work(job: Job) -> None:
        started.set()
        if job.attempt == 1:
            await asyncio.Event().wait()

    job = await queue.enqueue(work.bind())
    async with working(**LEASES) as running:
        await started.wait()
        await silence.begin()
        await faults.fail_settling("25006")
        await seen(LeaseLapsed)
        await eventually(faults.count)
        reaped = await store.reap_worker(conn, running.worker.worker_id, pause_s=0.0, limit=10)
        await faults.mend()
        lost = await seen(LeaseLost)
        crashes = await jobs.run("select crashes from @schema@.job where id = $1", job.id)
        await silence.end()
        now = await jobs.become(job.id, State.DONE)

    assert [one.id for one in reaped] == [job.id]
    assert (lost.id, lost.attempt, crashes, now.attempt) == (job.id, 1, 1, 2)
    assert now.records == [("WorkerLost", 1)]


async def test_a_claim_that_answers_after_the_lapse_starts_nothing_that_stays(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, silence: Silence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What begins while the lease is lapsed is handed back like what ran before."""
    claimed, answer = asyncio.Event(), asyncio.Event()
    claim = Store.claim_jobs
    ends: list[str] = []

    async def claim_slowly(store: Store, conn: Conn, **options: Any) -> Any:
        found = await claim(store, conn, **options)
        if found and not claimed.is_set():
            claimed.set()
            await answer.wait()
        return found

    monkeypatch.setattr(Store, "claim_jobs", claim_slowly)

    @queue.task("work")
    async def work() -> None:
        if not ends:
            try:
                await asyncio.Event().wait()
            finally:
                ends.append("cancelled")

    job = await queue.enqueue(work.bind())
    async with working(**LEASES):
        await claimed.wait()
        await silence.begin()
        await seen(LeaseLapsed)
        answer.set()
        now = await jobs.become(job.id, State.WAITING)
        called = bool(ends)
        ends.append("handed back")
        await silence.end()
        await jobs.become(job.id, State.DONE)

    assert (now.attempt, now.records) == (0, [("LeaseLapsed", 1)] if called else [])


async def test_a_beat_that_comes_too_late_finds_what_was_lost_meanwhile(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a halt of the process (SIGSTOP, a suspended machine), whoever looks first, the loop or the side thread."""
    halted_s, beats = 0.0, 0
    beat, real_time = Store.beat, heartbeat.boot_time
    stolen = threading.Event()
    cancelled: list[int] = []

    async def counted_beat(store: Store, *arguments: Any) -> None:
        nonlocal beats
        await beat(store, *arguments)
        beats += 1

    monkeypatch.setattr(Store, "beat", counted_beat)
    monkeypatch.setattr(heartbeat, "boot_time", lambda: real_time() + halted_s)

    @queue.task("work")
    async def work(job: Job) -> None:
        nonlocal halted_s
        assert stolen.wait(8)  # The reaper of another worker was quicker than the end of the halt.
        halted_s = 100.0
        seen_before, give_up_at = beats, time.monotonic() + 8
        while beats < seen_before + 2 and time.monotonic() < give_up_at:
            time.sleep(0.01)  # The loop is not there yet: the side thread is first.
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(job.id)
            raise

    job = await queue.enqueue(work.bind())
    take = jobs.text(
        "update @schema@.job set worker_id = null, lease_until = null, queue = 'elsewhere'"
        " where id = $1 and worker_id is not null returning true"
    )
    taking = look_beside(dsn, lambda conn: conn.fetchval(take, job.id), stolen)
    async with working(grace_s=0.0, **LEASES):
        await until_true(lambda: cancelled)
    await taking.join()

    now = await jobs.get(job.id)
    assert cancelled == [job.id]
    assert (now.state, now.attempt) == (State.WAITING, 1)
