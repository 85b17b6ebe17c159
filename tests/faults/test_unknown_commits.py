"""A commit that nobody made, or whose answer nobody heard: of an enqueue, and of a handler's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq import Queue
from jobq.core.job import JobId
from jobq.core.states import State
from tests.faults.conftest import Add
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger
from tests.faults.proxy import Proxy
from tests.faults.run import FaultRun
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn

PRODUCER = "shop"


@pytest.fixture
async def shop(proxy: Proxy) -> AsyncIterator[Callable[[], Awaitable[Conn]]]:
    """Open connections of a producer, through the proxy."""
    opened: list[Conn] = []

    async def shop() -> Conn:
        opened.append(await asyncpg.connect(proxy.dsn, server_settings={"application_name": PRODUCER}))
        return opened[-1]

    yield shop
    for connection in opened:
        connection.terminate()


async def order(queue: Queue, conn: Conn) -> JobId:
    """Enqueue a job with a key in a transaction of the producer's, and return its id."""
    async with conn.transaction():
        return await enqueue(queue, conn)


async def enqueue(queue: Queue, conn: Conn) -> JobId:
    """Enqueue the job of order 7."""
    answer = await queue.enqueue("nap", {"seconds": 0.1}, queue="default", idempotency_key="order:7", conn=conn)
    return answer.id


async def cut_once_swallowed(proxy: Proxy, name: str) -> None:
    """Close the connection whose answer was swallowed."""
    await proxy.swallowed()
    proxy.cut(name)


async def test_a_producer_that_is_gone_before_its_commit_leaves_neither_job_nor_key(
    queue: Queue, proxy: Proxy, shop: Callable[[], Awaitable[Conn]], jobs: Jobs
) -> None:
    """N3: the server rolls back what nobody has committed, and the next one to try is the first."""
    gone = await shop()
    await gone.transaction().start()
    lost = await enqueue(queue, gone)

    proxy.cut(PRODUCER)
    again = await order(queue, await shop())

    assert again != lost
    assert await jobs.count() == {State.WAITING: 1}


async def test_a_producer_whose_commit_got_no_answer_repeats_it_with_its_key_and_finds_its_job(
    queue: Queue, proxy: Proxy, shop: Callable[[], Awaitable[Conn]], jobs: Jobs
) -> None:
    """N3: whether it was committed nobody can tell it but the key: one job, whichever way it was."""
    proxy.swallow_answer(PRODUCER, holding=b"COMMIT")
    unheard = asyncio.create_task(order(queue, await shop()))
    await cut_once_swallowed(proxy, PRODUCER)
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
        await unheard
    first = await jobs.run("select id from @schema@.job")

    again = await order(queue, await shop())

    assert again == first
    assert await jobs.count() == {State.WAITING: 1}


async def test_a_transaction_of_a_job_whose_commit_got_no_answer_has_happened_once(
    fleet: Fleet, run: FaultRun, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """Q10: the handler fails for want of an answer, and its failure matches nothing: the job is done already."""
    worker = await fleet.start(dsn=proxy.dsn)

    proxy.swallow_answer("jobq handlers", holding=b"COMMIT")
    (job_id,) = await add("write", seconds=0.0)
    await cut_once_swallowed(proxy, "jobq handlers")
    await worker.says("lost its lease")
    await run.recovers()

    assert ledger.starts(job_id) == 1
    assert await jobs.run("select array_agg(job_id) from @schema@.effects") == [job_id]
    assert await worker.stop() == 0
