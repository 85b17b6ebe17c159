"""Jobs of workers that fell silent come back, at the second sighting, whoever runs them next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, Queue
from jobq.core.job import WorkerId
from jobq.core.states import State
from jobq.db.store import Store
from jobq.settings import Access
from jobq.telemetry.events import JobReaped, LeaseLost, WorkerReaped
from jobq.worker import reaper
from tests.db.rows import LEASE_S, Attempt, Rows, new_worker
from tests.worker.conftest import TIMEOUT_MS, Working
from tests.worker.observe import Events, Jobs, eventually, until_true

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]

OFTEN: dict[str, Any] = {"worker_lease_s": 0.9, "beat_s": 0.05, "beat_deadline_s": 0.8}
"""The reaper looks every 50 ms."""

LONGEST_PAUSE_S = 0.3

Look = Callable[[], Awaitable[object]]


@pytest.fixture
def rows(conn: Conn, store: Store, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """Rows of workers that are not there; what is reaped is ready at once."""
    monkeypatch.setattr(reaper, "CRASH_PAUSE_SHARE", 0.0)
    monkeypatch.setattr(reaper, "LONGEST_PAUSE_S", LONGEST_PAUSE_S)
    return Rows(conn, store)


@pytest.fixture
def work(queue: Queue) -> list[tuple[int, int]]:
    """The handler of kind `work`: id and attempt of each start."""
    starts: list[tuple[int, int]] = []

    @queue.task("work")
    async def work(job: Job) -> None:
        starts.append((job.id, job.attempt))

    return starts


async def held(rows: Rows, worker_id: WorkerId, count: int = 1) -> list[Attempt]:
    """Jobs of kind `work` that *worker_id* runs."""
    stated = {"kind": "work", "queue": "default", "payload": "{}"}
    return [await rows.running(worker_id, **stated) for _ in range(count)]


class Looks:
    """What the reaper finds and takes, in order; *after* acts on what was found, before the reaper does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.after: dict[int, Look] = {}
        self._times: list[float] = []
        monkeypatch.setattr(Store, "list_lapsed_workers", self._looking(Store.list_lapsed_workers))
        monkeypatch.setattr(Store, "list_orphans", self._looking(Store.list_orphans))
        monkeypatch.setattr(Store, "reap_worker", self._reaping(Store.reap_worker))
        monkeypatch.setattr(Store, "reap_orphans", self._reaping(Store.reap_orphans))

    def _looking(self, real: Callable[..., Awaitable[Sequence[object]]]) -> Any:
        async def look(store: Store, conn: Conn, *arguments: Any) -> Sequence[object]:
            found = await real(store, conn, *arguments)
            if found:
                self.log.append("seen")
                self._times.append(time.monotonic())
                if act := self.after.get(len(self.log)):
                    await act()
            return found

        return look

    def _reaping(self, real: Callable[..., Awaitable[Sequence[object]]]) -> Any:
        async def reap(store: Store, conn: Conn, *arguments: Any, **options: Any) -> Sequence[object]:
            taken = await real(store, conn, *arguments, **options)
            self.log.append(f"reaped {len(taken)}")
            self._times.append(time.monotonic())
            return taken

        return reap

    @property
    def fair_after_s(self) -> float:
        """How long the reaper saw what it took before it took it."""
        assert self.log == ["seen"] * (len(self.log) - 1) + ["reaped 1"]
        return self._times[-1] - self._times[0]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """The looks of the test's reaper."""
    return Looks(monkeypatch)


@pytest.fixture
async def other(connect: Callable[[], Awaitable[Conn]]) -> Conn:
    """A second connection, for a second actor."""
    return await connect()


@pytest.fixture
def cut(other: Conn) -> Look:
    """Break the reaper's connection."""

    async def cut() -> None:
        await other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'jobq upkeep' and datname = current_database()"
        )

    return cut


# -- a worker that fell silent -----------------------------------------------------------------------


