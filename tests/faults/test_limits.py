"""A server that takes no more connections: who has none is told so, and gets one when there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobq import DatabaseUnavailableError, Queue
from tests.faults.run import connected, fault_run
from tests.faults.server_faults import crowd, terminate_all
from tests.faults.servers import Server, a_server

FULL_S = 3.0
TOO_MANY = "TooManyConnectionsError: .*too many clients already"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with few connections."""
    with a_server(fsync="off", max_connections="40") as server:
        yield server


async def test_workers_and_enqueues_that_get_no_connection_say_so_and_recover_when_there_is_room(
    server: Server, tmp_path: Path
) -> None:
    """F02: connections are lost and somebody else takes them; the account balances when there is room again."""
    async with fault_run(server.dsn, tmp_path) as run, Queue(server.dsn) as queue:
        workers = await run.start_workers()
        async with run.producer.producing(), connected(server.dsn) as conn:
            await run.producer.commits(20)

            async with crowd(server):
                async with asyncio.timeout(20):
                    while await terminate_all(conn):  # one may be quicker than the crowd
                        await asyncio.sleep(0.1)
                for worker in workers:
                    await worker.says("the database is not available")
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
        async with crowd(server):
            patient = await run.fleet.launch("--start-limit", "60")
            impatient = await run.fleet.launch("--start-limit", "1")
            await patient.says(TOO_MANY)
            assert await impatient.ends() == 75
            assert not patient.has_ended

        await patient.says(" started: queues ")
        assert impatient.lines(TOO_MANY)
        assert await patient.stop() == 0
