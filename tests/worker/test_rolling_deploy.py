"""While a release is rolled out, workers of both releases run side by side, and the schema moves on under them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from jobq import Queue
from jobq.core.states import State
from jobq.db import migrate
from jobq.db.migrate import Migration
from jobq.telemetry.events import DatabaseAway, JobDied, JobRetried, LoopCrashed
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs

if TYPE_CHECKING:
    from asyncpg import Connection, Record

NEXT = """
    alter table @schema@.job add column note text;
    alter table @schema@.done add column note text;
    create index job_note on @schema@.job (note) where note is not null;
    create table @schema@.note (id bigint primary key, note text not null);
"""
"""As migrations are: what an older worker does not know, it does not have to."""


@pytest.fixture
async def newer(dsn: str, schema: str, queue: Queue) -> AsyncIterator[Queue]:
    """The queue of the next release's workers."""
    async with Queue(dsn, schema=schema) as newer:
        yield newer


async def test_workers_go_on_while_the_schema_is_migrated(
    queue: Queue,
    seen: Events,
    jobs: Jobs,
    working: Working,
    conn: Connection[Record],
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F90: every job that runs before, meanwhile and after is done in its first attempt."""
    enqueued = 0
    migrated = asyncio.Event()

    @queue.task("work")
    async def work() -> None: ...

    async def feed() -> None:
        nonlocal enqueued
        rounds_after = 0
        while rounds_after < 20:
            enqueued += len(await queue.enqueue_many([work.bind()] * 5))
            rounds_after += migrated.is_set()
            await asyncio.sleep(0.01)

    async with working(), asyncio.TaskGroup() as group:
        group.create_task(feed())
        await jobs.run("select 1")
        version = migrate.newest_version() + 1
        known = migrate.migrations()
        monkeypatch.setattr(migrate, "migrations", lambda: (*known, Migration(version, "next", NEXT)))
        done = await migrate.migrate(conn, schema)
        migrated.set()
    async with working(until_empty=True):
        await jobs.all_become(State.DONE, enqueued)

    assert [one.version for one in done] == [version]
    assert not seen.has(JobRetried, JobDied, LoopCrashed, DatabaseAway)
    assert await jobs.run("select count(*) from @schema@.done where attempt <> 1") == 0


async def test_what_an_old_worker_does_not_know_waits_for_a_new_one(
    queue: Queue, newer: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F65: a kind of the next release costs the old worker nothing and loses no attempt, whoever comes first."""
    ran: list[str] = []

    @queue.task("known")
    async def old_known() -> None:
        ran.append("known")

    @newer.task("known")
    async def new_known() -> None:
        ran.append("known")

    @newer.task("new")
    async def new() -> None:
        ran.append("new")

    strange = await newer.enqueue_many([new.bind()] * 20)
    async with working():
        last = await queue.enqueue(old_known.bind())
        await jobs.become(last.id, State.DONE)
        waiting = [await jobs.get(one.id) for one in strange]
        async with working(newer):
            await jobs.all_become(State.DONE, 21)

    assert {(one.state, one.attempt) for one in waiting} == {(State.WAITING, 0)}
    assert sorted(ran) == ["known"] + ["new"] * 20
    assert not seen.has(JobRetried, JobDied)


async def test_jobs_of_both_signatures_end_where_they_should(
    queue: Queue, newer: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F66: a field more is ignored, one with a default may lack; what cannot fit is a dead letter at once."""
    ran: list[tuple[int, str]] = []

    @queue.task("mail")
    async def mail(order_id: int, subject: str) -> None: ...

    @newer.task("mail")
    async def new_mail(order_id: int, language: str = "en") -> None:
        ran.append((order_id, language))

    old = await queue.enqueue(mail.bind(1, subject="hello"))
    short, unfit = [
        await jobs.run("select id from @schema@.enqueue('mail', jsonb_build_object('order_id', $1::jsonb))", order_id)
        for order_id in ("2", '"three"')
    ]
    async with working(newer):
        await jobs.become(old.id, State.DONE)
        await jobs.become(short, State.DONE)
        died = await seen(JobDied)

    assert sorted(ran) == [(1, "en"), (2, "en")]
    assert (died.id, died.reason, died.attempt) == (unfit, "payload does not fit the handler", 0)
