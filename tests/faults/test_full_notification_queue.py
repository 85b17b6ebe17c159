"""A server whose queue of notifications is full, because a session listens and sits in a transaction (report F80).

Every commit that notifies then fails. The queue is 64 pages here, the least that the server takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq import Queue
from jobq.core.states import State
from jobq.db.statements import quote_identifier
from tests.faults.conftest import Add
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger
from tests.faults.servers import a_server
from tests.worker.observe import Jobs, eventually

if TYPE_CHECKING:
    from tests.conftest import Conn

NAP = {"seconds": 0.0}
LONG_POLL_S = 60.0
FULL = "too many notifications in the NOTIFY queue"


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """The DSN of a server whose queue of notifications is small."""
    with a_server(fsync="off", max_notify_queue_pages="64") as server:
        yield server.dsn


async def notify_for_ever(conn: Conn) -> None:
    """Notify until a commit fails."""
    while True:
        await conn.execute("select pg_notify('somebody', repeat('x', 7900))")


@asynccontextmanager
async def full_queue(dsn: str) -> AsyncIterator[None]:
    """Let somebody who listens hold the queue while the block runs, and fill it."""
    holder, filler = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    try:
        await holder.execute("listen nothing")
        await holder.execute("begin")
        with pytest.raises(asyncpg.PostgresError, match=FULL):
            await notify_for_ever(filler)
        yield
        with pytest.raises(asyncpg.PostgresError, match=FULL):  # as full as at the beginning
            await filler.execute("notify somebody")
    finally:
        holder.terminate()
        await eventually(lambda: filler.fetchval("select pg_notification_queue_usage() < 0.5"))
        filler.terminate()


async def plainly(queue: Queue, conn: Conn) -> None:
    """Add a job in the caller's transaction."""
    await queue.enqueue("nap", NAP, queue="default", conn=conn)


async def with_a_key(queue: Queue, conn: Conn) -> None:
    """Add a job under an idempotency key."""
    await queue.enqueue("nap", NAP, queue="default", idempotency_key="a", conn=conn)


async def in_bulk(queue: Queue, conn: Conn) -> None:
    """Add a job as many are added."""
    await queue.enqueue_many([queue.job("nap", NAP)], queue="default", conn=conn)


async def by_the_function(queue: Queue, conn: Conn) -> None:
    """Add a job as other languages do."""
    await conn.execute(f"""select id from {quote_identifier(queue.schema)}.enqueue('nap', '{{"seconds": 0}}')""")


@pytest.mark.parametrize("enqueue", [plainly, with_a_key, in_bulk, by_the_function])
async def test_an_order_and_its_job_commit_and_the_poll_finds_it(
    fleet: Fleet,
    queue: Queue,
    ledger: Ledger,
    jobs: Jobs,
    conn: Conn,
    dsn: str,
    enqueue: Callable[..., Awaitable[None]],
) -> None:
    """F80: a worker sleeps and would be notified; the caller's transaction is worth more than its wake-up."""
    worker = await fleet.start()
    await jobs.script("create table @schema@.orders (id int)")

    async with full_queue(dsn):
        await eventually(jobs.asleep)
        async with conn.transaction():
            await jobs.run("insert into @schema@.orders values (7)")
            await enqueue(queue, conn)
        await jobs.all_become(State.DONE, 1)

    assert len(ledger.effects("end", kind="nap")) == 1
    assert await jobs.run("select array_agg(id) from @schema@.orders") == [7]
    assert worker.lines("crashed|not available|unavailable") == []
    assert await worker.stop() == 0


async def test_a_redrive_commits_and_the_poll_finds_it(
    fleet: Fleet, queue: Queue, ledger: Ledger, jobs: Jobs, add: Add, dsn: str
) -> None:
    """F80: dead letters are not held up either."""
    await fleet.start()
    (job_id,) = await add("fail")
    await jobs.become(job_id, State.DEAD)

    async with full_queue(dsn):
        await eventually(jobs.asleep)
        report = await queue.redrive(job_id)
        await jobs.become(job_id, State.DONE)

    assert report.redriven == 1
    assert len(ledger.effects("end", of=job_id)) == 1


async def test_a_worker_that_cannot_try_its_listener_polls_and_one_that_listens_is_woken_afterwards(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add, dsn: str
) -> None:
    """F80: it says once that it does without; nothing is restarted; when there is room again others hear as before."""
    hearing = await fleet.start(poll_s=LONG_POLL_S)
    await eventually(jobs.asleep)

    async with full_queue(dsn):
        deaf = await fleet.start()
        (said,) = await deaf.says("LISTEN unavailable, polling only")
        (job_id,) = await add("nap", seconds=0.0)
        (start,) = await ledger.until("start", of=job_id)
        await jobs.become(job_id, State.DONE)
        assert await deaf.stop() == 0
    await eventually(jobs.asleep)
    (job_id,) = await add("nap", seconds=0.0)
    await ledger.until("start", of=job_id, limit_s=LONG_POLL_S / 3)
    await jobs.become(job_id, State.DONE)

    assert FULL in said
    assert start.pid == deaf.pid
    assert deaf.lines("crashed|not available") == hearing.lines("crashed|not available|unavailable") == []
    assert await hearing.stop() == 0


async def test_a_listener_is_never_in_a_transaction(fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add) -> None:
    """F80: in a hundred looks while jobs come and go; its session alone listens, and holds nothing up."""
    worker = await fleet.start()
    looks: list[str] = []

    for _ in range(100):
        await add("nap", 2, seconds=0.0)
        looks += await jobs.backends("application_name = 'jobq listener' and xact_start is null")
    await ledger.until("end", 200)

    assert looks == ["jobq listener"] * 100
    assert await jobs.run("select pg_notification_queue_usage()") < 0.5
    assert await worker.stop() == 0
