"""A claim takes ready jobs of its queue and kinds, in order, never more than asked for, and counts the attempt."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from jobq.core.job import ClaimedJob, JobId
from jobq.core.states import State
from jobq.db.connect import Link
from jobq.db.reports import DeadFilter, Reports
from jobq.db.store import Redriven
from jobq.errors import DatabaseError
from tests.db.observe import HOLD_UP, Blocked, held
from tests.db.rows import KIND, LEASE_S, QUEUE, Attempt, Rows, new_worker, settle

if TYPE_CHECKING:
    from jobq import Queue
    from tests.conftest import Conn


async def claim(rows: Rows, limit: int = 10, **stated: Any) -> list[ClaimedJob]:
    wanted = {"queue": QUEUE, "kinds": [KIND], "worker_id": new_worker(), "lease_s": LEASE_S, **stated}
    return await rows.store.claim_jobs(rows.conn, limit=limit, **wanted)


def ids(jobs: list[ClaimedJob]) -> list[JobId]:
    return [job.id for job in jobs]


# -- which -------------------------------------------------------------------------------------------


async def test_the_order_is_priority_then_time_then_id(rows: Rows) -> None:
    """Lower priority numbers come first, then the earlier `run_at`, then the lower id."""
    now = await rows.value("select now()")
    twins = [await rows.waiting(priority=5) for _ in range(3)]
    await rows.run("update @schema@.job set run_at = $1", now)
    earlier = await rows.waiting(priority=5)
    await rows.run("update @schema@.job set run_at = $2 where id = $1", earlier, now - timedelta(seconds=1))
    last, first = await rows.waiting(priority=9), await rows.waiting(priority=0)

    claimed = [ids(await claim(rows, limit=1)) for _ in range(6)]

    assert claimed == [[first], [earlier], [twins[0]], [twins[1]], [twins[2]], [last]]


async def test_one_claim_returns_them_in_that_order(rows: Rows) -> None:
    """Jobs of several priorities in one claim come back as they should start."""
    by_priority = {priority: await rows.waiting(priority=priority) for priority in (7, 0, 9, 3, 5)}

    claimed = await claim(rows)

    assert ids(claimed) == [by_priority[priority] for priority in (0, 3, 5, 7, 9)]


async def test_a_scheduled_job_is_not_ready(rows: Rows) -> None:
    """It is claimed once its `run_at` has come, without any step in between."""
    job_id = await rows.scheduled(priority=0)
    before = await claim(rows)

    await rows.run("update @schema@.job set run_at = clock_timestamp()")

    assert (ids(before), ids(await claim(rows))) == ([], [job_id])


async def test_other_queues_and_kinds_are_left(rows: Rows) -> None:
    """Only the kinds that the worker has handlers for, in the one queue; kinds are compared whole."""
    mine = await rows.waiting()
    too = await rows.waiting(kind="print_receipt")
    others = [
        await rows.waiting(queue="mail2"),
        await rows.waiting(kind="send"),
        await rows.waiting(kind="SEND_RECEIPT"),
    ]

    claimed = await claim(rows, kinds=[KIND, "print_receipt", "never_enqueued"])

    assert ids(claimed) == [mine, too]
    assert {await rows.state_of(job_id) for job_id in others} == {State.WAITING}


async def test_no_kinds_claim_nothing(rows: Rows) -> None:
    """A worker without handlers takes no job."""
    await rows.waiting()

    assert await claim(rows, kinds=[]) == []


async def test_a_running_job_is_not_claimed_again(rows: Rows) -> None:
    """Not even by its own worker, and not when its lease has lapsed: only the reaper returns it."""
    attempt = await rows.running()
    await rows.run("update @schema@.job set lease_until = now() - interval '1 hour'")

    assert await claim(rows, worker_id=attempt.worker_id) == []


async def test_names_may_have_their_full_length(rows: Rows) -> None:
    """60 bytes of queue and 100 of kind are used as they are."""
    queue, kind = "q" * 60, "k" * 100
    job_id = await rows.waiting(queue=queue, kind=kind)
    await rows.waiting(queue="q" * 59, kind=kind)

    claimed = await claim(rows, queue=queue, kinds=[kind])

    assert [(job.id, job.queue, job.kind) for job in claimed] == [(job_id, queue, kind)]


# -- what it does to them ----------------------------------------------------------------------------


async def test_a_claim_counts_the_attempt_and_raises_the_fence(rows: Rows) -> None:
    """Both before any user code runs, and what comes back is what the row says."""
    attempt = await rows.running()
    await settle(rows, "settle_retry", attempt)
    worker_id = new_worker()
    earliest = await rows.value("select clock_timestamp()")

    (claimed,) = await claim(rows, worker_id=worker_id, lease_s=60.0)

    job = await rows.job(attempt.id)
    assert (claimed.attempt, claimed.fence, claimed.crashes) == (2, 2, 0)
    assert (job["attempt"], job["fence"], job["worker_id"]) == (2, 2, worker_id)
    assert earliest <= job["claimed_at"] <= await rows.value("select clock_timestamp()")
    assert job["lease_until"] - job["claimed_at"] == pytest.approx(timedelta(seconds=60), abs=timedelta(seconds=1))


async def test_a_claimed_job_is_the_row(rows: Rows) -> None:
    """Every field of `ClaimedJob` stands in its column, so that their order in the statement is right."""
    await rows.waiting(payload='{"order_id": 8}', priority=3, max_attempts=4)
    await rows.run("""update @schema@.job set headers = '{"trace": "x"}', crashes = 2, attempt = 1, fence = 6""")

    (claimed,) = await claim(rows)

    columns = ", ".join(name + "::text" * (name in ("payload", "headers")) for name in ClaimedJob.__struct_fields__)
    row = await rows.row(f"select {columns} from @schema@.job")
    assert claimed == ClaimedJob(*row)
    assert (claimed.payload, claimed.headers) == ('{"order_id": 8}', '{"trace": "x"}')
    assert (claimed.priority, claimed.max_attempts, claimed.crashes, claimed.fence) == (3, 4, 2, 7)


async def test_a_job_beyond_its_attempts_is_claimed_all_the_same(rows: Rows) -> None:
    """It is judged after the claim, so that one such row among others stops nobody's claim (F40)."""
    used_up = await rows.waiting(priority=0, max_attempts=3)
    far_beyond = await rows.waiting(priority=0, max_attempts=1)
    await rows.run("update @schema@.job set attempt = case id when $1 then 3 else 1000000 end", used_up)
    others = await rows.many_waiting(10)

    claimed = await claim(rows, limit=12)

    assert ids(claimed) == [used_up, far_beyond, *others]
    assert [job.attempt for job in claimed[:2]] == [4, 1_000_001]


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_job_has_exactly_as_many_starts(rows: Rows, limit: int) -> None:
    """The N-th failure moves it to the dead letters in the same statement; none waits with N attempts used (F41)."""
    job_id = await rows.waiting(max_attempts=limit)

    starts = []
    while claimed := await claim(rows):
        (job,) = claimed
        worker_id = await rows.value("select worker_id from @schema@.job")
        ending = "settle_dead" if job.attempt == job.max_attempts else "settle_retry"
        starts.append(job.attempt)
        await settle(rows, ending, Attempt(job.id, job.fence, worker_id))

    letter = await rows.dead_letter(job_id)
    assert starts == list(range(1, limit + 1))
    assert (letter["attempt"], await rows.count("job")) == (limit, 0)


