"""A worker starts when the database and its schema are there, or says what to do; a stop ends the wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jobq import ConfigurationError, DatabaseUnavailableError, Queue, SchemaError
from jobq.core.states import State
from jobq.db import migrate
from jobq.settings import WorkerSettings
from jobq.telemetry.events import DatabaseAway, DatabaseBack, SchemaNewer, WorkerStarted
from jobq.worker.supervisor import ExitCode, Worker
from tests.worker.conftest import QUICK, Working
from tests.worker.observe import Events, Jobs, Running, within


def worker_of(queue: Queue, seen: Events, **settings: float) -> Worker:
    """Make a worker of one kind."""

    @queue.task("work")
    async def work() -> None: ...

    return Worker(queue, WorkerSettings(**QUICK | settings), emit=seen.emit)


async def test_a_missing_schema_is_told_with_the_command(dsn: str, seen: Events) -> None:
    """No jobq in the schema: `jobq migrate`, and the schema's name if it is not the default."""
    worker = worker_of(Queue(dsn, schema="not there"), seen)

    with pytest.raises(SchemaError, match="run `jobq migrate --schema 'not there'` once"):
        await within(5, worker.run())

    assert seen.all == []


async def test_an_older_schema_is_told_with_the_command(
    queue: Queue, seen: Events, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F91: the message says both versions and what to run; nothing is claimed."""
    monkeypatch.setattr(migrate, "newest_version", lambda: 99)
    worker = worker_of(queue, seen)
    job = await queue.enqueue("work", {})

    with pytest.raises(SchemaError, match=r"is at version \d+, this code needs 99: run `jobq migrate"):
        await within(5, worker.run())

    assert (await jobs.get(job.id)).fence == 0
    assert seen.all == []


async def test_a_newer_schema_is_worked_with(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """F91: schemas go first in a roll-out: the worker warns and works."""

    @queue.task("work")
    async def work() -> None: ...

    await jobs.run("insert into @schema@.migration (version, name) values (99, 'later')")
    await queue.enqueue(work.bind())
    async with working():
        await jobs.all_become(State.DONE, 1)

    assert "is at version 99, newer than this code's" in seen.of(SchemaNewer)[0].warning


async def test_a_stop_ends_the_wait_for_the_database(tmp_path: Path, seen: Events) -> None:
    """While the database is away a worker tries on, said once, and a stop ends it at once with exit code 0."""
    worker = worker_of(Queue(f"postgresql://jobq@/jobq?host={tmp_path}"), seen, start_limit_s=60)
    running = Running(worker, asyncio.create_task(worker.run()))

    away = await seen(DatabaseAway)
    exit_code = await running.stop(1)

    assert exit_code is ExitCode.DRAINED
    assert seen.all == [away]
    assert away.loop == "start"


async def test_a_worker_gives_up_after_the_start_limit(tmp_path: Path, seen: Events) -> None:
    """The error says what is not there."""
    worker = worker_of(Queue(f"postgresql://jobq@/jobq?host={tmp_path}"), seen, start_limit_s=0.1)

    with pytest.raises(DatabaseUnavailableError, match=r"not available: .*No such file"):
        await within(5, worker.run())


@pytest.mark.parametrize("option", ["sslmode=perhaps", "target_session_attrs=fast"])
async def test_a_dsn_that_no_driver_takes_is_a_mistake_not_an_outage(tmp_path: Path, seen: Events, option: str) -> None:
    """Waiting does not help, so it is told at once."""
    worker = worker_of(Queue(f"postgresql://jobq@/jobq?host={tmp_path}&{option}"), seen, start_limit_s=60)

    with pytest.raises(ConfigurationError, match=option.partition("=")[0]):
        await within(2, worker.run())


async def test_a_database_that_comes_late_is_waited_for(
    dsn: str, schema: str, seen: Events, jobs: Jobs, tmp_path: Path
) -> None:
    """A worker that was started before its database begins as soon as that is there."""
    sockets = Path(dsn.partition("host=")[2].partition("&")[0])
    late = Queue(dsn.replace(str(sockets), str(tmp_path)), schema=schema)
    worker = worker_of(late, seen)
    running = Running(worker, asyncio.create_task(worker.run()))
    job = await jobs.run("select id from @schema@.enqueue('work')")

    await seen(DatabaseAway)
    for socket in sockets.glob(".s.PGSQL.*"):
        (tmp_path / socket.name).symlink_to(socket)
    await seen(WorkerStarted)
    await jobs.become(job, State.DONE)
    await running.stop()

    assert [event.loop for event in seen.of(DatabaseBack)] == ["start"]


def test_a_worker_without_handlers_is_refused() -> None:
    """F03: it would look alive and do nothing."""
    with pytest.raises(ConfigurationError, match="no handler is registered"):
        Worker(Queue("postgresql://nowhere"))
