"""F91: the version before, as real processes, beside the migration, the workers and the commands of this checkout."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import asyncpg
import pytest

from jobq.core.states import State
from jobq.db.statements import render
from tests.db.catalogue import catalogue
from tests.db.rights import RIGHTS, granted
from tests.faults.account import draw_up
from tests.faults.fleet import REPOSITORY, WorkerProcess
from tests.faults.ledger import Effect, now, until
from tests.faults.previous import (
    ARCHIVE,
    OURS,
    PREFIX,
    migrations_of,
    number_of,
    producing,
    schema_of,
    told_by_logs,
    unpack,
)
from tests.faults.run import FaultRun, connected, fault_run
from tests.worker.observe import Jobs, eventually

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]

TROUBLE = "crashed|not available|lost its lease|cannot be stored|permission denied|Traceback"
ROLES = "upgrade_"
"""What the names of the roles of these tests begin with."""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory whose `jobq` is the version before."""
    return unpack(tmp_path_factory.mktemp("previous"))


@pytest.fixture
async def run(dsn: str, tmp_path: Path, previous: Path) -> AsyncIterator[FaultRun]:
    """A fault run on a schema that the version before has created, in a database of its own."""

    async def install(run: FaultRun) -> None:
        await called(run, "migrate", code=previous)

    async with connected(dsn) as conn:
        await conn.execute("drop database if exists upgrade with (force)")
        await conn.execute("create database upgrade")
        async with fault_run(dsn.replace("/postgres?", "/upgrade?"), tmp_path, install=install) as run:
            yield run
        await conn.execute("drop database if exists upgrade with (force)")
        for role in await conn.fetch("select rolname from pg_roles where starts_with(rolname, $1)", ROLES):
            await conn.execute(f"drop role {role['rolname']}")


@pytest.fixture
async def conn(run: FaultRun) -> AsyncIterator[Conn]:
    """A connection to the database of the run."""
    async with connected(run.dsn) as conn:
        yield conn


@pytest.fixture
def jobs(conn: Conn) -> Jobs:
    """The rows of the run."""
    return Jobs(conn, partial(render, schema="jobq"))


async def called(run: FaultRun, *words: str, expected: int = 0, **code: Path) -> str:
    """Run a command on the run's database, and return what it has written."""
    ended, said = await run.fleet.command(*words, "--dsn", run.dsn, **code)
    assert ended == expected, said
    return said


async def enqueued(conn: Conn, kind: str, **payload: float) -> int:
    """Enqueue as a trigger would, and return the job's id."""
    id_: int = await conn.fetchval("select id from jobq.enqueue($1, $2)", kind, json.dumps(payload))
    return id_


def errands_of(run: FaultRun, what: str, worker: WorkerProcess) -> list[Effect]:
    """Return the effects that a worker's errands had."""
    return [one for one in run.ledger.effects(what, kind="errand") if one.pid == worker.pid]


async def has_run_both(run: FaultRun, *workers: WorkerProcess) -> None:
    """Wait until each of *workers* has finished jobs that our producer has enqueued, and the one before."""

    def origins() -> list[set[bool]]:
        return [{one.token.startswith(PREFIX) for one in errands_of(run, "end", worker)} for worker in workers]

    await until(origins, lambda found: all(len(one) == 2 for one in found), what="both producers' jobs in each worker")


async def is_busy(run: FaultRun, worker: WorkerProcess) -> None:
    """Wait until *worker* has just begun one of the longest errands, one that heeds its cancellation."""

    def looks() -> list[Effect]:
        over = {(one.id, one.fence) for one in errands_of(run, "end", worker)}
        return [
            one
            for one in errands_of(run, "start", worker)
            if (one.id, one.fence) not in over
            and now() - one.at < 0.5
            and number_of(one.token) % 10 in (7, 8, 9)
            and number_of(one.token) % 3 != 0
        ]

    await until(looks, bool, what=f"a long errand in {worker.pid}")


async def someone_says(workers: Collection[WorkerProcess], pattern: str) -> None:
    """Wait until one of *workers* has written something."""
    await until(lambda: [line for worker in workers for line in worker.lines(pattern)], bool, what=pattern)