# -- the limit ---------------------------------------------------------------------------------------

METHODS = ("hashjoin", "hashagg", "mergejoin", "material", "nestloop", "indexscan", "bitmapscan", "seqscan", "sort")


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_a_claim_never_exceeds_its_limit(rows: Rows, mode: str) -> None:
    """Whatever plan the server is driven to, and with statistics of an empty table (F77)."""
    await rows.run("alter table @schema@.job set (autovacuum_enabled = off); analyze @schema@.job")
    for priority in (0, 5, 9):
        await rows.many_waiting(400, priority=priority)
    nested = {"hashjoin", "hashagg", "mergejoin", "material"}
    plans = [set(), nested, {*nested, "nestloop"}, {*nested, "indexscan"}, {*nested, "indexscan", "bitmapscan"}]
    plans += [{method} for method in METHODS]

    for off in plans:
        for limit in (1, 10, 401):
            transaction = rows.conn.transaction()
            await transaction.start()
            await rows.run(f"set local plan_cache_mode = {mode}")
            for method in off:
                await rows.run(f"set local enable_{method} = off")
            await rows.run("discard plans")
            claimed = await claim(rows, limit=limit)
            running = await rows.count(where="worker_id is not null")
            await transaction.rollback()

            assert (len(claimed), running) == (limit, limit), off
            assert len(set(ids(claimed))) == limit, off


async def test_a_limit_of_zero_claims_nothing(rows: Rows) -> None:
    """No free slot, no job."""
    await rows.waiting()

    assert await claim(rows, limit=0) == []


# -- other people's settings -------------------------------------------------------------------------


async def test_a_claim_passes_over_a_lost_job_at_any_default_isolation(
    rows: Rows, dsn: str, blocked: Blocked, other: Conn
) -> None:
    """Where SERIALIZABLE is the default too, a job that another claim got costs no error: the next is taken (F95)."""
    first, second = await rows.many_waiting(2)
    settings = "&" if "?" in dsn else "?"
    link = Link(f"{dsn}{settings}default_transaction_isolation=serializable", role="claims", deadline_s=10.0)
    await rows.run(HOLD_UP.format(table="job"))

    async with link.lend() as conn:
        await conn.execute("set application_name = 'held up'")
        async with held(other):
            late = await blocked(
                conn,
                rows.store.claim_jobs(
                    conn, queue=QUEUE, kinds=[KIND], limit=1, worker_id=new_worker(), lease_s=LEASE_S
                ),
            )
            early = await claim(rows, limit=1)
        claimed = await late
    await link.close()

    assert (ids(early), ids(claimed)) == ([first], [second])


