"""Outcomes reach the database: late, in batches, one refused among many, but never as another outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from jobq import DatabaseUnavailableError, Queue
from jobq.core.job import JobId, WorkerId
from jobq.core.states import State
from jobq.db.store import Owned, Store
from jobq.telemetry.events import DatabaseAway, DatabaseBack, JobDied, JobRetried, LeaseLost, OutcomeNotStored
from jobq.worker import pulse, settler
from jobq.worker.supervisor import ExitCode
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.faults import Faults
from tests.worker.observe import Events, Jobs, eventually, until_true

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]


@pytest.fixture
def faults(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Faults of the test's schema, met with pauses of milliseconds."""
    monkeypatch.setattr(pulse, "FIRST_PAUSE_S", 0.01)
    return Faults(jobs)


@pytest.mark.parametrize("sqlstate", ["25006", "57P01", "40001", "40P01"])
async def test_a_success_stays_one_while_it_cannot_be_written(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, faults: Faults, sqlstate: str
) -> None:
    """F86: a server that is read-only or shutting down, and conflicts, are waited out: one run, done, said once."""
    runs: list[str] = []

    @queue.task("work", max_attempts=1)
    async def work(n: int) -> None:
        runs.append(f"work {n}")

    await faults.fail_settling(sqlstate, times=4)
    await queue.enqueue_many([work.bind(n) for n in range(3)])
    async with working():
        await jobs.all_become(State.DONE, 3)
        back = await seen(DatabaseBack)

    assert sorted(runs) == ["work 0", "work 1", "work 2"]
    assert [event.loop for event in seen.of(DatabaseAway)] == ["settling"]
    assert back.loop == "settling"
    assert not seen.has(JobRetried, JobDied, LeaseLost)


async def test_a_failure_stays_what_it_was_while_it_cannot_be_written(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, faults: Faults
) -> None:
    """After the outage the error of the handler is stored, not that of the database."""

    @queue.task("work", max_attempts=2, backoff=AT_ONCE)
    async def work() -> None:
        raise ValueError("mine")

    await faults.fail_settling("25006", times=3)
    job = await queue.enqueue(work.bind())
    async with working():
        now = await jobs.become(job.id, State.DEAD)

    assert [error["message"] for error in now.errors] == ["mine", "mine"]


async def test_a_connection_that_is_lost_during_the_write_is_replaced(
    queue: Queue, connect: Callable[[], Awaitable[Conn]], seen: Events, jobs: Jobs, working: Working
) -> None:
    """The settler, killed while it waits for a row, writes the same outcome on a new connection."""
    runs = 0
    running, finish = asyncio.Event(), asyncio.Event()

    @queue.task("work", max_attempts=1)
    async def work() -> None:
        nonlocal runs
        runs += 1
        running.set()
        await finish.wait()

    job = await queue.enqueue(work.bind())
    blocker = await connect()
    async with working():
        await running.wait()
        async with blocker.transaction():
            await blocker.execute(jobs.text("select from @schema@.job where id = $1 for update"), job.id)
            finish.set()
            await eventually(
                lambda: jobs.backends("wait_event_type = 'Lock'"), lambda found: found == ["jobq settling"]
            )
            await jobs.terminate("jobq settling")
            await seen(DatabaseAway)
        now = await jobs.become(job.id, State.DONE)

    assert now.attempt == 1
    assert runs == 1
    assert [event.loop for event in seen.of(DatabaseAway)] == ["settling"]


async def test_a_connection_that_became_read_only_is_replaced(queue: Queue, jobs: Jobs, working: Working) -> None:
    """A server that answers and cannot write is left: after a failover a new connection leads to another one."""
    await jobs.script(
        """
        create function @schema@.demote() returns trigger language plpgsql as $demote$
        begin
            if current_setting('application_name') = 'jobq settling' then
                perform set_config('default_transaction_read_only', 'on', false);  -- from the next transaction on
            end if;
            return old;
        end
        $demote$;
        create trigger demote before delete on @schema@.job for each row execute function @schema@.demote();
        """
    )

    @queue.task("work")
    async def work() -> None: ...

    async with working():
        for _ in range(2):
            job = await queue.enqueue(work.bind())
            await jobs.become(job.id, State.DONE)