async def test_the_jobs_of_a_silent_worker_are_run_by_another(
    rows: Rows, work: list[tuple[int, int]], seen: Events, jobs: Jobs, working: Working
) -> None:
    """F13: each with its crash counted and recorded; the row of the dead is forgotten."""
    dead, alive = new_worker(), new_worker()
    lost, kept = await held(rows, dead, 3), await held(rows, alive)
    await rows.beat(dead, lease_s=-1.0)
    await rows.beat(alive)

    async with working(**OFTEN):
        reaped = await seen(WorkerReaped)
        await jobs.until({State.DONE: 3, State.RUNNING: 1})

    assert (reaped.silent_worker_id, reaped.jobs) == (dead, 3)
    assert sorted(work) == [(one.id, 2) for one in lost]
    assert sorted(seen.of(JobReaped), key=lambda event: event.id) == [JobReaped(one.id, "work", 1) for one in lost]
    assert [(await jobs.get(one.id)).state for one in kept] == [State.RUNNING]
    assert await rows.value("select array(select worker_id from @schema@.worker)") == [alive]
    assert await rows.value("select array_agg(distinct crashes) from @schema@.done") == [1]


async def test_jobs_are_taken_in_pages(
    rows: Rows,
    work: list[tuple[int, int]],
    seen: Events,
    jobs: Jobs,
    working: Working,
    looks: Looks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until the last one, in one round."""
    monkeypatch.setattr(reaper, "PAGE", 2)
    dead = new_worker()
    await held(rows, dead, 5)
    await rows.beat(dead, lease_s=-1.0)

    async with working(**OFTEN):
        reaped = await seen(WorkerReaped)
        await jobs.all_become(State.DONE, 5)

    assert reaped.jobs == 5
    assert looks.log == ["seen", "seen", "reaped 2", "reaped 2", "reaped 1"]


async def test_a_page_that_the_server_has_no_time_for_is_halved_until_it_is_done(
    rows: Rows, queue: Queue, work: list[tuple[int, int]], hurried: str, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F93: a short `statement_timeout` leaves nobody's jobs where they are."""
    dead = new_worker()
    await rows.many_waiting(400, kind="work", queue="default", payload="{}")
    await rows.store.claim_jobs(rows.conn, queue="default", kinds=["work"], limit=400, worker_id=dead, lease_s=LEASE_S)
    await rows.beat(dead, lease_s=-1.0)
    await rows.run("""
        create table @schema@.taken (page bigint not null);
        create function @schema@.hold_up() returns trigger language plpgsql as $$
            begin
                perform pg_sleep(0.001);
                insert into @schema@.taken values (pg_current_xact_id()::text::bigint);
                return new;
            end $$;
        create trigger slow before update on @schema@.job for each row
            when (new.worker_id is null) execute function @schema@.hold_up();
    """)
    queue.access = Access(dsn=hurried)

    async with working(**OFTEN):
        reaped = await seen(WorkerReaped)
        await jobs.all_become(State.DONE, 400)

    assert reaped.jobs == 400
    assert max(await rows.value("select array(select count(*) from @schema@.taken group by page)")) <= TIMEOUT_MS


async def test_the_row_of_a_dead_worker_that_holds_nothing_is_forgotten(
    rows: Rows, work: list[tuple[int, int]], seen: Events, working: Working
) -> None:
    """Nobody need wait for it, and the table stays small."""
    dead = new_worker()
    await rows.beat(dead, lease_s=-1.0)

    async with working(**OFTEN):
        reaped = await seen(WorkerReaped)

    assert (reaped.silent_worker_id, reaped.jobs) == (dead, 0)
    assert await rows.count("worker") == 0


async def test_a_job_that_is_locked_is_taken_later(
    rows: Rows, work: list[tuple[int, int]], seen: Events, jobs: Jobs, working: Working, other: Conn
) -> None:
    """The transaction of a handler that lives on holds up nothing, and the worker's row stays until it is gone."""
    dead = new_worker()
    locked, free = await held(rows, dead, 2)
    await rows.beat(dead, lease_s=-1.0)

    async with working(**OFTEN):
        async with other.transaction():
            await other.execute(jobs.text("select from @schema@.job where id = $1 for update"), locked.id)
            await jobs.become(free.id, State.DONE)
            assert await rows.count("worker", f"worker_id = '{dead}'") == 1
        await jobs.become(locked.id, State.DONE)
        await eventually(lambda: rows.count("worker", f"worker_id = '{dead}'"), lambda count: count == 0)

    assert sorted(work) == [(locked.id, 2), (free.id, 2)]


# -- the second sighting -----------------------------------------------------------------------------


async def test_nothing_is_reaped_at_the_first_sighting(
    rows: Rows, work: list[tuple[int, int]], seen: Events, working: Working, looks: Looks
) -> None:
    """F31: whoever beats in time keeps its jobs, and its next lapse is a first one again."""
    silent = new_worker()
    await held(rows, silent)
    await rows.beat(silent, lease_s=-1.0)

    async def beat() -> None:
        await rows.beat(silent, lease_s=1.5)

    looks.after[1] = beat

    async with working(**OFTEN):
        await seen(WorkerReaped)

    assert looks.log == ["seen", "seen", "seen", "reaped 1"]


async def test_after_an_outage_the_slowest_heartbeat_gets_to_renew_first(
    rows: Rows, work: list[tuple[int, int]], seen: Events, working: Working, looks: Looks, cut: Look
) -> None:
    """Nobody could renew while the database was away: it may come back after the longest pause, and a late answer."""
    silent = new_worker()
    await held(rows, silent)
    await rows.beat(silent, lease_s=-1.0)

    looks.after[1] = cut

    async with working(**OFTEN):
        await seen(WorkerReaped)

    assert looks.fair_after_s > LONGEST_PAUSE_S + OFTEN["beat_deadline_s"]


async def test_after_an_outage_the_jobs_that_seem_forgotten_get_to_be_renewed_first(
    rows: Rows, work: list[tuple[int, int]], jobs: Jobs, working: Working, looks: Looks, cut: Look
) -> None:
    """As for workers."""
    alive = new_worker()
    (orphan,) = await held(rows, alive)
    await rows.beat(alive)
    await rows.lapse(orphan)

    looks.after[1] = cut

    async with working(**OFTEN):
        await jobs.become(orphan.id, State.DONE)

    assert looks.fair_after_s > LONGEST_PAUSE_S + OFTEN["beat_deadline_s"]


# -- orphans -----------------------------------------------------------------------------------------


async def test_what_a_live_worker_forgot_comes_back(
    rows: Rows, work: list[tuple[int, int]], seen: Events, jobs: Jobs, working: Working, looks: Looks
) -> None:
    """The job's own lease has lapsed, though its worker beats; the worker's other jobs and its row stay."""
    alive = new_worker()
    orphan, kept = await held(rows, alive, 2)
    await rows.beat(alive)
    await rows.lapse(orphan)

    async with working(**OFTEN):
        await jobs.become(orphan.id, State.DONE)

    assert looks.log == ["seen", "seen", "reaped 1"]
    assert seen.of(JobReaped) == [JobReaped(orphan.id, "work", 1)]
    assert (await jobs.get(kept.id)).state is State.RUNNING
    assert await rows.count("worker", f"worker_id = '{alive}'") == 1


async def test_a_job_without_a_worker_s_row_comes_back(
    rows: Rows, work: list[tuple[int, int]], jobs: Jobs, working: Working
) -> None:
    """C4: a claim that commits after its worker has ended; nobody waits for the job's own lease."""
    (orphan,) = await held(rows, new_worker())

    async with working(**OFTEN):
        await jobs.become(orphan.id, State.DONE)

    assert work == [(orphan.id, 2)]


async def test_what_this_worker_forgot_itself_comes_back(
    rows: Rows, work: list[tuple[int, int]], seen: Events, jobs: Jobs, working: Working
) -> None:
    """A row that bears its id, and that nobody here knows of."""
    async with working(**OFTEN) as running:
        (orphan,) = await held(rows, running.worker.worker_id)
        await rows.lapse(orphan)
        await jobs.become(orphan.id, State.DONE)

    assert work == [(orphan.id, 2)]
    assert seen.of(JobReaped) == [JobReaped(orphan.id, "work", 1)]
    assert not seen.has(WorkerReaped)


async def test_a_reaped_job_whose_handler_runs_on_is_lost_to_it(
    rows: Rows, queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """The second attempt settles the job; the first is cancelled and writes nothing."""
    started, finish = asyncio.Semaphore(0), asyncio.Event()
    ended: list[tuple[int, str]] = []

    @queue.task("work")
    async def work(job: Job) -> None:
        started.release()
        try:
            await finish.wait()
        except asyncio.CancelledError:
            ended.append((job.attempt, "cancelled"))
            raise
        ended.append((job.attempt, "finished"))

    job = await queue.enqueue(work.bind())
    async with working(default_slots=2, **OFTEN) as running:
        await started.acquire()
        fence = (await jobs.get(job.id)).fence
        assert fence is not None
        await rows.lapse(Attempt(job.id, fence, running.worker.worker_id))
        await started.acquire()
        await until_true(lambda: ended)
        finish.set()
        now = await jobs.become(job.id, State.DONE)

    assert ended == [(1, "cancelled"), (2, "finished")]
    assert now.attempt == 2
    assert [(event.id, event.attempt) for event in seen.of(LeaseLost)] == [(job.id, 1)]
