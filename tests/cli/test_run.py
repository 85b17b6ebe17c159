"""`jobq run` as a process: how it starts, stops, and with which code it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from jobq import Queue
from jobq.core.states import State
from tests.cli.conftest import APP_DIR, Run, Start, Work
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Conn


@pytest.fixture
def jobs(conn: Conn, sql: Callable[[str], str]) -> Jobs:
    """The rows of the test's schema."""
    return Jobs(conn, sql)


# -- stopping ----------------------------------------------------------------------------------------------


async def test_an_idle_worker_ends_with_0(conn: Conn, work: Work) -> None:
    """A requested and completed drain is the one thing that is called success."""
    worker = await work("--concurrency", "default=3", "--concurrency", "50")
    await worker.says("queues default (3), mail (7), threads (50)")

    worker.send(signal.SIGTERM)
    ended = await worker.ends()

    assert ended.code == 0
    assert "SIGTERM: stopping" in ended.err


async def test_a_stop_lets_running_jobs_finish_and_claims_no_more(queue: Queue, jobs: Jobs, work: Work) -> None:
    """Each deploy is a SIGTERM: it must not break what runs."""
    worker = await work()
    running = await queue.enqueue("slow", {"seconds": 1.0}, queue="default")
    await worker.says("slow runs")

    worker.send(signal.SIGTERM)
    await worker.says("stopping: no more claims")
    late = [await queue.enqueue("quick", {}, queue="mail") for _ in range(20)]
    ended = await worker.ends()

    assert ended.code == 0
    assert "slow has run" in ended.out
    assert "quick runs" not in ended.out
    assert (await jobs.get(running.id)).state is State.DONE
    assert {(await jobs.get(one.id)).state for one in late} == {State.WAITING}


async def test_a_job_that_outlasts_the_grace_is_handed_back(queue: Queue, jobs: Jobs, work: Work) -> None:
    """Exit code 3, and the attempt is returned: it was not the job's fault."""
    worker = await work("--grace", "0.2")
    job = await queue.enqueue("slow", {"seconds": 600}, queue="default")
    await worker.says("slow runs")

    worker.send(signal.SIGTERM)
    ended = await worker.ends()

    assert ended.code == 3
    assert "1 handed back; exit code 3" in ended.err
    now = await jobs.get(job.id)
    assert (now.state, now.attempt) == (State.WAITING, 0)


async def test_a_second_signal_skips_the_grace(queue: Queue, conn: Conn, work: Work) -> None:
    """Whoever presses Ctrl-C twice means it."""
    worker = await work("--grace", "10m")
    await queue.enqueue("slow", {"seconds": 600}, queue="default")
    await worker.says("slow runs")

    worker.send(signal.SIGINT)
    await worker.says("stopping: no more claims")
    worker.send(signal.SIGINT)
    ended = await worker.ends()

    assert ended.code == 3
    assert "SIGINT: no more grace" in ended.err


async def test_a_handler_that_ignores_its_cancellation_cannot_hold_the_process(
    queue: Queue, conn: Conn, work: Work
) -> None:
    """It is named in the log, and the process ends without it."""
    worker = await work("--grace", "0", "--cancel-grace", "0.2s")
    await queue.enqueue("stubborn", {}, queue="default")
    await worker.says("stubborn runs")

    worker.send(signal.SIGTERM)
    ended = await worker.ends()

    assert ended.code == 3
    assert "ignores its cancellation" in ended.err


async def test_a_blocked_thread_cannot_hold_the_process(queue: Queue, conn: Conn, work: Work) -> None:
    """A thread cannot be ended, so the process ends around it, with its log written."""
    worker = await work("--grace", "0", "--cancel-grace", "0")
    await queue.enqueue("blocking", {}, queue="threads")
    await worker.says("blocking runs")

    worker.send(signal.SIGTERM)
    ended = await worker.ends()

    assert ended.code == 3
    assert "1 left to their lease; exit code 3" in ended.err


async def test_a_thread_that_a_job_left_behind_cannot_hold_the_process(queue: Queue, conn: Conn, work: Work) -> None:
    """Python would wait for it for ever, after everything is settled."""
    worker = await work("--grace", "0")
    await queue.enqueue("leaving", {}, queue="default")
    await worker.says("leaving runs")

    worker.send(signal.SIGTERM)
    ended = await worker.ends()

    assert ended.code == 3
    assert "the process does not end by itself within 3 s, held by threads " in ended.err


