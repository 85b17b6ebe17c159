"""`job.transaction()`: a handler's writes and its job's completion commit together, or neither does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jobq import Job, LostLeaseError, Queue, Snooze
from jobq.core.states import State
from jobq.telemetry.events import FailedAfterCompletion, JobDied, JobRetried, LeaseLost
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Events, Jobs

if TYPE_CHECKING:
    from asyncpg import Record
    from asyncpg.pool import PoolConnectionProxy

    Conn = PoolConnectionProxy[Record]


class Ledger:
    """A table of the application's, with one row for each effect."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._insert = jobs.text("insert into @schema@.ledger (job_id, note) values ($1, $2)")

    async def write(self, conn: Conn, job: Job, note: str = "effect") -> None:
        await conn.execute(self._insert, job.id, note)

    async def notes(self) -> list[str]:
        notes: list[str] = await self._jobs.run(
            "select coalesce(array_agg(note order by note), '{}') from @schema@.ledger"
        )
        return notes


@pytest.fixture
async def ledger(jobs: Jobs) -> Ledger:
    """An empty ledger."""
    await jobs.script("create table @schema@.ledger (job_id bigint not null, note text not null)")
    return Ledger(jobs)


async def test_writes_completion_and_follow_up_commit_together(
    queue: Queue, jobs: Jobs, working: Working, ledger: Ledger
) -> None:
    """While the transaction is open nothing of it is seen; afterwards all of it is."""
    written, commit = asyncio.Event(), asyncio.Event()
    followed: list[int] = []

    @queue.task("pay")
    async def pay(job: Job) -> None:
        async with job.transaction() as conn:
            await ledger.write(conn, job)
            await queue.enqueue(receipt.bind(job.id), conn=conn)
            written.set()
            await commit.wait()
        assert job.completed

    @queue.task("receipt")
    async def receipt(of: int) -> None:
        followed.append(of)

    job = await queue.enqueue(pay.bind())
    async with working():
        await written.wait()
        assert (await ledger.notes(), await jobs.count()) == ([], {State.RUNNING: 1})
        commit.set()
        await jobs.all_become(State.DONE, 2)

    assert await ledger.notes() == ["effect"]
    assert followed == [job.id]


async def test_an_exception_inside_rolls_back_and_retries(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, ledger: Ledger
) -> None:
    """Neither the writes nor the follow-up job of the failed attempt are there; the next attempt does them once."""

    @queue.task("pay", backoff=AT_ONCE)
    async def pay(job: Job) -> None:
        async with job.transaction() as conn:
            await ledger.write(conn, job, f"attempt {job.attempt}")
            await queue.enqueue(receipt.bind(job.attempt), conn=conn)
            if job.attempt == 1:
                raise OSError("no")

    @queue.task("receipt")
    async def receipt(of: int) -> None: ...

    job = await queue.enqueue(pay.bind())
    async with working():
        await jobs.all_become(State.DONE, 2)

    assert await ledger.notes() == ["attempt 2"]
    assert [event.error_type for event in seen.of(JobRetried)] == ["OSError"]
    assert (await jobs.get(job.id)).records == [("OSError", 1)]


async def test_a_time_out_inside_rolls_back(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, ledger: Ledger
) -> None:
    """An attempt that is cancelled in its transaction has written nothing and holds no connection."""

    @queue.task("pay", timeout=0.1, max_attempts=1)
    async def pay(job: Job) -> None:
        async with job.transaction() as conn:
            await ledger.write(conn, job)
            await conn.execute("select pg_sleep(60)")

    job = await queue.enqueue(pay.bind())
    async with working():
        await jobs.become(job.id, State.DEAD)
        assert await ledger.notes() == []
        assert await jobs.backends("application_name = 'jobq handlers' and state like '%in transaction%'") == []

    assert seen.of(JobDied)[0].error_type == "TimeoutError"


async def test_a_lost_lease_writes_nothing(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, ledger: Ledger
) -> None:
    """If another attempt has the job by then, the transaction fails, and the outcome is reported as a lost lease."""
    written, commit = asyncio.Event(), asyncio.Event()
    errors: list[LostLeaseError] = []

    @queue.task("pay")
    async def pay(job: Job) -> None:
        try:
            async with job.transaction() as conn:
                await ledger.write(conn, job)
                written.set()
                await commit.wait()
        except LostLeaseError as error:
            errors.append(error)
            raise

    job = await queue.enqueue(pay.bind())
    async with working():
        await written.wait()
        await jobs.steal(job.id, into="elsewhere")
        commit.set()
        lost = await seen(LeaseLost)

    assert (lost.id, lost.attempt) == (job.id, 1)
    assert "nothing of this transaction was written" in str(errors[0])
    assert await ledger.notes() == []
    assert (await jobs.get(job.id)).state is State.WAITING


