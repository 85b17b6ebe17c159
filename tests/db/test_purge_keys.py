"""Keys are forgotten when their time is over and their job has ended, and never before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from jobq import Enqueued, Queue
from jobq.core.states import State
from tests.db.keys import BEGINNING, KEY, enqueue, keys, lapse, purge
from tests.db.observe import HOLD_UP, Blocked, held
from tests.db.rows import Rows

if TYPE_CHECKING:
    from tests.conftest import Conn


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


async def test_the_server_ends_a_purge_whose_worker_has_fallen_silent(rows: Rows) -> None:
    """F94: between its two statements it holds keys that an enqueue may wait for."""
    await rows.in_state(State.DONE, idempotency_key=KEY)
    await lapse(rows)
    await rows.run("""
        create table @schema@.seen (setting text);
        create function @schema@.see() returns trigger language plpgsql as $$
            begin
                insert into @schema@.seen select current_setting('idle_in_transaction_session_timeout');
                return old;
            end $$;
        create trigger see before delete on @schema@.idempotency_key for each row execute function @schema@.see();
    """)

    await purge(rows, limit=100)

    assert await rows.value("select array_agg(setting) from @schema@.seen") == ["10s"]


async def test_a_round_passes_living_keys_and_ends(rows: Rows) -> None:
    """F75, F93: pages of living jobs' keys do not hide the ended ones behind them, and none is met twice in a round."""
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
