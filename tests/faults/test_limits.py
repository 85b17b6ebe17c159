"""A server that takes no more connections: who has none is told so, and gets one when there is room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq import DatabaseUnavailableError, Queue
from tests.faults.run import connected, fault_run
from tests.faults.servers import Server, a_server

if TYPE_CHECKING:
    from asyncpg import Connection, Record

FULL_S = 3.0
TOO_MANY = "TooManyConnectionsError: .*too many clients already"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with few connections."""
    with a_server(fsync="off", max_connections="40") as server:
        yield server


@asynccontextmanager
async def crowd(dsn: str) -> AsyncIterator[None]:
    """Take every connection that is free, and each that becomes free, while the block runs."""
    taken: list[Connection[Record]] = []
    is_full = asyncio.Event()

    async def take() -> None:
        while True:
            try:
                taken.append(await asyncpg.connect(dsn, server_settings={"application_name": "crowd"}))
            except asyncpg.TooManyConnectionsError:
                is_full.set()
                await asyncio.sleep(0.002)

    task = asyncio.create_task(take())
    try:
        async with asyncio.timeout(20):
            await is_full.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for conn in taken:
            conn.terminate()


async def test_workers_and_enqueues_that_get_no_connection_say_so_and_recover_when_there_is_room(
    server: Server, tmp_path: Path
) -> None:
    """F02: connections are lost and somebody else takes them; the account balances when there is room again."""
    async with fault_run(server.dsn, tmp_path) as run, Queue(server.dsn) as queue:
        workers = await run.start_workers()
        async with run.producer.producing(), connected(server.dsn) as conn:
            await run.producer.commits(20)

            async with crowd(server.dsn):
                async with asyncio.timeout(20):
                    while not all(worker.lines(TOO_MANY) for worker in workers):  # one may be quicker than the crowd
                        await conn.execute(
                            "select pg_terminate_backend(pid) from pg_stat_activity"
                            " where application_name like 'jobq %'"
                        )
                        await asyncio.sleep(0.1)  # the rhythm of the fault: faster, nobody would live to say it
                with pytest.raises(DatabaseUnavailableError, match=TOO_MANY):
                    await queue.enqueue("nap", {"seconds": 0.0}, queue="default")
                await asyncio.sleep(FULL_S)  # the fault's own length
            await queue.enqueue("nap", {"seconds": 0.0}, queue="default")
            await run.producer.commits(20)
        await run.recovers()

        await run.account()
        assert [worker.lines("crashed") for worker in workers] == [[], []]
        assert [await worker.stop() for worker in workers] == [0, 0]


async def test_a_worker_that_gets_no_connection_at_its_start_waits_for_one_within_its_limit(
    server: Server, tmp_path: Path
) -> None:
    """F05: it starts when there is room; one that may not wait ends with 75 and says what was wrong."""
    async with fault_run(server.dsn, tmp_path) as run:
        async with crowd(server.dsn):
            patient = await run.fleet.launch("--start-limit", "60")
            impatient = await run.fleet.launch("--start-limit", "1")
            await patient.says(TOO_MANY)
            assert await impatient.ends() == 75
            assert not patient.has_ended

        await patient.says(" started: queues ")
        assert impatient.lines(TOO_MANY)
        assert await patient.stop() == 0