async def test_an_answer_that_was_lost_is_asked_for_again(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F86: a write that was committed and whose answer never came ends as done and one run, said as a lost lease."""
    runs = 0
    settle_done = Store.settle_done

    async def settle_and_lose(
        store: Store, conn: Conn, worker_id: WorkerId, owned: Sequence[Owned], run_ms: Sequence[int]
    ) -> set[JobId]:
        monkeypatch.setattr(Store, "settle_done", settle_done)
        await settle_done(store, conn, worker_id, owned, run_ms)
        raise DatabaseUnavailableError("the answer is lost")

    monkeypatch.setattr(Store, "settle_done", settle_and_lose)

    @queue.task("work")
    async def work() -> None:
        nonlocal runs
        runs += 1

    job = await queue.enqueue(work.bind())
    async with working():
        await seen(LeaseLost)

    assert (await jobs.get(job.id)).state is State.DONE
    assert runs == 1


async def test_a_refused_error_text_is_replaced_by_a_plain_record(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, faults: Faults
) -> None:
    """F55: of a batch of which PostgreSQL refuses one row, all others are written as they are, that one without it."""
    together = asyncio.Barrier(4)

    @queue.task("die", max_attempts=1)
    async def die(text: str) -> None:
        await together.wait()
        raise ValueError(text)

    await faults.refuse("dead_letter", "new.error_message like '%poison%'")
    enqueued = await queue.enqueue_many([die.bind(text) for text in ("a", "poison", "b", "c")])
    async with working():
        await jobs.all_become(State.DEAD, 4)
        refused = await seen(OutcomeNotStored)
        await seen(JobDied, nth=4)

    messages = [(await jobs.get(job.id)).errors[-1]["message"] for job in enqueued]
    assert messages == ["a", "the error of this attempt could not be stored: DatabaseError", "b", "c"]
    assert (refused.id, refused.replaced) == (enqueued[1].id, True)
    assert len(seen.of(OutcomeNotStored)) == 1


async def test_a_refused_retry_is_tried_again_with_a_plain_record(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, faults: Faults
) -> None:
    """The job keeps its attempts: only the text that cannot be stored is lost."""
    runs = 0

    @queue.task("work", backoff=AT_ONCE)
    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("poison")

    await faults.refuse("job", "new.errors::text like '%poison%'")
    job = await queue.enqueue(work.bind())
    async with working():
        await jobs.become(job.id, State.DONE)

    assert runs == 2
    assert [event.replaced for event in seen.of(OutcomeNotStored)] == [True]
    assert seen.of(JobRetried)[0].error_message.startswith("the error of this attempt could not be stored")


async def test_an_outcome_that_cannot_be_written_at_all_holds_up_nobody(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F55: the others of its batch and those after it are written; its job is named and left to its lease: exit 3.

    Nor is it handed back as a stray, whose attempt would be returned.
    """
    looked = asyncio.Semaphore(0)
    release = Store.release_strays

    async def look(store: Store, conn: Conn, worker_id: WorkerId, in_hand: Sequence[JobId]) -> list[JobId]:
        released = await release(store, conn, worker_id, in_hand)
        looked.release()
        return released

    monkeypatch.setattr(Store, "release_strays", look)

    @queue.task("work")
    async def work(n: int) -> None: ...

    await faults.refuse("done", "new.payload ->> 'n' = '1'")
    enqueued = await queue.enqueue_many([work.bind(n) for n in range(4)])
    async with working(worker_lease_s=0.3, beat_s=0.05, beat_deadline_s=0.2) as running:
        refused = await seen(OutcomeNotStored)
        await jobs.until({State.DONE: 3, State.RUNNING: 1})
        for _ in range(3):
            await looked.acquire()
        after = await queue.enqueue(work.bind(9))
        await jobs.become(after.id, State.DONE)
        code = await running.stop()

    assert code is ExitCode.HANDED_BACK
    assert (refused.id, refused.replaced) == (enqueued[1].id, False)
    assert len(seen.of(OutcomeNotStored)) == 1
    assert (await jobs.get(enqueued[1].id)).state is State.RUNNING


async def test_unwritten_outcomes_stop_the_claims(
    queue: Queue, jobs: Jobs, working: Working, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F86: while nothing can be written no more starts than the bound and the slots; then all are done, once each."""
    runs: list[int] = []

    @queue.task("work")
    async def work(n: int) -> None:
        runs.append(n)

    monkeypatch.setattr(settler, "MAX_BACKLOG", 5)
    monkeypatch.setattr(pulse, "LONGEST_PAUSE_S", 0.02)
    await faults.fail_settling("25006")
    await queue.enqueue_many([work.bind(n) for n in range(40)])
    async with working(default_slots=3):
        await until_true(lambda: len(runs) > 5)
        failed = await faults.count()
        await eventually(faults.count, lambda count: count > failed + 5)
        started = len(runs)
        await faults.mend()
        await jobs.all_become(State.DONE, 40)

    assert 5 < started <= 5 + 3
    assert sorted(runs) == list(range(40))


async def test_what_comes_in_during_a_write_is_the_next_batch(
    queue: Queue, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone outcome is written at once; twenty that come in meanwhile are one statement."""
    batches: list[int] = []
    writing, go_on = asyncio.Event(), asyncio.Event()
    ended: list[int] = []
    settle_done = Store.settle_done

    async def settle_slowly(
        store: Store, conn: Conn, worker_id: WorkerId, owned: Sequence[Owned], run_ms: Sequence[int]
    ) -> set[JobId]:
        batches.append(len(owned))
        writing.set()
        await go_on.wait()
        return await settle_done(store, conn, worker_id, owned, run_ms)

    monkeypatch.setattr(Store, "settle_done", settle_slowly)

    @queue.task("work")
    async def work(n: int) -> None:
        ended.append(n)

    await queue.enqueue(work.bind(0))
    async with working():
        await writing.wait()
        await queue.enqueue_many([work.bind(n) for n in range(1, 21)])
        await until_true(lambda: len(ended) == 21)
        go_on.set()
        await jobs.all_become(State.DONE, 21)

    assert batches == [1, 20]
