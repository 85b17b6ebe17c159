"""The transfers of examples/transfer.py: money is moved once, whatever happens to the worker between write and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import asyncpg
import pytest

from examples import transfer
from jobq.core.states import State
from tests.docs.conftest import PROCESSES, Told, Work, discard, line_with
from tests.worker.observe import Jobs, eventually

if TYPE_CHECKING:
    from tests.conftest import Conn

WORKER = "jobq run examples.transfer:queue --until-empty"


@pytest.fixture(autouse=True)
async def accounts(database: str, db: Conn) -> None:
    """Ada has 100.00, and Bob nothing."""
    transfer.queue.use_dsn(database)
    await db.execute(transfer.SCHEMA)


async def balances(db: Conn) -> list[int]:
    """Return what Ada and Bob have, in cents."""
    return [row["cents"] for row in await db.fetch("select cents from account order by id")]


@pytest.fixture
async def job_id(accounts: None, jobs: Jobs) -> int:
    """A job that moves 2.50 from Ada to Bob."""
    async with transfer.queue:
        await transfer.request_transfer(source=1, target=2, cents=250)
    only: int = await jobs.run("select id from @schema@.job")
    return only


class Between:
    """Holds the worker that comes where it has written and cannot complete the job: we have locked that."""

    def __init__(self, job_id: int, accounts: Conn, db: Conn, jobs: Jobs) -> None:
        self._job_id = job_id
        self._accounts = accounts
        self._db = db
        self._jobs = jobs

    async def wait(self) -> None:
        """Wait until the worker is there."""
        await self._jobs.become(self._job_id, State.RUNNING)
        await self._db.execute("begin")
        await self._db.execute("select from jobq.job where id = $1 for update", self._job_id)
        # The accounts become free: now it writes, and then it waits for the lock on its job.
        await self._accounts.execute("rollback")
        waits = "select count(*) from pg_stat_activity where $1 = any(pg_blocking_pids(pid))"
        await eventually(lambda: self._accounts.fetchval(waits, self._db.get_server_pid()))

    async def give_away(self) -> None:
        """Take the job from the worker, as the reaper does, and unlock it."""
        await self._jobs.steal(self._job_id, into="money")
        await self._db.execute("commit")


@pytest.fixture
async def between(job_id: int, database: str, db: Conn, jobs: Jobs) -> AsyncIterator[Between]:
    """What holds the worker. No account can be written before `wait`."""
    accounts = await asyncpg.connect(database)
    await accounts.execute("begin")
    await accounts.execute("select from account for update")
    yield Between(job_id, accounts, db, jobs)
    accounts.terminate()


@PROCESSES
async def test_its_head_tells_how_to_see_it(told: Told) -> None:
    """Ten transfers are asked for, and ten are made."""
    said = [await told.run(command) for command in told.commands("transfer")]

    assert said[1] == "Ada has 100.00\nBob has 0.00\n"
    assert said[3] == "Ada has 75.00\nBob has 25.00\n"


async def test_an_attempt_that_loses_its_job_after_the_writes_moves_nothing(
    between: Between, db: Conn, job_id: int, jobs: Jobs, work: Work
) -> None:
    """It is not killed, so nothing but the commit together with the completion can stop it."""
    async with asyncio.TaskGroup() as group:
        group.create_task(work(transfer.queue))
        await between.wait()
        await between.give_away()

    assert await balances(db) == [9_750, 250]
    assert await jobs.run("select attempt from @schema@.done where id = $1", job_id) == 2


async def test_a_worker_killed_between_the_writes_and_the_completion_moves_nothing(
    between: Between, db: Conn, job_id: int, jobs: Jobs, told: Told
) -> None:
    """SIGKILL at the worst moment, and another worker: one transfer."""
    killed = await told.start(WORKER)
    try:
        await line_with(" started: queues ", killed)
        await between.wait()
    finally:
        await discard(killed)
    await between.give_away()
    await told.run(WORKER)

    assert await balances(db) == [9_750, 250]
    assert await jobs.run("select attempt from @schema@.done where id = $1", job_id) == 2


async def test_an_account_is_not_overdrawn(db: Conn, jobs: Jobs, work: Work) -> None:
    """Of two transfers of 60.00 from an account with 100.00, one is made and one is a dead letter."""
    async with transfer.queue:
        for _ in range(2):
            await transfer.request_transfer(source=1, target=2, cents=6_000)

    await work(transfer.queue)

    assert await balances(db) == [4_000, 6_000]
    assert await jobs.count() == {State.DONE: 1, State.DEAD: 1}
