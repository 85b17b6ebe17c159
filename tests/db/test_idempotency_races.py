"""Two transactions want one key: each is told "created" or "this one", or a typed conflict, never neither."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

import pytest

from jobq import ConflictError, Enqueued, Queue
from jobq.core.states import State
from jobq.db.store import Redriven
from tests.db.keys import KEY, enqueue, lapse
from tests.db.observe import HOLD_UP, Blocked, held
from tests.db.rows import KIND, QUEUE, Rows

if TYPE_CHECKING:
    from tests.conftest import Conn


# -- READ COMMITTED --------------------------------------------------------------------------------


async def test_the_second_waits_and_gets_the_firsts_id(rows: Rows, queue: Queue, other: Conn, blocked: Blocked) -> None:
    """While the first has not committed, the second cannot know; then it is told which job there is."""
    async with rows.conn.transaction():
        first = await enqueue(queue, rows.conn)
        second = await blocked(other, enqueue(queue, other))

    assert await second == Enqueued(first.id, False)
    assert await rows.ids() == [first.id]


async def test_the_second_is_created_if_the_first_rolls_back(
    rows: Rows, queue: Queue, other: Conn, blocked: Blocked
) -> None:
    """The loser of a winner that vanished looks again (F45)."""
    first = rows.conn.transaction()
    await first.start()
    await enqueue(queue, rows.conn)
    second = await blocked(other, enqueue(queue, other))
    await first.rollback()

    answer = await second

    assert answer.created
    assert await rows.ids() == [answer.id]


async def test_of_20_transactions_19_roll_back(
    rows: Rows, queue: Queue, connect: Callable[[], Awaitable[Conn]]
) -> None:
    """Each call gets an id, and exactly one job is there: that of the one which committed (F45)."""
    conns = [await connect() for _ in range(20)]

    async def attempt(number: int) -> Enqueued:
        transaction = conns[number].transaction()
        await transaction.start()
        answer = await enqueue(queue, conns[number])
        if number == 11:
            await transaction.commit()
        else:
            await transaction.rollback()
        return answer

    answers = await asyncio.gather(*(attempt(number) for number in range(20)))

    (job_id,) = await rows.ids()
    assert answers[11] == Enqueued(job_id, True)
    assert {answer.id for answer in answers if not answer.created} <= {job_id}


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_a_lapsed_key_is_taken_over_once(
    rows: Rows, queue: Queue, other: Conn, blocked: Blocked, ends: str
) -> None:
    """Of two that find it lapsed, the second waits, and then gets the first's job, or its own if that vanished."""
    await rows.in_state(State.DONE, idempotency_key=KEY)
    await lapse(rows)

    transaction = rows.conn.transaction()
    await transaction.start()
    first = await enqueue(queue, rows.conn)
    second = await blocked(other, enqueue(queue, other))
    await getattr(transaction, ends)()
    answer = await second

    assert first.created
    assert (answer == Enqueued(first.id, False)) if ends == "commit" else answer.created
    assert await rows.ids() == [answer.id]


async def test_a_key_that_changes_hands_after_the_look_is_looked_at_again(
    rows: Rows, queue: Queue, other: Conn, blocked: Blocked, connect: Callable[[], Awaitable[Conn]]
) -> None:
    """It was lapsed when it was read, and another took it over before it could be: the other's job is the answer."""
    await rows.in_state(State.DONE, idempotency_key=KEY)
    await lapse(rows)
    await rows.run(HOLD_UP.format(table="idempotency_key"))
    await other.execute("set application_name = 'held up'")

    async with held(await connect()):
        late = await blocked(other, enqueue(queue, other))
        early = await enqueue(queue, rows.conn)

    assert early.created
    assert await late == Enqueued(early.id, False)


