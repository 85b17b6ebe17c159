"""A key answers for its time, and in any case while its job lives."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from jobq import Enqueued, Queue
from jobq.core.job import JobId
from jobq.core.states import State
from jobq.db.store import Redriven
from tests.db.keys import KEY, enqueue, lapse, purge
from tests.db.rows import KIND, QUEUE, Rows, settle

if TYPE_CHECKING:
    pass


# -- how long ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [state for state in State if state is not State.ABSENT])
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
