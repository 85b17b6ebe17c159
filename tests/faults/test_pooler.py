"""Everything through a real PgBouncer in transaction mode, whose server connections are exchanged (F10, F11, F12)."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq import Queue
from jobq.core.states import State
from jobq.dead_letters import RedriveReport
from jobq.errors import SchemaError
from tests.faults.conftest import Add
from tests.faults.fleet import Fleet, WorkerProcess
from tests.faults.ledger import Ledger
from tests.faults.pooler import PgBouncer
from tests.faults.run import FaultRun
from tests.worker.observe import Jobs, eventually

if TYPE_CHECKING:
    from tests.conftest import Conn

UNPREPARED = ("--prepared-statements", "off")

LEASE_S = 12.0
"""Long enough that a beat may wait for its turn in a small pool on a busy machine."""

NEVER_POLL_S = 60.0
"""What is seen before a third of this has passed was not found by such a poll."""


@pytest.fixture
async def pooler(dsn: str, short_directory: Path) -> AsyncIterator[PgBouncer]:
    """A pool of two."""
    async with PgBouncer(dsn, short_directory, size=2) as pooler:
        yield pooler


@pytest.fixture
async def single(dsn: str, short_directory: Path) -> AsyncIterator[PgBouncer]:
    """A pool of one: all clients get the same server connection."""
    async with PgBouncer(dsn, short_directory, size=1) as pooler:
        yield pooler


@pytest.fixture
async def through(pooler: PgBouncer, conn: Conn, schema: str) -> AsyncIterator[Queue]:
    """A queue whose own pool goes through the pooler."""
    async with Queue(pooler.dsn, schema=schema, prepared_statements=False) as queue:
        yield queue


@pytest.fixture
def caller(pooler: PgBouncer) -> Callable[[], AbstractAsyncContextManager[Conn]]:
    """Open a connection of the application's own, through the pooler."""

    @asynccontextmanager
    async def caller() -> AsyncIterator[Conn]:
        conn = await asyncpg.connect(pooler.dsn, statement_cache_size=0)
        try:
            yield conn
        finally:
            conn.terminate()

    return caller


def troubles(worker: WorkerProcess) -> list[str]:
    """Return what must not be in the log of a worker behind a pooler."""
    return worker.lines("prepared statement|crashed|lost its lease|taken back")


# -- F10: no statement has a name --------------------------------------------------------------------------


@pytest.mark.timeout(120)
async def test_four_workers_run_500_jobs_while_their_server_connections_are_exchanged(
    fleet: Fleet, run: FaultRun, pooler: PgBouncer, through: Queue, ledger: Ledger
) -> None:
    """F10: two rounds, enqueued in bulk through the same pooler: each runs once, no prepared statement is missed."""
    workers = [await fleet.start(*UNPREPARED, dsn=pooler.dsn, worker_lease_s=LEASE_S) for _ in range(4)]
    ids = []

    for count in (250, 500):
        new = [through.job("nap", {"seconds": 0.05}).with_options(queue="default") for _ in range(250)]
        ids += [one.id for one in await through.enqueue_many(new)]
        await ledger.until("start", count - 200)
        await pooler.exchange_servers()
        await ledger.until("end", count)
        await pooler.exchange_servers()

    await run.recovers()
    assert [ledger.starts(one) for one in ids] == [1] * 500
    assert [await worker.stop() for worker in workers] == [0] * 4
    assert [troubles(worker) for worker in workers] == [[]] * 4


async def test_a_job_goes_all_its_ways_through_the_pooler(
    fleet: Fleet,
    pooler: PgBouncer,
    through: Queue,
    caller: Callable[[], AbstractAsyncContextManager[Conn]],
    jobs: Jobs,
    ledger: Ledger,
) -> None:
    """Enqueued in the caller's transaction, retried, dead, redriven; another is completed in its own transaction."""
    async with caller() as conn:
        async with conn.transaction():
            job = await through.enqueue("fail", {}, queue="default", conn=conn, idempotency_key="once")
            again = await through.enqueue("fail", {}, queue="default", conn=conn, idempotency_key="once")
            other = await through.enqueue("write", {"seconds": 0.0}, queue="default", conn=conn)
        rolling_back = conn.transaction()
        await rolling_back.start()
        lost = await through.enqueue("nap", {"seconds": 0.0}, queue="default", conn=conn)
        await rolling_back.rollback()

    worker = await fleet.start(*UNPREPARED, dsn=pooler.dsn, worker_lease_s=LEASE_S)
    dead = await jobs.become(job.id, State.DEAD)
    await pooler.exchange_servers()
    report = await through.redrive(job.id)
    await jobs.become(job.id, State.DONE)
    await jobs.become(other.id, State.DONE)

    assert (again.id, again.created) == (job.id, False)
    assert [one["type"] for one in dead.errors] == ["LookupError"] * 2
    assert report == RedriveReport(1)
    assert [effect.attempt for effect in ledger.effects("start", of=job.id)] == [1, 2, 1]
    assert await jobs.run("select array_agg(job_id) from @schema@.effects") == [other.id]
    assert ledger.effects(of=lost.id) == []
    assert await worker.stop() == 0
    assert troubles(worker) == []