async def test_a_key_that_a_redrive_takes_back_after_the_look_is_the_redriven_jobs(
    rows: Rows, queue: Queue, other: Conn, blocked: Blocked, connect: Callable[[], Awaitable[Conn]]
) -> None:
    """The owner is the same, but its job lives again: the time of the key, which the redrive changed, tells."""
    dead_id = await rows.dead(idempotency_key=KEY)
    await lapse(rows)
    await rows.run(HOLD_UP.format(table="job"))
    await other.execute("set application_name = 'held up'")

    async with held(await connect()):
        late = await blocked(other, enqueue(queue, other))
        redriven = await rows.store.redrive_jobs(rows.conn, [dead_id])

    assert redriven == [Redriven(dead_id, dead_id, QUEUE)]
    assert await late == Enqueued(dead_id, False)
    assert await rows.ids() == [dead_id]


# -- above READ COMMITTED ----------------------------------------------------------------------------

Level = Literal["read_committed", "repeatable_read", "serializable"]
ABOVE: list[Level] = ["repeatable_read", "serializable"]


@pytest.mark.parametrize("isolation", ["read_committed", *ABOVE])
async def test_a_visible_key_answers_at_every_level(rows: Rows, queue: Queue, isolation: Level) -> None:
    """What was committed before the transaction's snapshot, or written by itself, is found."""
    earlier = await enqueue(queue)

    async with rows.conn.transaction(isolation=isolation):
        answer = await enqueue(queue, rows.conn)
        own = await enqueue(queue, rows.conn, key="own")
        again = await enqueue(queue, rows.conn, key="own")

    assert answer == Enqueued(earlier.id, False)
    assert again == Enqueued(own.id, False)


@pytest.mark.parametrize("bulk", [False, True], ids=["single", "bulk"])
@pytest.mark.parametrize("isolation", ABOVE)
async def test_a_key_that_the_snapshot_does_not_show_is_a_conflict(
    rows: Rows, queue: Queue, other: Conn, isolation: Level, bulk: bool
) -> None:
    """A typed error that says to run the transaction again, which then finds the job (F45)."""
    job = queue.job(KIND).with_options(idempotency_key=KEY, queue=QUEUE)

    async def enqueue_it() -> Enqueued:
        if bulk:
            return (await queue.enqueue_many([job], conn=other))[0]
        return await enqueue(queue, other)

    transaction = other.transaction(isolation=isolation)
    await transaction.start()
    await other.fetchval("select 1")
    winner = await enqueue(queue, rows.conn)
    with pytest.raises(ConflictError, match="run the transaction again"):
        await enqueue_it()
    await transaction.rollback()
    async with other.transaction(isolation=isolation):
        answer = await enqueue_it()

    assert answer == Enqueued(winner.id, False)
    assert await rows.ids() == [winner.id]


@pytest.mark.parametrize("isolation", ABOVE)
async def test_waiting_above_read_committed_ends_in_a_conflict_or_a_job(
    rows: Rows, queue: Queue, other: Conn, blocked: Blocked, isolation: Level
) -> None:
    """The winner commits: a conflict. It rolls back: the waiting one is created. Never neither."""

    async def second() -> Enqueued:
        async with other.transaction(isolation=isolation):
            return await enqueue(queue, other)

    rolled_back = rows.conn.transaction()
    await rolled_back.start()
    await enqueue(queue, rows.conn)
    task = await blocked(other, second())
    await rolled_back.rollback()
    created = await task
    await rows.run("delete from @schema@.job; delete from @schema@.idempotency_key")
    async with rows.conn.transaction():
        winner = await enqueue(queue, rows.conn)
        task = await blocked(other, second())
    with pytest.raises(ConflictError):
        await task

    assert created.created
    assert await rows.ids() == [winner.id]


@pytest.mark.parametrize("isolation", ABOVE)
async def test_a_lapsed_key_taken_over_meanwhile_is_a_conflict(
    rows: Rows, queue: Queue, other: Conn, isolation: Level
) -> None:
    """The snapshot still shows the old holder; its take-over fails rather than making a second job."""
    await rows.in_state(State.DONE, idempotency_key=KEY)
    await lapse(rows)

    transaction = other.transaction(isolation=isolation)
    await transaction.start()
    await other.fetchval("select 1")
    winner = await enqueue(queue, rows.conn)
    with pytest.raises(ConflictError):
        await enqueue(queue, other)
    await transaction.rollback()

    assert await rows.ids() == [winner.id]
