"""Two actors on one job, in a stated order: one wins, the other is told so, and nobody waits who need not.

The first holds its transaction open while the second comes. A second that has to wait is seen waiting by the server
before the first goes on; a second that must not wait is simply awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobq.core.job import JobId
from jobq.core.states import State
from jobq.db.store import Redriven
from tests.db.observe import Blocked
from tests.db.rows import DAY_S, KIND, LEASE_S, QUEUE, SETTLES, Rows, new_job, new_worker, settle

if TYPE_CHECKING:
    from tests.conftest import Conn

AFTER = {
    "settle_done": State.DONE,
    "settle_retry": State.WAITING,
    "settle_released": State.WAITING,
    "settle_dead": State.DEAD,
}


async def claim(rows: Rows, conn: Conn, limit: int = 10) -> list[JobId]:
    return [
        job.id
        for job in await rows.store.claim_jobs(
            conn, queue=QUEUE, kinds=[KIND], limit=limit, worker_id=new_worker(), lease_s=LEASE_S
        )
    ]


# -- settle and settle -------------------------------------------------------------------------------


@pytest.mark.parametrize("first", SETTLES)
async def test_the_first_settle_wins(rows: Rows, other: Conn, blocked: Blocked, first: str) -> None:
    """Of two outcomes of one attempt, the one written first stays; the other waits for it and then matches nothing."""
    for second in SETTLES:
        attempt = await rows.running()

        async with rows.conn.transaction():
            won = await settle(rows, first, attempt)
            late = await blocked(other, settle(rows, second, attempt, conn=other))
        lost = await late

        assert (won, lost) == ({attempt.id}, set()), second
        assert await rows.state_of(attempt.id) is AFTER[first], second


async def test_a_settle_that_is_rolled_back_leaves_the_job_to_the_next(
    rows: Rows, other: Conn, blocked: Blocked
) -> None:
    """The second outcome is written if the first never committed."""
    for second in SETTLES:
        attempt = await rows.running()

        first = rows.conn.transaction()
        await first.start()
        await settle(rows, "settle_done", attempt)
        late = await blocked(other, settle(rows, second, attempt, conn=other))
        await first.rollback()

        assert await late == {attempt.id}, second
        assert await rows.state_of(attempt.id) is AFTER[second], second


async def test_a_late_settle_meets_a_claim_that_is_not_committed(rows: Rows, other: Conn) -> None:
    """Once a job is released, its old attempt matches nothing and waits for nobody; the new claim stands."""
    for late in SETTLES:
        old = await rows.running()
        await settle(rows, "settle_released", old)

        async with rows.conn.transaction():
            new = await rows.reclaimed(old.id, old.worker_id)
            lost = await settle(rows, late, old, conn=other)

        job = await rows.job(old.id)
        assert lost == set(), late
        assert (job["fence"], job["worker_id"], job["attempt"]) == (new.fence, new.worker_id, 1), late


async def test_a_batch_waits_for_one_job_and_settles_the_others(rows: Rows, other: Conn, blocked: Blocked) -> None:
    """One lost lease in a batch costs only itself."""
    worker_id = new_worker()
    attempts = [await rows.running(worker_id) for _ in range(5)]

    async with rows.conn.transaction():
        await settle(rows, "settle_retry", attempts[2])
        late = await blocked(other, settle(rows, "settle_done", *attempts, conn=other))
    settled = await late

    assert settled == {attempt.id for attempt in attempts} - {attempts[2].id}
    assert await rows.ids("done") == sorted(settled)


# -- claim -------------------------------------------------------------------------------------------


async def test_two_claims_share_no_job(rows: Rows, other: Conn) -> None:
    """The second passes over what the first has locked, without waiting, and takes what is left."""
    ids = await rows.many_waiting(10)

    async with rows.conn.transaction():
        first = await claim(rows, rows.conn, limit=6)
        second = await claim(rows, other, limit=6)

    assert (first, second) == (ids[:6], ids[6:])


async def test_a_claim_that_is_rolled_back_took_nothing(rows: Rows, other: Conn) -> None:
    """Its jobs are ready again, the attempt not counted, for whoever comes after the rollback."""
    ids = await rows.many_waiting(3)
    before = await rows.contents()

    first = rows.conn.transaction()
    await first.start()
    await claim(rows, rows.conn)
    meanwhile = await claim(rows, other)
    await first.rollback()

    assert meanwhile == []
    assert await rows.contents() == before
    assert await claim(rows, other) == ids


async def test_a_claim_does_not_see_an_uncommitted_enqueue(rows: Rows, other: Conn) -> None:
    """A job exists when its transaction has committed: not before, and not for a claim that came before."""
    ready = await rows.waiting()

    async with rows.conn.transaction():
        late = await rows.waiting()
        before_commit = await claim(rows, other)
    after_commit = await claim(rows, other)

    assert (before_commit, after_commit) == ([ready], [late])


@pytest.mark.parametrize("statement", ["settle_retry", "settle_released"])
async def test_a_claim_passes_over_a_job_that_is_being_settled(rows: Rows, other: Conn, statement: str) -> None:
    """It neither waits for the settle nor takes the job early; after the commit the job is ready."""
    attempt = await rows.running()
    ready = await rows.waiting()

    async with rows.conn.transaction():
        await settle(rows, statement, attempt)
        before_commit = await claim(rows, other)
    after_commit = await claim(rows, other)

    assert (before_commit, after_commit) == ([ready], [attempt.id])


# -- dead letters ------------------------------------------------------------------------------------


async def test_two_redrives_make_one_job(rows: Rows, other: Conn) -> None:
    """The second passes over what the first has locked: it reports nothing and does not wait."""
    job_id = await rows.dead()

    async with rows.conn.transaction():
        first = await rows.store.redrive_jobs(rows.conn, [job_id])
        second = await rows.store.redrive_jobs(other, [job_id])

    assert (first, second) == ([Redriven(job_id, job_id, QUEUE)], [])
    assert await rows.state_of(job_id) is State.WAITING
    assert (await rows.job(job_id))["redrives"] == 1


async def test_a_redrive_that_is_rolled_back_can_be_repeated(rows: Rows, other: Conn) -> None:
    """The dead letter and its idempotency key are as they were."""
    job_id = await rows.dead(idempotency_key="receipt:7")
    before = await rows.contents()

    first = rows.conn.transaction()
    await first.start()
    await rows.store.redrive_jobs(rows.conn, [job_id])
    await first.rollback()

    assert await rows.contents() == before
    assert await rows.store.redrive_jobs(other, [job_id]) == [Redriven(job_id, job_id, QUEUE)]


async def test_a_delete_passes_over_a_letter_that_is_being_redriven(rows: Rows, other: Conn) -> None:
    """Redrive first: the job lives, and the delete reports that it found nothing."""
    job_id = await rows.dead()

    async with rows.conn.transaction():
        await rows.store.redrive_jobs(rows.conn, [job_id])
        deleted = await rows.store.delete_dead_letters(other, [job_id])

    assert deleted == []
    assert await rows.state_of(job_id) is State.WAITING


async def test_a_redrive_passes_over_a_letter_that_is_being_deleted(rows: Rows, other: Conn) -> None:
    """Delete first: the redrive reports nothing, and the letter is gone."""
    job_id = await rows.dead()

    async with rows.conn.transaction():
        deleted = await rows.store.delete_dead_letters(rows.conn, [job_id])
        redriven = await rows.store.redrive_jobs(other, [job_id])

    assert (deleted, redriven) == ([job_id], [])
    assert await rows.state_of(job_id) is State.ABSENT


# -- a dead letter's lapsed key, wanted by a redrive and by an enqueue -----------------------------


async def test_a_redrive_waits_for_the_enqueue_that_takes_its_key(rows: Rows, other: Conn, blocked: Blocked) -> None:
    """Enqueue first: the redrive sees the new holder, reports it, and leaves the letter."""
    dead_id = await rows.dead(idempotency_key="receipt:7")
    await rows.run("update @schema@.idempotency_key set until = now() - interval '1 s'")

    async with rows.conn.transaction():
        holder = await rows.waiting(idempotency_key="receipt:7")
        redrive = await blocked(other, rows.store.redrive_jobs(other, [dead_id]))

    assert await redrive == [Redriven(dead_id, holder, QUEUE)]
    assert await rows.state_of(dead_id) is State.DEAD


async def test_an_enqueue_waits_for_the_redrive_that_takes_its_key(rows: Rows, other: Conn, blocked: Blocked) -> None:
    """Redrive first: the enqueue gets the redriven job's id and adds nothing."""
    dead_id = await rows.dead(idempotency_key="receipt:7")
    await rows.run("update @schema@.idempotency_key set until = now() - interval '1 s'")
    job = new_job(idempotency_key="receipt:7")

    async with rows.conn.transaction():
        await rows.store.redrive_jobs(rows.conn, [dead_id])
        enqueue = await blocked(other, rows.store.enqueue_job(other, job, answers_for_s=DAY_S, notify=True))
    answer = await enqueue

    assert (answer.id, answer.created) == (dead_id, False)
    assert await rows.ids() == [dead_id]


async def test_a_redrive_takes_keys_in_the_order_of_a_bulk_enqueue(rows: Rows, other: Conn, blocked: Blocked) -> None:
    """Both by (kind, key), so that they wait for each other in one direction only (F84)."""
    dead_ids = [await rows.dead(idempotency_key=key) for key in ("b", "a")]
    await rows.run("update @schema@.idempotency_key set until = now() - interval '1 s'")

    async with rows.conn.transaction():
        holders = [await rows.waiting(idempotency_key="a")]
        redrive = await blocked(other, rows.store.redrive_jobs(other, dead_ids))
        holders = [await rows.waiting(idempotency_key="b"), *holders]

    assert await redrive == [
        Redriven(dead_id, holder, QUEUE) for dead_id, holder in zip(dead_ids, holders, strict=True)
    ]
