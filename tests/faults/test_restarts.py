"""A server that is stopped and started again and again, while producers enqueue and two workers run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.run import fault_run
from tests.faults.servers import Server, a_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A durable server."""
    with a_server() as server:
        yield server


@pytest.mark.parametrize(("mode", "times"), [("immediate", 5), ("fast", 3)])
@pytest.mark.timeout(120)
async def test_a_server_that_is_stopped_and_started_in_a_loop_loses_nothing_and_the_account_balances(
    server: Server, tmp_path: Path, mode: str, times: int
) -> None:
    """N3, N4: what committed ends, what was rolled back never runs, each extra run says why."""
    async with fault_run(server.dsn, tmp_path) as run:
        workers = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(20)

            for _ in range(times):
                await server.stop(mode)
                await server.start()
                await run.producer.commits(20)
        await run.recovers()

        await run.account()
        assert [worker.lines("crashed") for worker in workers] == [[], []]
        assert [await worker.stop() for worker in workers] == [0, 0]
