"""A replica is promoted while its old primary goes on: it answers, and takes writes (field reports A and S).

The timeline tells them apart. Synchronous: commits to the old primary wait for ever, so nothing that was answered is
lost. Asynchronous: it takes them until the last has left, and what it took after the promotion is not in the other one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jobq import Queue
from jobq.db import pools
from jobq.db.connect import Link
from jobq.db.hosts import SupersededError
from jobq.db.migrate import migrate
from jobq.db.timeline import read_timeline
from jobq.errors import DatabaseUnavailableError
from tests.faults.fleet import WorkerProcess
from tests.faults.ledger import now
from tests.faults.pooler import PgBouncer
from tests.faults.replication import arrive, leave, make_synchronous, wait_replicated
from tests.faults.run import STOP_S, command_line, connected, fault_run
from tests.faults.servers import Server, dsn_of, empty_directory


async def kinds(server: Server) -> list[str]:
    """Return the kinds of the jobs that wait on a server."""
    async with connected(server.dsn) as conn:
        return [row[0] for row in await conn.fetch("select kind from jobq.job order by id")]


async def timeline_number(dsn: str) -> int:
    """Return the timeline of the server that *dsn* finds."""
    async with connected(dsn) as conn:
        found = await read_timeline(conn)
        assert found is not None
        return found.number


@pytest.mark.timeout(120)
async def test_everybody_leaves_an_old_primary_whose_commits_wait_for_a_replica_that_is_gone(
    primary: Server, replica: Server, tmp_path: Path
) -> None:
    """N3: it stands first in the DSN and lets everybody in; no job whose commit was answered is lost."""
    await make_synchronous(primary)
    async with fault_run(dsn_of(primary, replica), tmp_path) as run:
        workers = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(30)

            await replica.promote()
            await run.producer.commits(30)
        await run.recovers()
        await arrive(replica, len(workers))
        await leave(primary)

        assert (await run.account()).lost == 0
        assert [worker.lines("crashed") for worker in workers] == [[], []]
        assert [await worker.stop() for worker in workers] == [0, 0]


@pytest.mark.timeout(120)
async def test_workers_leave_an_old_primary_that_goes_on_taking_writes(
    primary: Server, replica: Server, tmp_path: Path
) -> None:
    """N3: nothing fails there, so they have to ask. What it took after the promotion is gone; the rest ends."""
    async with fault_run(dsn_of(primary, replica), tmp_path) as run:
        workers = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(30)
            cut_at = now()
            await wait_replicated(primary)

            await replica.promote()
            await run.producer.commits(30)
            await arrive(replica, len(workers))
            # The producer shares what this process learns, and is disconnected.
            assert await timeline_number(run.dsn) == 2
            await leave(primary)
            await run.producer.commits(30)
        await run.recovers()

        account = await run.account(cut_at=cut_at)
        assert account.lost > 0
        assert [worker.lines("crashed") for worker in workers] == [[], []]
        assert [await worker.stop() for worker in workers] == [0, 0]


async def test_nobody_goes_back_to_an_old_primary(primary: Server, replica: Server) -> None:
    """Whoever connects gets the promoted one; while that is away there is none, and the message says why."""
    dsn = dsn_of(primary, replica)
    async with connected(dsn) as early:
        await replica.promote()

        assert await timeline_number(dsn) == 2
        assert early.is_closed()
    await replica.stop()
    with pytest.raises(SupersededError, match="on timeline 1, and this process has seen 2"):
        await timeline_number(dsn)
    await replica.start()

    assert await timeline_number(dsn) == 2


async def test_a_heartbeat_says_what_it_has_found_and_turns_to_it(primary: Server, replica: Server) -> None:
    """For its worker that is a database which is away for a moment, with the reason in the log."""
    link = Link(dsn_of(primary, replica), role="heartbeat", deadline_s=10.0)
    async with link.lend() as conn:
        early = await read_timeline(conn)
    await link.look_around(wait_s=10.0)  # a standby says nothing
    await replica.promote()

    with pytest.raises(DatabaseUnavailableError, match="another server was promoted, to timeline 2"):
        await link.look_around(wait_s=10.0)
    async with link.lend() as conn:
        late = await read_timeline(conn)

    assert late is not None
    assert late.is_after(early)
    await link.close()


async def test_a_command_finds_the_promoted_one_behind_the_old(primary: Server, replica: Server) -> None:
    """It has seen nothing before: the servers have to be compared."""
    async with connected(primary.dsn) as conn:
        await migrate(conn, "jobq")
    await wait_replicated(primary)
    await replica.promote()

    code = await command_line(dsn_of(primary, replica), "enqueue", "errand")

    assert code == 0
    assert (await kinds(primary), await kinds(replica)) == ([], ["errand"])


async def test_poolers_are_told_apart_by_the_servers_behind_them(primary: Server, replica: Server) -> None:
    """The question goes through PgBouncer in transaction mode, one in front of each server."""
    with empty_directory() as one, empty_directory() as two:
        async with PgBouncer(primary.dsn, one, size=2), PgBouncer(replica.dsn, two, size=2):
            await replica.promote()

            assert await timeline_number(f"postgresql://postgres@/postgres?host={one},{two}&port=5432") == 2


async def test_an_enqueue_on_the_own_pool_asks_now_and_then(
    primary: Server, replica: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections are as good as before, so nothing else would tell it."""
    monkeypatch.setattr(pools, "LOOK_AROUND_S", 0.0)
    async with connected(primary.dsn) as conn:
        await migrate(conn, "jobq")
    async with Queue(dsn_of(primary, replica)) as queue:
        await queue.enqueue("early", {}, queue="default")
        await wait_replicated(primary)
        await replica.promote()

        await queue.enqueue("late", {}, queue="default")

    assert (await kinds(primary), await kinds(replica)) == (["early"], ["early", "late"])


@pytest.mark.timeout(120)
async def test_a_stop_while_commits_wait_at_an_old_primary_ends_within_its_limits(
    primary: Server, replica: Server, tmp_path: Path
) -> None:
    """F23: SIGTERM at the promotion, and when the first commit got no answer: 0 or 3, and all comes back."""
    await make_synchronous(primary)
    async with fault_run(dsn_of(primary, replica), tmp_path) as run:
        first, second = await run.start_workers()
        async with run.producer.producing():
            await run.producer.commits(30)

            await replica.promote()
            codes = await asyncio.gather(first.stop(limit_s=STOP_S), _stop_without_an_answer(second))
            await run.producer.commits(5)

        assert set(codes) <= {0, 3}
        await run.start_workers(1)
        await run.recovers()
        assert (await run.account()).lost == 0


async def _stop_without_an_answer(worker: WorkerProcess) -> int:
    await worker.says("is not available")
    return await worker.stop(limit_s=STOP_S)
