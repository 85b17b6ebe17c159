"""An enqueue wakes the claim loops that asked for it, at commit, once a queue, and nobody else pays."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Queue
from jobq.db.reports import DeadFilter
from jobq.db.store import Sleeper
from jobq.dead_letters import DeadLetters
from tests.db.rows import KIND, QUEUE, Rows, new_worker

if TYPE_CHECKING:
    from tests.conftest import Conn

Heard = Callable[[], Awaitable[list[str]]]


@pytest.fixture
async def heard(connect: Callable[[], Awaitable[Conn]], other: Conn, schema: str) -> Heard:
    """Return the notifications on the schema's channel since the last call, committed before it."""
    listener = await connect()
    payloads: asyncio.Queue[str] = asyncio.Queue()
    await listener.add_listener(schema, lambda *notification: payloads.put_nowait(str(notification[3])))

    async def heard() -> list[str]:
        # What was committed earlier arrives earlier, so everything is here when this is.
        await other.execute("select pg_notify($1, 'that is all')", schema)
        found = []
        async with asyncio.timeout(10):
            while (payload := await payloads.get()) != "that is all":
                found.append(payload)
        return found

    return heard


async def sleep(rows: Rows, queue: str = QUEUE, for_s: float = 60.0, loop: str = "async") -> Sleeper:
    sleeper = Sleeper(queue, new_worker(), loop)
    await rows.store.fall_asleep(rows.conn, sleeper, for_s)
    return sleeper


async def test_a_sleeper_is_woken_at_commit(rows: Rows, queue: Queue, heard: Heard) -> None:
    """The channel is the schema's name, the payload the queue's, and nothing is said before the commit."""
    await sleep(rows)

    async with rows.conn.transaction():
        await queue.enqueue(KIND, {}, queue=QUEUE, conn=rows.conn)
        before = await heard()

    assert (before, await heard()) == ([], [QUEUE])


async def test_without_a_sleeper_nobody_is_notified(rows: Rows, queue: Queue, heard: Heard) -> None:
    """F79: neither for a queue that nobody sleeps on, nor once the sleep is over or was ended."""
    await sleep(rows, "another")
    await sleep(rows, for_s=-1.0)
    await rows.store.wake_up(rows.conn, await sleep(rows))

    await queue.enqueue(KIND, {}, queue=QUEUE)
    await queue.enqueue_many([queue.job(KIND)], queue=QUEUE)

    assert await heard() == []


async def test_a_rollback_wakes_nobody(rows: Rows, queue: Queue, heard: Heard) -> None:
    """There is no job to look for."""
    await sleep(rows)

    transaction = rows.conn.transaction()
    await transaction.start()
    await queue.enqueue(KIND, {}, queue=QUEUE, conn=rows.conn)
    await transaction.rollback()

    assert await heard() == []


async def test_a_transaction_notifies_once_a_queue(rows: Rows, queue: Queue, heard: Heard) -> None:
    """However many jobs it adds and however many loops sleep (F81)."""
    for name in ("a", "a", "b", "c"):
        await sleep(rows, name)
    jobs = [queue.job(KIND).with_options(queue=name) for name in ("a", "b")]

    async with rows.conn.transaction():
        await queue.enqueue(KIND, {}, queue="a", conn=rows.conn)
        await queue.enqueue_many(jobs * 500, conn=rows.conn)
        await queue.enqueue(KIND, {}, queue="b", conn=rows.conn)

    assert sorted(await heard()) == ["a", "b"]


@pytest.mark.parametrize("ready", [None, timedelta(0), timedelta(days=-1), datetime(2020, 1, 1, tzinfo=UTC)], ids=str)
async def test_a_job_that_is_ready_wakes(rows: Rows, queue: Queue, heard: Heard, ready: Any) -> None:
    """A `run_at` in the past means now, singly and in bulk."""
    await sleep(rows)

    await queue.enqueue(KIND, {}, queue=QUEUE, run_at=ready)
    singly = await heard()
    await queue.enqueue_many([queue.job(KIND)], queue=QUEUE, run_at=ready)

    assert (singly, await heard()) == ([QUEUE], [QUEUE])


