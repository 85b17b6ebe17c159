"""Poison pills end as dead letters, and only they: the last try of a suspect is the only job in its worker."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, Queue
from jobq.core.job import JobId, WorkerId
from jobq.core.states import State
from jobq.db.store import Store
from jobq.errors import DatabaseUnavailableError
from jobq.telemetry.events import AttemptOverran, JobDied, LeaseLost
from jobq.worker import pulse, quarantine
from jobq.worker.quarantine import Quarantine
from jobq.worker.supervisor import ExitCode
from tests.db.rows import Attempt, Rows
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs, eventually, until_true

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]

RENEWED: dict[str, Any] = {
    "worker_lease_s": 0.9,
    "beat_s": 0.05,
    "beat_deadline_s": 0.8,
    "job_lease_s": 2.0,
    "statement_deadline_s": 1.0,
}
"""A worker that soon hears what it has lost."""

BOTH = {State.RUNNING: 2}


@pytest.fixture
def rows(conn: Conn, store: Store) -> Rows:
    """The rows of the test's schema."""
    return Rows(conn, store)


class Hall:
    """The handler of kind `run`: who comes and goes, in order, and who may go."""

    def __init__(self, queue: Queue) -> None:
        self.log: list[tuple[str, str]] = []
        self.inside: set[str] = set()
        self.may_go = {name: asyncio.Event() for name in ("first", "second", "suspect", "later")}

        @queue.task("run")
        async def run(job: Job, name: str) -> None:
            self.inside.add(name)
            self.log.append(("in", name))
            try:
                await self.may_go[name].wait()
            finally:
                self.inside.remove(name)
                self.log.append(("out", name))

        self.bind = run.bind

    async def has(self, *names: str) -> None:
        """Wait until exactly these are inside."""
        await until_true(lambda: self.inside == set(names))


@pytest.fixture
def hall(queue: Queue) -> Hall:
    """A handler that tells who is inside."""
    return Hall(queue)


async def suspect(queue: Queue, rows: Rows, crashes: int = 2, lone: int = 0) -> JobId:
    """Enqueue the suspect: it has crashed so often already."""
    job_id = await rows.waiting(kind="run", queue="default", payload='{"name": "suspect"}', delay_s=3600.0)
    await rows.run(
        "update @schema@.job set crashes = $2, lone_crashes = $3, attempt = $2, run_at = now() where id = $1",
        job_id,
        crashes,
        lone,
    )
    await rows.run("select @schema@.notify_sleepers('{default}')")
    return job_id


async def crash(rows: Rows, jobs: Jobs, *job_ids: JobId) -> None:
    """Let other workers take the jobs away, as if the one that runs them were dead."""
    for job_id in job_ids:
        now = await jobs.get(job_id)
        assert now.fence is not None
        assert now.worker_id is not None
        attempt = Attempt(job_id, now.fence, WorkerId(now.worker_id))
        async with rows.conn.transaction():
            await rows.lapse(attempt)
            assert await rows.store.reap_orphans(rows.conn, [attempt], pause_s=0.0)


# -- the judgement -----------------------------------------------------------------------------------


async def test_a_killer_becomes_a_dead_letter(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working
) -> None:
    """It says how often it has killed its worker, and the handler is not called again (F33)."""
    job_id = await suspect(queue, rows, crashes=3, lone=1)

    async with working():
        died = await seen(JobDied)

    letter = await rows.dead_letter(job_id)
    assert hall.log == []
    assert (died.id, died.reason, died.attempt) == (job_id, "killed its worker", 3)
    assert died.error_message.startswith("killed its worker 3 times")
    assert (letter["crashes"], letter["attempt"], letter["error_type"]) == (3, 3, "WorkerLost")
    assert letter["error_message"] == died.error_message


async def test_who_was_merely_beside_is_innocent(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working
) -> None:
    """However often its workers died: it runs alone, and is done."""
    job_id = await suspect(queue, rows, crashes=8)
    hall.may_go["suspect"].set()

    async with working():
        await jobs.become(job_id, State.DONE)

    assert hall.log == [("in", "suspect"), ("out", "suspect")]
    assert not seen.has(JobDied)


async def test_a_suspect_that_dies_alone_is_condemned_by_the_next_claim(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working
) -> None:
    """The whole way: alone, reaped, claimed again, dead."""
    job_id = await suspect(queue, rows)

    async with working(**RENEWED):
        await hall.has("suspect")
        isolated = await rows.row("select alone_fence = fence as yes, crashes from @schema@.job where id = $1", job_id)
        await crash(rows, jobs, job_id)
        await jobs.become(job_id, State.DEAD)

    assert tuple(isolated) == (True, 2)
    assert [(event.id, event.attempt) for event in seen.of(LeaseLost)] == [(job_id, 3)]
    assert hall.log == [("in", "suspect"), ("out", "suspect")]
    assert (await rows.dead_letter(job_id))["error_message"].startswith("killed its worker 3 times")