async def test_a_frozen_process_keeps_its_locks_no_longer_than_its_link_waits_at_any_default_isolation(
    dsn: str,
) -> None:
    """F94: where statements need a transaction around them, the server ends it when its process falls silent."""
    settings = "&" if "?" in dsn else "?"
    link = Link(f"{dsn}{settings}default_transaction_isolation=serializable", role="claims", deadline_s=0.5)

    freed: list[bool] = []

    async def gets_lock() -> bool:
        conn = await asyncpg.connect(dsn)
        try:
            await conn.execute("select pg_advisory_lock(94)", timeout=30)
        except TimeoutError:
            return False
        finally:
            await conn.close()
        return True

    async def freeze(thread: Executor) -> None:
        async with link.lend() as lent:
            await lent.execute("select pg_advisory_xact_lock(94)")
            freed.append(thread.submit(asyncio.run, gets_lock()).result())  # the event loop stands still meanwhile

    with ThreadPoolExecutor(1) as thread, pytest.raises(DatabaseError):
        await freeze(thread)
    assert freed == [True]


async def test_a_schema_change_costs_a_connection_one_statement_at_most(rows: Rows, dsn: str) -> None:
    """A column more costs nothing; a type that changes, the statement that meets it, and then the link is new (F92)."""
    await rows.many_waiting(30)
    link = Link(dsn, role="claims", deadline_s=10.0)

    async def try_claim() -> int:
        try:
            async with link.lend() as conn:
                return len(
                    await rows.store.claim_jobs(
                        conn, queue=QUEUE, kinds=[KIND], limit=1, worker_id=new_worker(), lease_s=LEASE_S
                    )
                )
        except DatabaseError:
            return 0

    claimed = [await try_claim()]
    for change in (
        "alter table @schema@.job add column colour text",
        "drop index @schema@.job_held; create index job_held on @schema@.job (worker_id) where worker_id is not null",
        "alter table @schema@.job alter column max_attempts type bigint",
        "alter table @schema@.job alter column max_attempts type int",
    ):
        await rows.run(change)
        claimed += [await try_claim(), await try_claim(), await try_claim()]
    await link.close()

    assert claimed[:7] == [1] * 7
    assert sum(claimed) >= len(claimed) - 2
    assert claimed[-2:] == [1, 1]


# -- the whole life beyond 32 bits -------------------------------------------------------------------


@pytest.mark.parametrize("start", [3_000_000_000, 5_000_000_000])
async def test_ids_may_exceed_32_bits(rows: Rows, queue: Queue, start: int) -> None:
    """Every statement carries a bigint whole, signed and unsigned limits of 32 bits passed (F99)."""
    await rows.run(f"alter table @schema@.job alter column id restart with {start}")
    worker_id = new_worker()

    async with rows.conn.transaction():
        one = await queue.enqueue(KIND, {}, queue=QUEUE, idempotency_key="a", conn=rows.conn)
        many = await queue.enqueue_many([queue.job(KIND)] * 3, queue=QUEUE, conn=rows.conn)
        again = await queue.enqueue(KIND, {}, queue=QUEUE, idempotency_key="a", conn=rows.conn)
    jobs = await claim(rows, worker_id=worker_id)
    done, retried, released, died = (Attempt(job.id, job.fence, worker_id) for job in jobs)
    settled = [
        await settle(rows, "settle_done", done),
        await settle(rows, "settle_retry", retried),
        await settle(rows, "settle_released", released),
        await settle(rows, "settle_dead", died),
    ]
    (letter,) = await Reports(rows.store.schema).list_dead(rows.conn, DeadFilter(), limit=10)
    detail = await Reports(rows.store.schema).show_dead(rows.conn, died.id)
    redriven = await rows.store.redrive_jobs(rows.conn, [died.id])
    once_more = await rows.reclaimed(died.id)
    await settle(rows, "settle_dead", once_more)
    deleted = await rows.store.delete_dead_letters(rows.conn, [died.id])
    seen, _ = await rows.store.purge_keys(rows.conn, datetime.min.replace(tzinfo=UTC), 10)

    assert [one.id, *(answer.id for answer in many)] == [start, start + 1, start + 2, start + 3]
    assert (again.id, again.created, seen) == (start, False, 0)
    assert settled == [{start}, {start + 1}, {start + 2}, {start + 3}]
    assert detail is not None
    assert (letter.id, detail.id) == (start + 3, start + 3)
    assert (redriven, deleted) == ([Redriven(died.id, died.id, QUEUE)], [start + 3])
    assert (await rows.ids("done"), await rows.ids("job")) == ([start], [start + 1, start + 2])
