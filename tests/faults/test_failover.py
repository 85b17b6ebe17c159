"""A primary with a replica that is promoted, found by a DSN that names both (field reports A and S).

What has been promised is as good as the replication. Synchronous: all that has committed is there. Asynchronous: what
was not replicated is gone, and what ran meanwhile runs again; everything before it is held to the same account.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from jobq import Queue
from jobq.db import pools
from jobq.errors import DatabaseUnavailableError
from tests.faults.ledger import now
from tests.faults.proxy import Proxy
from tests.faults.replication import demote, leave, make_synchronous, wait_replicated
from tests.faults.run import STOP_S, command_line, fault_run
from tests.faults.servers import Server, dsn_of


@asynccontextmanager
async def behind_proxy(server: Server, directory: Path) -> AsyncIterator[tuple[Proxy, str]]:
    """Give a proxy in front of a server, and the directory of its socket."""
    async with Proxy(server.dsn, directory) as proxy:
        yield proxy, parse_qs(urlsplit(proxy.dsn).query)["host"][0]


@pytest.mark.parametrize("how", ["killed", "silent"])
@pytest.mark.timeout(120)
async def test_after_the_promotion_of_a_synchronous_replica_nothing_is_lost(
    primary: Server, replica: Server, short_directory: Path, tmp_path: Path, how: str
) -> None:
    """N3: the primary dies, or its machine falls silent and answers nobody: all that has committed ends, once."""
    await make_synchronous(primary)
    async with behind_proxy(primary, short_directory) as (proxy, directory):
        dsn = f"postgresql://postgres@/postgres?host={directory},{replica.directory}&port=5432,5432"
        async with fault_run(dsn, tmp_path) as run:
            workers = await run.start_workers()
            async with run.producer.producing():
                await run.producer.commits(30)

                if how == "killed":
                    primary.cut_power()
                else:
                    proxy.black_hole()
                await replica.promote()
                await run.producer.commits(30)
            await run.recovers()

            account = await run.account()
            assert account.lost == 0
            assert [worker.lines("crashed") for worker in workers] == [[], []]
            assert await command_line(dsn, "stats") == 0
            assert [await worker.stop() for worker in workers] == [0, 0]


@pytest.mark.timeout(120)
async def test_after_the_promotion_of_an_asynchronous_replica_only_what_was_not_replicated_is_lost(
    primary: Server, replica: Server, tmp_path: Path
) -> None:
    """N3: what was committed while nothing was sent is gone; the rest ends, and the workers go on by themselves."""
    async with fault_run(dsn_of(primary, replica), tmp_path) as run:
        workers = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(30)
            cut_at = now()
            os.kill(await wait_replicated(primary), signal.SIGSTOP)
            await run.producer.commits(30)

            primary.cut_power()
            await replica.promote()
            await run.producer.commits(30)
        await run.recovers()

        account = await run.account(cut_at=cut_at)
        assert account.lost > 0
        assert [worker.lines("crashed") for worker in workers] == [[], []]
        assert [await worker.stop() for worker in workers] == [0, 0]


@pytest.mark.timeout(120)
async def test_nobody_keeps_talking_to_an_old_primary_that_still_answers_and_takes_no_writes(
    primary: Server, replica: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F02: claims, settles, beats, the listener and the pools of enqueues and handlers all move to the new primary."""
    monkeypatch.setattr(pools, "LOOK_AROUND_S", 600.0)
    dsn = dsn_of(primary, replica)
    # With a DSN of its own the pool learns nothing from the producer: only that its server takes no writes.
    async with fault_run(dsn, tmp_path) as run, Queue(f"{dsn}&application_name=own") as queue:
        workers = await run.start_workers()
        await queue.enqueue("nap", {"seconds": 0.1}, queue="default")
        pool = await queue.pool()
        async with pool.acquire(), pool.acquire(), pool.acquire():
            pass  # three connections, idle from now on
        async with run.producer.producing():
            await run.producer.commits(30)

            await demote(primary)
            await wait_replicated(primary)
            await replica.promote()
            with pytest.raises(DatabaseUnavailableError, match="read-only"):
                await queue.enqueue("nap", {"seconds": 0.1}, queue="default")
            await asyncio.gather(*(queue.enqueue("nap", {"seconds": 0.1}, queue="default") for _ in range(4)))
            await run.producer.commits(30)
        await run.recovers()
        await run.ledger.until("end", 5, kind="nap")
        await leave(primary, but={"jobq handlers"})  # a pool's idle ones: they are replaced before use

        assert (await run.account()).lost == 0
        assert [worker.lines("crashed") for worker in workers] == [[], []]
        assert [await worker.stop() for worker in workers] == [0, 0]


@pytest.mark.timeout(120)
async def test_a_stop_during_a_failover_ends_within_its_limits(
    primary: Server, replica: Server, tmp_path: Path
) -> None:
    """F23: SIGTERM after the primary's death, one before the promotion and one with it: 0 or 3, and all comes back."""
    await make_synchronous(primary)
    async with fault_run(dsn_of(primary, replica), tmp_path) as run:
        first, second = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(30)
            primary.cut_power()
            await first.says("is not available")

            codes = [await first.stop(limit_s=STOP_S)]
            second.send(signal.SIGTERM)
            await replica.promote()
            codes.append(await second.ends(STOP_S))
            await run.producer.commits(5)

        assert set(codes) <= {0, 3}
        await run.start_workers(1)
        await run.recovers()
        assert (await run.account()).lost == 0
