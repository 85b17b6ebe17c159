"""A `Queue` opens nothing when it is made; its pool belongs to the event loop and the process that first used it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jobq import ConfigurationError, Queue
from jobq.core.states import State
from jobq.settings import WorkerSettings
from jobq.worker.supervisor import ExitCode, Worker
from tests.worker.conftest import QUICK
from tests.worker.observe import Events, Jobs, eventually

if TYPE_CHECKING:
    from asyncpg import Connection, Record

FORKS = """
import asyncio, os, sys
from jobq import Queue

queue = Queue(sys.argv[1], schema=sys.argv[2])

@queue.task("work")
async def work(n: int) -> None: ...

async def enqueue(n):
    await queue.enqueue(work.bind(n))
    return await (await queue.pool()).fetchval("select pg_backend_pid()")

with asyncio.Runner() as runner:
    before = runner.run(enqueue(0))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with asyncio.Runner() as own:
                code = 0 if own.run(enqueue(1)) != before else 2
                own.run(queue.close())
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert runner.run(enqueue(2)) == before
    runner.run(queue.close())
"""


def test_a_queue_is_made_without_database_and_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """F109, F110: a module that only registers and binds can be imported anywhere; what is missing is told later."""
    for variable in ("JOBQ_DSN", "DATABASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    queue = Queue()

    @queue.task("work")
    async def work(n: int) -> None: ...

    new = work.bind(1)
    with pytest.raises(ConfigurationError, match="no database: set JOBQ_DSN"):
        asyncio.run(queue.enqueue(new))


def test_one_queue_serves_several_event_loops(conn: Connection[Record], dsn: str, schema: str, seen: Events) -> None:
    """F109: each loop has a pool of its own, in turn and side by side, and a worker in a third runs what they added."""
    queue = Queue(dsn, schema=schema)
    ran: list[int] = []

    @queue.task("work")
    async def work(n: int) -> None:
        ran.append(n)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        for n, runner in enumerate((first, second, first, second)):
            runner.run(queue.enqueue(work.bind(n)))
        assert first.run(queue.pool()) is not second.run(queue.pool())
        for runner in (first, second):
            runner.run(queue.close())
            runner.run(queue.close())

    async def work_off() -> ExitCode:
        return await Worker(queue, WorkerSettings(**QUICK), emit=seen.emit).run(until_empty=True)

    assert asyncio.run(work_off()) is ExitCode.DRAINED
    assert sorted(ran) == [0, 1, 2, 3]


async def test_a_closed_queue_may_be_used_again(queue: Queue, jobs: Jobs) -> None:
    """`close` gives the connections back; the next enqueue opens new ones."""

    @queue.task("work")
    async def work() -> None: ...

    await queue.enqueue(work.bind())
    await queue.close()
    await eventually(jobs.backends, lambda found: found == [])
    await queue.enqueue(work.bind())

    assert await jobs.count() == {State.WAITING: 2}


async def test_a_child_process_does_not_touch_the_pool_of_its_parent(
    conn: Connection[Record], dsn: str, schema: str, jobs: Jobs
) -> None:
    """F109: after a fork the child opens connections of its own, and the parent's go on working."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-c", FORKS, dsn, schema],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert await jobs.count() == {State.WAITING: 3}


async def test_what_a_handler_listens_to_does_not_outlast_its_use_of_the_pool(queue: Queue) -> None:
    """F80: a session that listens and that nobody reads holds up the notifications of the whole server."""
    pool = await queue.pool()
    async with pool.acquire() as conn:
        await conn.execute("listen news")
        used = await conn.fetchval("select pg_backend_pid()")

    async with pool.acquire() as conn:
        again = await conn.fetchval("select pg_backend_pid()")
        heard = await conn.fetch("select pg_listening_channels()")

    assert (again, heard) == (used, [])
