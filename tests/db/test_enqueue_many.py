"""A bulk enqueue adds all or none and answers in the order given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from jobq import DatabaseError, EnqueueError, NewJob, Queue
from jobq.core.enqueue import CHUNK_JOBS
from jobq.core.job import JobId
from tests.db.observe import Blocked, sent_on
from tests.db.rows import KIND, QUEUE, Rows, new_worker

if TYPE_CHECKING:
    from tests.conftest import Conn


def jobs(count: int) -> list[NewJob]:
    """Jobs that can be told by their number, cheaply made."""
    return [NewJob(kind=KIND, payload=b'{"n": %d}' % n, home=QUEUE) for n in range(count)]


def keyed(queue: Queue, *keys: str | None) -> list[NewJob]:
    """A job for each key."""
    return [queue.job(KIND, {"key": key}).with_options(idempotency_key=key, queue=QUEUE) for key in keys]


async def numbers(rows: Rows, ids: Sequence[JobId]) -> list[int]:
    """The numbers that the jobs of *ids* carry."""
    found: list[int] = await rows.value(
        "select array_agg((j.payload ->> 'n')::int order by u.place)"
        " from unnest($1::bigint[]) with ordinality u (id, place) join @schema@.job j using (id)",
        ids,
    )
    return found


async def test_100_000_jobs_in_one_call(rows: Rows, queue: Queue) -> None:
    """F115: the answers are in the order given, and the ids ascend in it."""
    answers = await queue.enqueue_many(jobs(100_000))

    ids = [answer.id for answer in answers]
    assert all(answer.created for answer in answers)
    assert ids == sorted(set(ids))
    assert len(ids) == await rows.count() == 100_000
    assert await numbers(rows, ids[::997]) == list(range(0, 100_000, 997))


async def test_one_bad_job_of_100_000_adds_none(rows: Rows, queue: Queue) -> None:
    """The error names its position and what is wrong, and nothing was sent (F115)."""
    many = jobs(100_000)
    many[50_001] = many[50_001].with_options(priority=11)

    async with rows.conn.transaction():
        with sent_on(rows.conn) as sent, pytest.raises(EnqueueError, match=r"job 50001: priority is 11") as caught:
            await queue.enqueue_many(many, conn=rows.conn)

    assert (caught.value.index, caught.value.field, caught.value.value) == (50_001, "priority", 11)
    assert (sent, await rows.count()) == ([], 0)


@pytest.mark.parametrize("own", [True, False], ids=["own pool", "autocommit"])
async def test_what_the_server_refuses_in_a_later_chunk_undoes_the_earlier(rows: Rows, queue: Queue, own: bool) -> None:
    """All or nothing also without a transaction of the caller's, and the connection is good afterwards."""
    await rows.run(
        """
        create function @schema@.refuse() returns trigger language plpgsql as
            $$ begin raise exception 'not this one'; end $$;
        create trigger refuse before insert on @schema@.job for each row
            when ((new.payload ->> 'n')::int = 10001) execute function @schema@.refuse();
        """
    )
    conn = None if own else rows.conn

    with pytest.raises(DatabaseError, match="not this one"):
        await queue.enqueue_many(jobs(CHUNK_JOBS + 5), conn=conn, autocommit=not own)

    assert await rows.count() == 0
    assert not rows.conn.is_in_transaction()
    (answer,) = await queue.enqueue_many(jobs(1), conn=conn, autocommit=not own)
    assert await rows.ids() == [answer.id]


async def test_it_belongs_to_the_callers_transaction(rows: Rows, queue: Queue) -> None:
    """A rollback takes jobs and keys along."""
    before = await rows.contents()

    transaction = rows.conn.transaction()
    await transaction.start()
    await queue.enqueue_many(keyed(queue, "a", None), conn=rows.conn)
    await transaction.rollback()

    assert await rows.contents() == before


async def test_no_jobs_send_nothing(rows: Rows, queue: Queue) -> None:
    """An empty call is answered without the database."""
    async with rows.conn.transaction():
        with sent_on(rows.conn) as sent:
            answers = await queue.enqueue_many([], conn=rows.conn)

    assert (answers, sent) == ([], [])


async def test_jobs_may_come_from_a_generator(rows: Rows, queue: Queue) -> None:
    """Any iterable is read once, and an error in it passes through before anything was sent."""
    answers = await queue.enqueue_many(job for job in jobs(3))

    assert await numbers(rows, [answer.id for answer in answers]) == [0, 1, 2]