async def test_the_jobs_of_a_killed_worker_come_back_through_the_pooler(
    fleet: Fleet, run: FaultRun, pooler: PgBouncer, through: Queue, ledger: Ledger
) -> None:
    """Beats, leases and the reaper need no session either."""
    ids = [(await through.enqueue("nap", {"seconds": 1.0}, queue="default")).id for _ in range(5)]
    killed = await fleet.start(*UNPREPARED, dsn=pooler.dsn)
    await ledger.until("start", 5)

    killed.send(signal.SIGKILL)
    other = await fleet.start(*UNPREPARED, dsn=pooler.dsn, worker_lease_s=LEASE_S)
    await pooler.exchange_servers()
    await run.recovers()

    assert [[effect.attempt for effect in ledger.effects("start", of=one)] for one in ids] == [[1, 2]] * 5
    assert {effect.pid for effect in ledger.effects("end")} == {other.pid}
    assert other.lines("prepared statement|crashed|lost its lease") == []


@pytest.mark.leaves_jobs
async def test_commands_go_through_the_pooler_as_they_are(
    fleet: Fleet, single: PgBouncer, schema: str, add: Add
) -> None:
    """They name no statement, whatever is set; the names that they would use are taken here."""
    await add("nap", 3, seconds=0.0)
    await take_names(single)

    outputs = [
        await fleet.command(*words, "--dsn", single.dsn, "--schema", schema)
        for words in (("stats",), ("jobs",), ("dead", "list"), ("migrate",), ("enqueue", "nap", "--queue", "default"))
    ]

    assert [code for code, _ in outputs] == [0] * 5, outputs


async def take_names(pooler: PgBouncer) -> None:
    """Leave the names of asyncpg's first statements on the server connection that is used next, as other clients do."""
    conn = await asyncpg.connect(pooler.dsn, statement_cache_size=0)
    await conn.execute("; ".join(f"prepare __asyncpg_stmt_{one:x}__ as select 1" for one in range(1, 30)))
    conn.terminate()


# -- F10: with prepared statements -------------------------------------------------------------------------


async def test_a_start_with_prepared_statements_ends_with_what_to_set(fleet: Fleet, single: PgBouncer) -> None:
    """Another client has taken its names; a wrong setting is 78, and the driver's own advice is not repeated."""
    await take_names(single)
    worker = await fleet.launch(dsn=single.dsn)

    code = await worker.ends()

    assert code == 78
    assert len(worker.lines("set prepared_statements=False")) == 1
    assert "already exists" in worker.log
    assert "NOTE: pgbouncer" not in worker.log


async def test_a_worker_that_loses_its_prepared_statements_says_once_what_to_set(
    fleet: Fleet, single: PgBouncer, ledger: Ledger, add: Add
) -> None:
    """Each connection loses them once an exchange; it is replaced, and the jobs run."""
    worker = await fleet.start(dsn=single.dsn, worker_lease_s=LEASE_S)

    for count in (1, 2, 3):
        await single.exchange_servers()
        await add("nap", seconds=0.0)
        await ledger.until("end", count)
    await worker.says("does not exist.* set prepared_statements=False")

    assert await worker.stop() == 0
    assert len(worker.lines("set prepared_statements=False")) == 1
    assert worker.lines("crashed") == []


# -- F11: no transaction is left behind --------------------------------------------------------------------


@pytest.mark.leaves_jobs
async def test_fifty_failed_statements_leave_the_pool_usable(
    fleet: Fleet, pooler: PgBouncer, through: Queue, jobs: Jobs
) -> None:
    """F11: of handlers, in transactions of jobs, and of enqueues: no backend stays in a failed transaction."""
    await jobs.script("alter table @schema@.effects add check (job_id < 0)")
    worker = await fleet.start(*UNPREPARED, dsn=pooler.dsn, worker_lease_s=LEASE_S)
    new = [through.job("write", {"seconds": 0.0}).with_options(queue="default", max_attempts=1) for _ in range(50)]

    await through.enqueue_many(new)
    async with Queue(pooler.dsn, schema="nowhere", prepared_statements=False) as failing:
        for _ in range(50):
            with pytest.raises(SchemaError):
                await failing.enqueue_many(new)
    await jobs.all_become(State.DEAD, 50)

    await jobs.script("alter table @schema@.effects drop constraint effects_job_id_check")
    job = await through.enqueue("write", {"seconds": 0.0}, queue="default")
    await jobs.become(job.id, State.DONE)
    left = "select count(*) from pg_stat_activity where state like 'idle in transaction%'"
    await eventually(lambda: jobs.run(left), lambda count: count == 0)
    assert len(worker.lines("is a dead letter .*CheckViolationError")) == 50
    assert await worker.stop() == 0
    assert troubles(worker) == []