def test_the_version_before_is_a_commit_whose_schema_is_older(previous: Path) -> None:
    """Its migrations are the first of ours, to the byte, and not all of them."""
    theirs, ours = migrations_of(previous), migrations_of(REPOSITORY)

    assert len(ZipFile(ARCHIVE).comment) == 40
    assert 0 < len(theirs) < len(ours)
    assert theirs == {version: ours[version] for version in theirs}


async def test_workers_and_producers_of_the_version_before_go_on_while_ours_migrates(
    run: FaultRun, previous: Path, conn: Conn, jobs: Jobs
) -> None:
    """F88, F91: they wait behind the migration's lock, and then all jobs are done at once or tried again as ever."""
    workers = await run.start_workers(code=previous)
    async with producing(run, previous), connected(run.dsn) as reader:
        early = await enqueued(conn, "fail")
        await run.producer.commits(30)

        async with reader.transaction():
            await reader.execute("lock table jobq.job, jobq.done, jobq.dead_letter in access share mode")
            migrating = asyncio.create_task(called(run, "migrate"))
            await eventually(
                lambda: jobs.backends("wait_event_type = 'Lock'"),
                lambda waiting: "jobq migrate" in waiting and len(set(waiting)) > 1,
            )
        said = await migrating
        late = await enqueued(conn, "fail")
        await run.producer.commits(30)
    await run.recovers()

    assert [line[:12] for line in said.splitlines()] == [
        f"applied {version:04d}" for version in range(schema_of(previous) + 1, OURS + 1)
    ]
    assert (await run.account()).reasons == Counter()
    for id_ in (early, late):
        dead = await jobs.get(id_)
        assert (dead.state, dead.attempt, len(dead.errors)) == (State.DEAD, 2, 2)
    assert [worker.lines(TROUBLE) for worker in workers] == [[], []]
    assert [await worker.stop() for worker in workers] == [0, 0]


@pytest.mark.timeout(120)
async def test_a_rolling_deploy_from_the_version_before_loses_nothing_and_says_why_anything_ran_twice(
    run: FaultRun, previous: Path
) -> None:
    """F91, N4: both versions run what the other enqueues, hands back and dies over, until the older one is gone."""
    run.producer.every_s, run.producer.step_s = 0.15, 0.3
    drained, killed = await run.start_workers(code=previous)
    async with run.producer.producing():
        async with producing(run, previous):
            await called(run, "migrate")
            (ours,) = await run.start_workers(1)
            await has_run_both(run, drained, killed, ours)

            # A deploy without grace: what the old one hands back, the others run.
            await is_busy(run, drained)
            drained.send(signal.SIGTERM)
            await drained.says("stopping: no more claims")
            assert await drained.stop() == 3

            # The new one dies, and the last old one takes its jobs.
            await is_busy(run, ours)
            ours.send(signal.SIGKILL)
            await killed.says("errand .* was taken back")

            # The deploy is taken back, and begun again; the old one dies, and either takes its jobs.
            returned, another = *await run.start_workers(1, code=previous), *await run.start_workers(1)
            await is_busy(run, killed)
            killed.send(signal.SIGKILL)
            await someone_says((returned, another), "errand .* was taken back")
            await has_run_both(run, returned, another)
            assert await returned.stop() in (0, 3)
        await run.producer.commits(20)
    await run.recovers()

    async with connected(run.dsn) as conn:
        account = await draw_up(conn, producer=run.producer, ledger=run.ledger, workers=run.fleet.all)
    told = told_by_logs(run, account.offenders, (drained, killed, returned))
    assert [one for one in account.offenders if one not in told] == []
    assert account.reasons.total() + len(told) >= 3
    assert returned.lines(f"is at version {OURS}, newer than this code's {schema_of(previous)}: upgrade jobq soon")
    assert [worker.lines("crashed|not available|cannot be stored") for worker in run.fleet.all] == [[]] * 5
    assert await another.stop() == 0