# -- idempotency keys --------------------------------------------------------------------------------


async def test_a_key_given_twice_in_a_call_makes_one_job(rows: Rows, queue: Queue) -> None:
    """The first of them is created, and each answers with its id, in the order given."""
    answers = await queue.enqueue_many(keyed(queue, "b", "a", None, "b", None, "b", "a"))

    first, second, plain = answers[0].id, answers[1].id, answers[2].id
    assert [answer.id for answer in answers] == [first, second, plain, first, answers[4].id, first, second]
    assert [answer.created for answer in answers] == [True, True, True, False, True, False, False]
    assert await rows.ids() == sorted({answer.id for answer in answers})
    assert len(await rows.ids()) == 4


async def test_a_key_belongs_to_its_kind(rows: Rows, queue: Queue) -> None:
    """The same key of another kind is another key."""
    job = queue.job(KIND).with_options(idempotency_key="a", queue=QUEUE)
    other = queue.job("print_receipt").with_options(idempotency_key="a", queue=QUEUE)

    answers = await queue.enqueue_many([job, other, job])

    assert [answer.created for answer in answers] == [True, True, False]


async def test_keys_that_answer_add_nothing(rows: Rows, queue: Queue) -> None:
    """Among new jobs, those that exist are answered with their ids, whether they wait, run or are done."""
    waiting = await queue.enqueue_many(keyed(queue, "a", "b"))
    again = await queue.enqueue_many(keyed(queue, "c", "b", None, "a"))

    assert [answer.created for answer in again] == [True, False, True, False]
    assert (again[1].id, again[3].id) == (waiting[1].id, waiting[0].id)
    assert await rows.count() == 4


async def test_more_keys_than_a_chunk(rows: Rows, queue: Queue) -> None:
    """Keys are deduplicated over the whole call, not within a chunk."""
    keys = [f"key {n % (CHUNK_JOBS + 2)}" for n in range(CHUNK_JOBS * 2)]
    many = [job.with_options(idempotency_key=key) for key, job in zip(keys, jobs(len(keys)), strict=True)]

    answers = await queue.enqueue_many(many)

    created = [answer.id for answer in answers if answer.created]
    assert len(created) == await rows.count() == await rows.count("idempotency_key k", "true") == CHUNK_JOBS + 2
    assert [answer.id for answer in answers[CHUNK_JOBS + 2 :]] == created[: CHUNK_JOBS - 2]


async def test_overlapping_keys_in_opposite_order_do_not_deadlock(
    rows: Rows, queue: Queue, other: Conn, blocked: Blocked, connect: Callable[[], Awaitable[Conn]]
) -> None:
    """Two calls that are held up in the middle of their keys take the rest one after the other (F84)."""
    names = [f"key {n:03}" for n in range(200)]
    third = await connect()

    hold_up = third.transaction()
    await hold_up.start()
    await queue.enqueue_many(keyed(queue, names[100]), conn=third)
    first = await blocked(rows.conn, queue.enqueue_many(keyed(queue, *names), conn=rows.conn, autocommit=True))
    second = await blocked(other, queue.enqueue_many(keyed(queue, *names[::-1]), conn=other, autocommit=True))
    await hold_up.rollback()
    created, found = await first, await second

    assert {answer.created for answer in created} == {True}
    assert {answer.created for answer in found} == {False}
    assert [answer.id for answer in found] == [answer.id for answer in reversed(created)]


async def test_a_rolled_back_call_leaves_its_keys_to_the_one_that_waits(
    rows: Rows, queue: Queue, other: Conn, blocked: Blocked
) -> None:
    """Every job of the second is created."""
    first = rows.conn.transaction()
    await first.start()
    await queue.enqueue_many(keyed(queue, "a", "b", "c"), conn=rows.conn)
    second = await blocked(other, queue.enqueue_many(keyed(queue, "c", "b"), conn=other, autocommit=True))
    await first.rollback()

    answers = await second

    assert [answer.created for answer in answers] == [True, True]
    assert await rows.ids() == [answer.id for answer in answers]


async def test_a_bulk_job_can_be_claimed(rows: Rows, queue: Queue) -> None:
    """It is a row like any other, in the order of its id."""
    answers = await queue.enqueue_many(jobs(3))

    claimed = await rows.store.claim_jobs(
        rows.conn, queue=QUEUE, kinds=[KIND], limit=10, worker_id=new_worker(), lease_s=60.0
    )

    assert [job.id for job in claimed] == [answer.id for answer in answers]
