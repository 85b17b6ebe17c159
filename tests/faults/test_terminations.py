"""A storm of terminations: every backend of jobq is killed, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.run import fault_run
from tests.faults.server_faults import storm
from tests.faults.servers import Server, a_server

STORM_S = 4.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose producers and workers are thrown out."""
    with a_server(fsync="off") as server:
        yield server


async def test_after_a_storm_of_terminations_the_account_balances(server: Server, tmp_path: Path) -> None:
    """F01, N4: connections that die at any moment, an enqueue's, a claim's, a settle's, lose and double nothing."""
    async with fault_run(server.dsn, tmp_path) as run:
        workers = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(20)

            async with storm(server) as killed:
                await asyncio.sleep(STORM_S)  # the fault's own length
            await run.producer.commits(20)
        await run.recovers()

        await run.account()
        assert sum(killed) > 50
        assert [worker.lines("crashed") for worker in workers] == [[], []]
        assert [await worker.stop() for worker in workers] == [0, 0]
