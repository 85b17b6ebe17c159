"""A storm of terminations: every backend of jobq is killed, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.faults.run import STOP_S, connected, fault_run
from tests.faults.servers import Server, a_server

STORM_S = 4.0
EVERY_S = 0.03


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose producers and workers are thrown out."""
    with a_server(fsync="off") as server:
        yield server


@asynccontextmanager
async def storm(dsn: str) -> AsyncIterator[list[int]]:
    """Terminate all backends of jobq every few milliseconds while the block runs. Gives how many, each time."""
    killed: list[int] = []

    async def rage() -> None:
        async with connected(dsn) as conn:
            while True:
                killed.append(
                    await conn.fetchval(
                        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                        " where application_name like 'jobq %'"
                    )
                )
                await asyncio.sleep(EVERY_S)

    task = asyncio.create_task(rage())
    try:
        yield killed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_after_a_storm_of_terminations_the_account_balances(server: Server, tmp_path: Path) -> None:
    """F01, N4: connections that die at any moment, an enqueue's, a claim's, a settle's, lose and double nothing."""
    async with fault_run(server.dsn, tmp_path) as run:
        workers = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(20)

            async with storm(server.dsn) as killed:
                await asyncio.sleep(STORM_S)  # the fault's own length
            await run.producer.commits(20)
        await run.recovers()

        await run.account()
        assert sum(killed) > 50
        assert [worker.lines("crashed") for worker in workers] == [[], []]
        assert [await worker.stop() for worker in workers] == [0, 0]


async def test_a_stop_in_a_storm_ends_within_its_limits(server: Server, tmp_path: Path) -> None:
    """F23: SIGTERM while no connection lives for long: 0 or 3, and what is left behind comes back."""
    async with fault_run(server.dsn, tmp_path) as run:
        workers = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(20)
            async with storm(server.dsn):
                for worker in workers:
                    await worker.says("is not available")

                codes = [await worker.stop(limit_s=STOP_S) for worker in workers]

        assert set(codes) <= {0, 3}
        await run.start_workers(1)
        await run.recovers()
        await run.account()
