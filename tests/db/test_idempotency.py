"""A key answers for its time, and in any case while its job lives: always "created" or "this one", never neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import pytest

from jobq import ConflictError, Enqueued, Queue
from jobq.core.job import JobId
from jobq.core.states import State
from jobq.db.store import Redriven
from tests.db.conftest import Blocked
from tests.db.rows import KIND, QUEUE, Rows, settle

if TYPE_CHECKING:
    from tests.conftest import Conn

KEY = "receipt:7"
BEGINNING = datetime.min.replace(tzinfo=UTC)


async def enqueue(
    queue: Queue, conn: Conn | None = None, *, key: str = KEY, answers_for: timedelta | float = 86_400.0
) -> Enqueued:
    return await queue.enqueue(
        KIND, {}, queue=QUEUE, idempotency_key=key, idempotency_for=answers_for, conn=conn, autocommit=True
    )


async def lapse(rows: Rows) -> None:
    """Let the time of every key be over."""
    await rows.run("update @schema@.idempotency_key set until = clock_timestamp() - interval '1 microsecond'")


# -- how long ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(set(State) - {State.ABSENT}))
async def test_a_key_answers_for_its_time(rows: Rows, queue: Queue, state: State) -> None:
    """Whatever became of the job: it waits, runs, is done or is dead."""
    first = await rows.in_state(state, idempotency_key=KEY)

    again = await enqueue(queue)

    assert again == Enqueued(first.id, False)
    assert await rows.state_of(first.id) is state


@pytest.mark.parametrize("state", [State.WAITING, State.RUNNING])
async def test_a_key_answers_while_its_job_lives(rows: Rows, queue: Queue, state: State) -> None:
    """Also when its time is over: a second run beside the first is what the key is to prevent (F46)."""
    first = await rows.in_state(state, idempotency_key=KEY)
    await lapse(rows)

    again = await enqueue(queue)

    assert again == Enqueued(first.id, False)


@pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.ABSENT])
async def test_after_its_time_a_key_makes_a_new_job(rows: Rows, queue: Queue, state: State) -> None:
    """Once the job has ended, and for the new time."""
    first = await rows.in_state(state, idempotency_key=KEY)
    await lapse(rows)

    again = await enqueue(queue)
    third = await enqueue(queue)

    assert again.created
    assert again.id != first.id
    assert third == Enqueued(again.id, False)


async def test_an_answer_of_no_time_covers_the_jobs_life_only(rows: Rows, queue: Queue) -> None:
    """`idempotency_for=0`: one unfinished job at a time, and a new one right after."""
    first = await enqueue(queue, answers_for=0)
    meanwhile = await enqueue(queue, answers_for=0)
    await settle(rows, "settle_done", await rows.reclaimed(first.id))

    after = await enqueue(queue, answers_for=0)

    assert meanwhile == Enqueued(first.id, False)
    assert after.created


@pytest.mark.parametrize("answers_for", [timedelta(hours=2), 7200, 7200.0], ids=repr)
async def test_the_time_counts_from_the_enqueue(rows: Rows, queue: Queue, answers_for: timedelta | float) -> None:
    """Singly and in bulk, by the database's clock."""
    await enqueue(queue, answers_for=answers_for)
    job = queue.job(KIND).with_options(idempotency_key="bulk", queue=QUEUE)
    await queue.enqueue_many([job], idempotency_for=answers_for)

    left = await rows.value("select array_agg(until - clock_timestamp()) from @schema@.idempotency_key")

    assert all(timedelta(minutes=119) < each <= timedelta(hours=2) for each in left)


async def test_a_key_that_answers_is_not_prolonged(rows: Rows, queue: Queue) -> None:
    """The time counts from the job's own enqueue, so that a request repeated for ever is answered once a period."""
    await enqueue(queue, answers_for=60)
    before = await rows.contents()

    await enqueue(queue, answers_for=86_400)

    assert await rows.contents() == before


# -- two transactions --------------------------------------------------------------------------------


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


HOLD_UP = """
    alter table @schema@.{table} rename to every_{table};
    create function @schema@.hold_up() returns boolean language plpgsql as $$
        begin
            if current_setting('application_name') = 'held up' then perform pg_advisory_xact_lock(7); end if;
            return true;
        end $$;
    create view @schema@.{table} as select * from @schema@.every_{table} where (select @schema@.hold_up());
"""
"""A view in a table's place: a connection named so waits where it reads from it, with its snapshot taken."""


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


@asynccontextmanager
async def held(conn: Conn) -> AsyncIterator[None]:
    """Hold the lock that `HOLD_UP` waits for."""
    async with conn.transaction():
        await conn.execute("select pg_advisory_xact_lock(7)")
        yield


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