async def test_two_attempts_of_one_job_have_one_effect(
    queue: Queue, dsn: str, schema: str, seen: Events, jobs: Jobs, working: Working, ledger: Ledger
) -> None:
    """A job that two workers run at the same time is paid once, by the attempt that owns it."""
    inside: list[int] = []
    all_inside, commit = asyncio.Event(), asyncio.Event()

    async def pay(job: Job) -> None:
        async with job.transaction() as conn:
            await ledger.write(conn, job, f"fence {job.fence}")
            inside.append(job.fence)
            if len(inside) == 2:
                all_inside.set()
            await commit.wait()

    other = Queue(dsn, schema=schema)
    queue.task("pay")(pay)
    other.task("pay")(pay)
    job = await queue.enqueue("pay", {})
    async with working(default_slots=1):
        await jobs.become(job.id, State.RUNNING)
        async with working(other, default_slots=1):
            await jobs.steal(job.id)
            await all_inside.wait()
            commit.set()
            lost = await seen(LeaseLost)
            now = await jobs.become(job.id, State.DONE)

    assert inside == [1, 2]
    assert await ledger.notes() == ["fence 2"]
    assert (lost.id, lost.attempt, now.attempt) == (job.id, 1, 2)


async def test_what_a_handler_does_after_its_commit_changes_nothing(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, ledger: Ledger
) -> None:
    """The job is done: an exception is said and kept from it, a `Snooze` or a cancellation is no answer any more."""
    hanging = asyncio.Event()

    @queue.task("pay")
    async def pay(job: Job, then: str) -> Snooze | None:
        async with job.transaction() as conn:
            await ledger.write(conn, job, then)
        if then == "raise":
            raise ValueError("too late")
        if then == "hang":
            hanging.set()
            await asyncio.Event().wait()
        return Snooze(1) if then == "snooze" else None

    raises, *_ = await queue.enqueue_many([pay.bind(then) for then in ("raise", "hang", "snooze", "return")])
    async with working(grace_s=0) as running:
        failed = await seen(FailedAfterCompletion)
        await hanging.wait()
        await jobs.all_become(State.DONE, 4)
        await running.stop()

    assert failed == FailedAfterCompletion(raises.id, "pay", "ValueError", "too late")
    assert await ledger.notes() == ["hang", "raise", "return", "snooze"]
    assert await jobs.count() == {State.DONE: 4}
    assert not seen.has(JobRetried, LeaseLost)


async def test_a_second_transaction_is_refused(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, ledger: Ledger
) -> None:
    """One `transaction()` completes a job; what would be written in a second one has no job to stand for it."""
    refused: list[str] = []

    @queue.task("pay")
    async def pay(job: Job) -> None:
        async with job.transaction() as conn:
            await ledger.write(conn, job, "first")
        try:
            async with job.transaction() as conn:
                await ledger.write(conn, job, "second")
        except Exception as error:
            refused.append(str(error))

    job = await queue.enqueue(pay.bind())
    async with working():
        await jobs.become(job.id, State.DONE)

    assert refused == [f"pay {job.id} is completed already: one transaction() completes a job"]
    assert await ledger.notes() == ["first"]


async def test_a_transaction_may_be_tried_again_by_the_handler(
    queue: Queue, jobs: Jobs, working: Working, ledger: Ledger
) -> None:
    """One that was rolled back has completed nothing, so the same attempt may open another."""

    @queue.task("pay")
    async def pay(job: Job) -> None:
        for note in ("first", "second"):
            try:
                async with job.transaction() as conn:
                    await ledger.write(conn, job, note)
                    if note == "first":
                        raise OSError("conflict")
            except OSError:
                assert not job.completed

    await queue.enqueue(pay.bind())
    async with working():
        await jobs.all_become(State.DONE, 1)

    assert await ledger.notes() == ["second"]


async def test_a_transaction_is_read_committed_whatever_the_default(
    dsn: str, schema: str, jobs: Jobs, working: Working
) -> None:
    """F95: where the database's default is SERIALIZABLE, claims, settles and the handler's transaction are not."""
    queue = Queue(f"{dsn}&default_transaction_isolation=serializable", schema=schema)
    levels: list[tuple[str, str]] = []

    @queue.task("look")
    async def look(job: Job) -> None:
        pool = await queue.pool()
        async with job.transaction() as conn:
            levels.append((await conn.fetchval("show transaction_isolation"), await pool.fetchval(default)))

    default = "show default_transaction_isolation"
    await queue.enqueue(look.bind())
    async with working(queue):
        await jobs.all_become(State.DONE, 1)

    assert levels == [("read committed", "serializable")]