async def test_what_is_newer_than_the_schema_names_the_command_and_changes_nothing(
    run: FaultRun, previous: Path, conn: Conn, jobs: Jobs
) -> None:
    """F91: a worker that is deployed before the migration ends with 78, commands too; afterwards they work."""
    id_ = await enqueued(conn, "nap", seconds=0.0)
    before = await catalogue(conn, "jobq")
    needed = f"schema 'jobq' is at version {schema_of(previous)}, this code needs {OURS}: run `jobq migrate`"

    worker = await run.fleet.launch()
    assert await worker.ends() == 78
    assert worker.lines(needed)
    for words in (["stats"], ["jobs"], ["dead", "list"], ["dead", "redrive", "--all"], ["migrate", "--check"]):
        assert needed in await called(run, *words, expected=78)

    assert await catalogue(conn, "jobq") == before
    job = await conn.fetchrow("select attempt, fence, worker_id from jobq.job where id = $1", id_)
    assert job is not None
    assert tuple(job) == (0, 0, None)
    assert await jobs.run("select count(*) from @schema@.worker") == 0
    await called(run, "migrate")
    await run.fleet.start()
    await jobs.become(id_, State.DONE)


async def test_the_commands_of_the_version_before_work_on_the_newer_schema_and_say_so(
    run: FaultRun, previous: Path, conn: Conn, jobs: Jobs
) -> None:
    """F91: whoever looks and redrives has not upgraded yet either."""
    await called(run, "migrate")
    await run.fleet.start()
    id_ = await enqueued(conn, "fail")
    await jobs.become(id_, State.DEAD)
    newer = f"is at version {OURS}, newer than this code's {schema_of(previous)}: upgrade jobq soon"

    said = {
        words: await called(run, *words, code=previous)
        for words in [
            ("stats",),
            ("jobs",),
            ("dead", "list"),
            ("dead", "show", str(id_)),
            ("migrate", "--check"),
            ("enqueue", "nap", '{"seconds": 0.0}'),
            ("dead", "redrive", str(id_)),
        ]
    }
    await jobs.all_become(State.DONE, 2)
    said["jobs", str(id_)] = await called(run, "jobs", str(id_), code=previous)

    assert [words for words, text in said.items() if newer not in text] == []
    assert "not yet" in said["dead", "show", str(id_)]
    assert "1 redriven" in said["dead", "redrive", str(id_)]
    assert "done" in said["jobs", str(id_)]
    assert "nothing to do" in await called(run, "migrate", code=previous)


async def test_the_rights_that_the_version_before_gave_last_until_ours_are_given(
    run: FaultRun, previous: Path, conn: Conn, jobs: Jobs
) -> None:
    """F91: in the order migrate, roles, deploy nobody is left without; in another one, nothing is changed."""
    (of_theirs, theirs), (of_ours, ours) = [
        await run.fleet.command("roles", "--prefix", ROLES, code=code) for code in (previous, REPOSITORY)
    ]
    assert (of_theirs, of_ours) == (0, 0)

    async def works(*workers: WorkerProcess) -> None:
        async with conn.transaction():
            await conn.execute(f"set local role {ROLES}producer")
            added = [await enqueued(conn, "nap", seconds=0.0) for _ in range(20)]
        await eventually(
            lambda: jobs.run("select count(*) from @schema@.done where id = any($1)", added),
            lambda done: done == len(added),
        )
        assert [worker.lines(TROUBLE) for worker in workers] == [[]] * len(workers)

    await conn.execute(theirs)
    old = await run.fleet.start(dsn=f"{run.dsn}&role={ROLES}worker", code=previous)
    await works(old)
    with pytest.raises(asyncpg.RaiseError, match=f"is at version {schema_of(previous)}, .* for version {OURS}"):
        await conn.execute(ours)
    await conn.execute("rollback")
    await works(old)
    code, said = await run.fleet.command("migrate", "--dsn", f"{run.dsn}&role={ROLES}owner")
    assert code == 0, said
    await works(old)
    await conn.execute(ours)
    await works(old)
    new = await run.fleet.start(dsn=f"{run.dsn}&role={ROLES}worker")
    await works(old, new)
    assert await old.stop() == 0
    await works(new)

    assert await granted(conn, "jobq", ROLES) == {**RIGHTS, "effects": {}}
    assert await new.stop() == 0