# -- F12: LISTEN -------------------------------------------------------------------------------------------


async def test_with_the_pooler_alone_a_worker_says_so_and_polls(
    fleet: Fleet, pooler: PgBouncer, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F12: LISTEN is accepted and hears nothing; jobs are found by a shorter poll, and nobody notifies in vain."""
    worker = await fleet.start(*UNPREPARED, dsn=pooler.dsn, worker_lease_s=LEASE_S, poll_s=NEVER_POLL_S)

    await worker.says("LISTEN unavailable, polling only, every 0.25 s: .* set listen_dsn")
    await eventually(jobs.asleep, lambda queues: queues == [])
    for count in (1, 2, 3):
        await add("nap", seconds=0.0)
        await ledger.until("end", count, limit_s=NEVER_POLL_S / 3)

    assert await jobs.asleep() == []
    assert await worker.stop() == 0
    assert len(worker.lines("LISTEN unavailable")) == 1
    assert troubles(worker) == []


@pytest.mark.parametrize("stated", ["on the command line", "in the environment", "in the file"])
async def test_with_a_dsn_to_listen_on_a_worker_behind_the_pooler_is_woken(
    fleet: Fleet,
    pooler: PgBouncer,
    ledger: Ledger,
    jobs: Jobs,
    through: Queue,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stated: str,
) -> None:
    """F12: each job is enqueued through the pooler while the claim loop sleeps for a minute."""
    options: tuple[str, ...] = ()
    match stated:
        case "on the command line":
            options = (*UNPREPARED, "--listen-dsn", fleet.dsn)
        case "in the environment":
            monkeypatch.setenv("JOBQ_PREPARED_STATEMENTS", "off")
            monkeypatch.setenv("JOBQ_LISTEN_DSN", fleet.dsn)
        case _:
            text = f"prepared_statements = false\nlisten_dsn = {json.dumps(fleet.dsn)}\n"
            (tmp_path / "jobq.toml").write_text(text)
    await take_names(pooler)
    worker = await fleet.start(*options, dsn=pooler.dsn, worker_lease_s=LEASE_S, poll_s=NEVER_POLL_S)

    for count in (1, 2, 3):
        await eventually(jobs.asleep)
        await through.enqueue("nap", {"seconds": 0.0}, queue="default")
        await ledger.until("end", count, limit_s=NEVER_POLL_S / 3)
        await pooler.exchange_servers()

    assert await worker.stop() == 0
    assert worker.lines("LISTEN unavailable") == []
    assert troubles(worker) == []


# -- the pooler itself -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restarted", "killed"])
async def test_workers_outlive_their_pooler(
    fleet: Fleet, run: FaultRun, pooler: PgBouncer, ledger: Ledger, add: Add, how: str
) -> None:
    """What runs goes on and is written once when the pooler is back; what waits is claimed then."""
    workers = [
        await fleet.start(*UNPREPARED, "--concurrency", "5", dsn=pooler.dsn, worker_lease_s=LEASE_S) for _ in range(2)
    ]
    ids = await add("nap", 30, seconds=0.5)
    await ledger.until("start", 10)

    if how == "restarted":
        await pooler.stop()
        await workers[0].says("the database is not available")
        await pooler.start()
    else:
        await pooler.kill_connections()
    await run.recovers()

    assert [ledger.starts(one) for one in ids] == [1] * 30
    assert [await worker.stop() for worker in workers] == [0] * 2
    assert [troubles(worker) for worker in workers] == [[]] * 2


async def test_a_parameter_that_the_pooler_refuses_ends_the_start_with_its_name(
    fleet: Fleet, pooler: PgBouncer
) -> None:
    """Waiting would not help."""
    worker = await fleet.launch(*UNPREPARED, dsn=f"{pooler.dsn}&statement_timeout=5000")

    code = await worker.ends()

    assert code == 78
    (line,) = worker.lines("unsupported startup parameter: statement_timeout")
    assert "ignore_startup_parameters" in line