async def test_the_last_crash_among_others_condemns_nobody(
    queue: Queue, rows: Rows, hall: Hall, seen: Events, jobs: Jobs, working: Working
) -> None:
    """With two crashes each, taken from a worker in which both waited or ran, both are tried again."""
    ids = [await suspect(queue, rows, crashes=1) for _ in range(2)]

    async with working(default_slots=2, **RENEWED):
        await jobs.until(BOTH)
        await crash(rows, jobs, *ids)
        hall.may_go["suspect"].set()
        await jobs.all_become(State.DONE, 2)

    assert not seen.has(JobDied)
    assert await rows.value("select array_agg(crashes) from @schema@.done") == [2, 2]


async def test_a_kind_may_allow_a_single_crash(
    queue: Queue, rows: Rows, seen: Events, jobs: Jobs, working: Working
) -> None:
    """With `max_crashes=1` every run is a run alone, so the first crash is the last."""

    @queue.task("bomb", max_crashes=1)
    async def bomb() -> None:
        await asyncio.Event().wait()

    job = await queue.enqueue(bomb.bind())
    async with working(**RENEWED):
        await eventually(lambda: rows.value("select alone_fence is not null from @schema@.job where id = $1", job.id))
        await crash(rows, jobs, job.id)
        died = await seen(JobDied)

    assert died.error_message.startswith("killed its worker 1 time")


# -- alone -------------------------------------------------------------------------------------------


async def test_a_suspect_runs_alone(queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working) -> None:
    """It waits for what runs, nothing is claimed meanwhile, and afterwards the claims go on (F34)."""
    await queue.enqueue_many([hall.bind("first"), hall.bind("second")])

    async with working(default_slots=5):
        await hall.has("first", "second")
        job_id = await suspect(queue, rows)
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
        await suspect(queue, rows)
        await jobs.until(BOTH)
        another = await queue.enqueue(thread.bind())
        assert hall.inside == set()
        finish.set()
        await hall.has("suspect")
        for _ in range(20):
            assert (await jobs.get(another.id)).state is State.WAITING
        hall.may_go["suspect"].set()
        await jobs.all_become(State.DONE, 3)


async def test_suspects_run_one_after_the_other(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working
) -> None:
    """Claimed together, each has its turn."""
    hall.may_go["suspect"].set()
    for _ in range(3):
        await suspect(queue, rows)

    async with working(default_slots=5):
        await jobs.all_become(State.DONE, 3)

    assert hall.log == [("in", "suspect"), ("out", "suspect")] * 3


async def test_a_suspect_that_finds_no_quiet_moment_is_handed_back(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its attempt, for later; this worker goes on claiming meanwhile (F34)."""
    monkeypatch.setattr(quarantine, "PATIENCE_S", 0.05)
    await queue.enqueue(hall.bind("first"))

    async with working(default_slots=5):
        await hall.has("first")
        job_id = await suspect(queue, rows)
        now = await jobs.waits_longer(job_id, 2.0)
        await queue.enqueue(hall.bind("later"))
        await hall.has("first", "later")
        for event in hall.may_go.values():
            event.set()

    assert (now.state, now.attempt, now.errors) == (State.WAITING, 2, [])
    assert quarantine.LATER_S - 2 < now.due_in_s <= quarantine.LATER_S
    assert ("in", "suspect") not in hall.log


async def test_a_suspect_that_waits_is_handed_back_at_a_stop(
    queue: Queue, rows: Rows, hall: Hall, jobs: Jobs, working: Working
) -> None:
    """With its attempt; what runs is drained."""
    await queue.enqueue(hall.bind("first"))

    async with working(default_slots=5) as running:
        await hall.has("first")
        job_id = await suspect(queue, rows)
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
        job_id = await suspect(queue, rows)
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
    job_id = await suspect(queue, rows)
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
            job_id = await suspect(queue, rows)
            await jobs.until(BOTH)
            await seen(AttemptOverran)
            code = await running.ended()
    finally:
        finish.set()

    now = await jobs.get(job_id)
    assert rounds < 1000
    assert (code, now.state, now.attempt) == (ExitCode.HANDED_BACK, State.WAITING, 2)