async def test_a_worker_that_keeps_crashing_ends_with_1(conn: Conn, sql: Callable[[str], str], work: Work) -> None:
    """Alive but not working must be impossible to miss: systemd is told, and starts a new one."""
    worker = await work()

    await conn.execute(sql("alter table @schema@.job rename to gone"))
    ended = await worker.ends()

    assert ended.code == 1
    assert "crashed, stopping the worker" in ended.err


# -- starting ----------------------------------------------------------------------------------------------


async def test_until_empty_runs_what_is_ready_and_ends(queue: Queue, conn: Conn, jobs: Jobs, work: Work) -> None:
    """What is scheduled for later does not keep it."""
    for _ in range(3):
        await queue.enqueue("quick", {}, queue="mail")
    await queue.enqueue("quick", {}, queue="mail", run_at=timedelta(hours=1))

    ended = await (await work("--until-empty")).ends()

    assert ended.code == 0
    assert ended.out == "quick runs\n" * 3
    assert await jobs.count() == {State.DONE: 3, State.WAITING: 1}


async def test_without_a_schema_it_says_which_command_to_run(dsn: str, schema: str, run: Run) -> None:
    """Workers never run DDL."""
    ended = await run("run", "app:queue", "--app-dir", APP_DIR)

    assert ended.code == 78
    assert ended.err.splitlines()[-1].startswith(f"jobq: schema {schema!r} has no jobq in it: run `jobq migrate")
    assert "Traceback" not in ended.err


async def test_without_a_dsn_it_says_how_to_give_one(run: Run) -> None:
    """A missing environment file must not make a worker run on an empty database."""
    ended = await run("run", "app:queue", "--app-dir", APP_DIR, JOBQ_DSN=None)

    assert ended.code == 78
    assert ended.err.startswith("jobq: no database: set JOBQ_DSN")


async def test_a_queue_that_no_handler_has_is_refused(conn: Conn, run: Run) -> None:
    """A typing mistake in a limit would be no limit."""
    ended = await run("run", "app:queue", "--app-dir", APP_DIR, "--concurrency", "mial=20")

    assert ended.code == 78
    assert "concurrency mial=...: the worker serves default, mail, threads, and no such queue; correct it" in ended.err


async def test_a_database_that_stays_away_ends_the_start_with_75(run: Run, unused_port: int) -> None:
    """Worth another start, says the code."""
    dsn = f"postgresql://jobq@127.0.0.1:{unused_port}/shop"

    ended = await run("run", "app:queue", "--app-dir", APP_DIR, "--dsn", dsn, "--start-limit", "0.3s")

    assert ended.code == 75
    assert "start: the database is not available" in ended.err
    assert ended.err.splitlines()[-1].startswith("jobq: the database is not available: ConnectionRefusedError")


async def test_a_signal_ends_the_wait_for_the_database(start: Start, unused_port: int) -> None:
    """Whatever the start waits for, a stop is heard."""
    dsn = f"postgresql://jobq@127.0.0.1:{unused_port}/shop"
    worker = await start("run", "app:queue", "--app-dir", APP_DIR, "--dsn", dsn)
    await worker.says("start: the database is not available")

    worker.send(signal.SIGTERM)
    ended = await worker.ends()

    assert ended.code == 0


async def test_a_signal_ends_a_start_that_gets_no_answer(start: Start) -> None:
    """A server that accepts and says nothing is the other way to be away."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        port = silent.getsockname()[1]
        worker = await start("run", "app:queue", "--app-dir", APP_DIR, "--dsn", f"postgresql://jobq@127.0.0.1:{port}/x")
        connection, _ = await asyncio.get_running_loop().sock_accept(silent)
        with connection:
            sent = time.monotonic()
            worker.send(signal.SIGTERM)
            ended = await worker.ends()

    assert ended.code == 0
    assert time.monotonic() - sent < 5


async def test_a_signal_at_any_moment_of_the_start_ends_it(conn: Conn, start: Start) -> None:
    """Before there is a loop the signal kills, afterwards it drains; it is never lost."""

    async def stopped_after(seconds: float) -> int:
        worker = await start("run", "app:queue", "--app-dir", APP_DIR)
        await asyncio.sleep(seconds)  # not to wait for something: the moment is what is tested
        worker.send(signal.SIGTERM)
        return (await worker.ends()).code

    codes = await asyncio.gather(*(stopped_after(moment / 4) for moment in range(5)))

    assert set(codes) <= {-signal.SIGTERM, 0}


@pytest.fixture
def unused_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