@pytest.mark.parametrize("later", [timedelta(hours=1), datetime.now(UTC) + timedelta(hours=1)], ids=["delay", "time"])
async def test_a_scheduled_job_wakes_nobody(rows: Rows, queue: Queue, heard: Heard, later: Any) -> None:
    """There is nothing to claim yet; the poll finds it when it is due."""
    await sleep(rows)

    await queue.enqueue(KIND, {}, queue=QUEUE, run_at=later)
    await queue.enqueue_many([queue.job(KIND)], queue=QUEUE, run_at=later)

    assert await heard() == []


async def test_a_job_that_exists_already_wakes_nobody(rows: Rows, queue: Queue, heard: Heard) -> None:
    """An enqueue that only finds its idempotency key taken has added nothing."""
    await queue.enqueue(KIND, {}, queue=QUEUE, idempotency_key="a")
    await sleep(rows)

    await queue.enqueue(KIND, {}, queue=QUEUE, idempotency_key="a")
    await queue.enqueue_many([queue.job(KIND).with_options(idempotency_key="a")], queue=QUEUE)

    assert await heard() == []


async def test_notify_false_is_silent(rows: Rows, queue: Queue, heard: Heard) -> None:
    """F79: for transactions that refuse NOTIFY, such as prepared ones."""
    await sleep(rows)

    await queue.enqueue(KIND, {}, queue=QUEUE, notify=False)
    await queue.enqueue_many([queue.job(KIND)], queue=QUEUE, notify=False)
    async with rows.conn.transaction():
        await queue.enqueue(KIND, {}, queue=QUEUE, notify=False, conn=rows.conn)

    assert await heard() == []


@pytest.mark.filterwarnings("ignore::jobq.LargePayloadWarning")
@pytest.mark.parametrize("schema", [f'"{os.getpid():0>60} x'], ids=["sixty-three bytes"])
async def test_long_names_and_payloads_fit(rows: Rows, queue: Queue, heard: Heard, schema: str) -> None:
    """A schema of 63 bytes, a queue of 60 and a payload of 200 kB: the notification carries the queue only (F81)."""
    await sleep(rows, "q" * 60)

    await queue.enqueue(KIND, {"text": "x" * 200_000}, queue="q" * 60)

    assert len(schema) == 63
    assert await heard() == ["q" * 60]


async def test_a_redrive_wakes(rows: Rows, heard: Heard) -> None:
    """A redriven job is ready, so its queue's sleepers are notified once a page."""
    await rows.many_dead(3)
    await sleep(rows)

    await DeadLetters(rows.store.schema).redrive(rows.conn, DeadFilter(kind=KIND))

    assert await heard() == [QUEUE]


async def test_a_sleeper_is_one_row(rows: Rows) -> None:
    """Falling asleep again moves its time; waking up removes it, and only it."""
    first, second = await sleep(rows, for_s=1.0), await sleep(rows, loop="threads")
    await rows.store.fall_asleep(rows.conn, first, 100.0)
    until = await rows.value("select until - clock_timestamp() from @schema@.sleeper where loop = 'async'")

    await rows.store.wake_up(rows.conn, second)
    await rows.store.wake_up(rows.conn, second)

    assert timedelta(seconds=90) < until <= timedelta(seconds=100)
    assert await rows.value("select array_agg(loop) from @schema@.sleeper") == ["async"]


async def test_sleepers_that_are_gone_are_forgotten(rows: Rows) -> None:
    """In pages, and once their sleep is over for an hour: a worker that only lost its connection keeps its row."""
    for loop in ("gone", "gone too", "gone as well"):
        await sleep(rows, for_s=-3700.0, loop=loop)
    await sleep(rows, for_s=-3500.0, loop="late")
    await sleep(rows, loop="asleep")

    purged = [await rows.store.purge_sleepers(rows.conn, 2) for _ in range(3)]

    assert purged == [2, 1, 0]
    assert await rows.value("select array_agg(loop order by loop) from @schema@.sleeper") == ["asleep", "late"]