# -- forgetting --------------------------------------------------------------------------------------


async def keys(rows: Rows) -> list[str]:
    found: list[str] = await rows.value("select array(select key from @schema@.idempotency_key order by key)")
    return found


async def purge(rows: Rows, limit: int) -> list[int]:
    """Do one round, and return how many keys each page looked at."""
    seen, after = [limit], BEGINNING
    while seen[-1] == limit:
        count, last = await rows.store.purge_keys(rows.conn, after, limit)
        seen.append(count)
        after = last or after
    return seen[1:]


async def test_lapsed_keys_of_ended_jobs_are_forgotten(rows: Rows) -> None:
    """Those of living jobs stay, however old, and so do those that still answer."""
    for state in State:
        await rows.in_state(state, idempotency_key=f"lapsed {state}")
    await lapse(rows)
    for state in State:
        await rows.in_state(state, idempotency_key=f"valid {state}")

    pages = await purge(rows, limit=100)

    assert pages == [5]
    assert await keys(rows) == sorted(["lapsed running", "lapsed waiting", *(f"valid {state}" for state in State)])


async def test_a_round_passes_living_keys_and_ends(rows: Rows) -> None:
    """Pages of living jobs' keys do not hide the ended ones behind them, and none is met twice in a round."""
    for number in range(4):
        await rows.waiting(idempotency_key=f"alive {number}")
        await rows.in_state(State.DONE, idempotency_key=f"ended {number}")
    # Their order by time: all that live, then all that ended.
    await rows.run(
        "update @schema@.idempotency_key set until = now() - interval '1 hour'"
        " + case when key like 'ended%' then 60 else 0 end * interval '1 s' + right(key, 1)::int * interval '1 s'"
    )

    pages = await purge(rows, limit=2)

    assert pages == [2, 2, 2, 2, 0]
    assert await keys(rows) == [f"alive {number}" for number in range(4)]


async def test_a_key_that_is_being_taken_over_is_passed(rows: Rows, queue: Queue, other: Conn) -> None:
    """The purge does not wait for the transaction, and does not forget what it is about to commit."""
    await rows.in_state(State.DONE, idempotency_key=KEY)
    await lapse(rows)

    async with rows.conn.transaction():
        await enqueue(queue, rows.conn, answers_for=0)
        seen, _ = await rows.store.purge_keys(other, BEGINNING, 100)

    assert (seen, await keys(rows)) == (0, [KEY])


async def test_a_key_taken_over_while_the_purge_begins_is_kept(
    rows: Rows, queue: Queue, connect: Callable[[], Awaitable[Conn]], other: Conn, blocked: Blocked
) -> None:
    """The purge looks for jobs once it has locked the keys: one committed after its snapshot and before that counts."""
    await rows.in_state(State.DONE, idempotency_key=KEY)
    await lapse(rows)
    await rows.run(HOLD_UP.format(table="idempotency_key"))
    await other.execute("set application_name = 'held up'")

    async with held(await connect()), rows.conn.transaction():
        new = await enqueue(queue, rows.conn, answers_for=0)
        round_ = await blocked(other, rows.store.purge_keys(other, BEGINNING, 100))
    await round_

    assert new.created
    assert await keys(rows) == [KEY]
    assert await enqueue(queue) == Enqueued(new.id, False)


# -- dead letters ------------------------------------------------------------------------------------


async def test_a_redrive_takes_its_own_key_back(rows: Rows, queue: Queue) -> None:
    """Lapsed or not, the key then answers with the redriven job while it lives."""
    dead_id = await rows.dead(idempotency_key=KEY)
    await lapse(rows)

    redriven = await rows.store.redrive_jobs(rows.conn, [dead_id])
    again = await enqueue(queue)

    assert redriven == [Redriven(dead_id, dead_id, QUEUE)]
    assert again == Enqueued(dead_id, False)


async def test_a_redrive_does_not_shorten_its_keys_time(rows: Rows) -> None:
    """What was promised at the enqueue still holds when the redriven job is done."""
    dead_id = await rows.dead(idempotency_key=KEY)
    until = await rows.value("select until from @schema@.idempotency_key")

    await rows.store.redrive_jobs(rows.conn, [dead_id])

    assert await rows.value("select until from @schema@.idempotency_key") == until


async def test_a_redrive_finds_its_key_forgotten(rows: Rows) -> None:
    """It takes the key anew, so that the job is protected while it lives."""
    dead_id = await rows.dead(idempotency_key=KEY)
    await lapse(rows)
    await purge(rows, limit=100)

    await rows.store.redrive_jobs(rows.conn, [dead_id])

    holder: JobId = await rows.value("select job_id from @schema@.idempotency_key")
    assert holder == dead_id
