"""Hooks are told of dead letters and backlogs: once an incident by all workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from jobq import BacklogAlert, DeadAlert, Permanent, Queue
from jobq.core.alert import CALLS_A_MINUTE
from jobq.core.job import JobId
from jobq.core.states import State
from jobq.db.incidents import Incidents
from jobq.db.roles import roles_sql
from jobq.telemetry.events import AlertsHalted, AlertTold
from jobq.worker import lookout
from tests.db.rows import Rows
from tests.worker.alerting import OFTEN, add_kinds, hurry_hooks, looks_pass, quiet_is_over
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs, eventually

if TYPE_CHECKING:
    from tests.conftest import Conn


@pytest.fixture(autouse=True)
def handlers(queue: Queue) -> None:
    """The kind `fail` dies at once, `work` is done."""
    add_kinds(queue)


@pytest.fixture
def told(queue: Queue) -> list[DeadAlert]:
    """What the queue's hook was told of dead letters."""
    told: list[DeadAlert] = []

    @queue.on_dead
    async def tell(alert: DeadAlert) -> None:
        told.append(alert)

    return told


# -- dead letters ------------------------------------------------------------------------------------


async def test_two_workers_tell_of_a_thousand_dead_letters_once(
    queue: Queue, told: list[DeadAlert], jobs: Jobs, working: Working, seen: Events
) -> None:
    """While they die, and in the looks of both that follow."""
    async with working(**OFTEN), working(**OFTEN):
        await queue.enqueue_many([queue.job("fail") for _ in range(1000)])
        await jobs.all_become(State.DEAD, 1000)
        await looks_pass(jobs, 5)

    (alert,) = told
    assert (alert.kind, alert.queue, alert.reason) == ("fail", "default", "permanent failure")
    assert (alert.error_type, alert.error_message) == ("jobq.errors.Permanent", "no such")
    assert 1 <= alert.letters <= 1000
    assert alert.since <= alert.last_at
    assert (await jobs.get(alert.job_id)).state is State.DEAD
    assert alert.also == ()
    assert [(one.what, one.subjects) for one in seen.of(AlertTold)] == [("dead", ["fail"])]
    assert await jobs.run("select (facts ->> 'letters')::int from @schema@.incident") == 1000


async def test_it_is_told_again_after_quiet(
    queue: Queue, told: list[DeadAlert], jobs: Jobs, working: Working, seen: Events
) -> None:
    """A letter within the quiet period belongs to what was told, one after it begins an incident."""
    hurry_hooks(queue)

    async with working(**OFTEN):
        await queue.enqueue("fail")
        await seen(AlertTold)
        await quiet_is_over(jobs)
        again = await queue.enqueue("fail")
        await seen(AlertTold, nth=2)

    assert [alert.letters for alert in told] == [1, 1]
    assert told[1].job_id == again.id


async def test_whatever_road_leads_to_death_is_told(
    rows: Rows, told: list[DeadAlert], working: Working, seen: Events
) -> None:
    """Of a kind for which no worker here has a handler, settled by nobody that runs any more."""
    async with working(**OFTEN):
        await rows.dead(kind="elsewhere", reason="crashed its workers")
        await seen(AlertTold)

    assert [(alert.kind, alert.reason) for alert in told] == [("elsewhere", "crashed its workers")]


async def test_what_a_kind_redacts_is_covered_in_its_alert(
    queue: Queue, told: list[DeadAlert], working: Working, seen: Events
) -> None:
    """An alert goes to a chat room; nothing of the payload does."""

    @queue.task("charge", redact=("card_number",), on_duplicate="harmless")
    async def charge(card_number: str) -> None:
        raise Permanent(f"card {card_number} at postgresql://shop:hunter2@db was refused")

    async with working(**OFTEN):
        await queue.enqueue(charge.bind(card_number="4000111122223333"))
        await seen(AlertTold)

    assert told[0].error_message == "card *** at postgresql://shop:***@db was refused"


async def test_fifty_kinds_that_die_at_once_are_five_calls(
    rows: Rows, told: list[DeadAlert], queue: Queue, working: Working, seen: Events, jobs: Jobs
) -> None:
    """Four by themselves, and one for all the rest, which it names."""
    kinds = {f"kind-{n}" for n in range(50)}
    await Incidents(queue.schema).watch_dead(rows.conn, queue.hooks[0].name)
    for kind in kinds:
        await rows.dead(kind=kind)

    async with working(**OFTEN):
        await seen(AlertTold, nth=CALLS_A_MINUTE)
        await rows.dead(kind="one more")
        await looks_pass(jobs)

    assert sorted(len(alert.also) for alert in told) == [0, 0, 0, 0, 45]
    assert {kind for alert in told for kind in (alert.kind, *alert.also)} == kinds
    assert await rows.value("select array(select subject from @schema@.incident where told_at is null)") == ["one more"]


# -- backlogs ----------------------------------------------------------------------------------------


@pytest.fixture
def behind(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[BacklogAlert]:
    """What the queue's hook was told of backlogs. Workers look as often as they should, however long that takes."""
    monkeypatch.setattr(lookout, "MOST_OF_THE_TIME", 1.0)
    behind: list[BacklogAlert] = []

    @queue.on_backlog(age=60.0)
    async def tell(alert: BacklogAlert) -> None:
        behind.append(alert)

    hurry_hooks(queue)

    return behind


async def add_unserved(queue: Queue, rows: Rows) -> JobId:
    """Add a job that has been ready for an hour to a queue that nobody serves."""
    job = await queue.enqueue("work", queue="nobodys", conn=rows.conn, autocommit=True)
    await rows.run("update @schema@.job set run_at = now() - interval '1 hour' where id = $1", job.id)
    return job.id


async def test_a_backlog_is_told_once_by_two_workers_and_again_after_it_went_away(
    queue: Queue, behind: list[BacklogAlert], rows: Rows, jobs: Jobs, working: Working, seen: Events
) -> None:
    """Also of a queue that no worker serves: that one will never catch up."""
    async with working(**OFTEN), working(**OFTEN):
        done = await queue.enqueue("work")
        await jobs.become(done.id, State.DONE)
        async with rows.conn.transaction():
            for _ in range(3):
                await add_unserved(queue, rows)
        await seen(AlertTold)
        for _ in range(5):
            at = await jobs.run("select seen_at from @schema@.incident")
            await eventually(lambda: jobs.run("select seen_at from @schema@.incident"), at.__ne__)
        once = list(behind)
        await rows.run("delete from @schema@.job")
        await quiet_is_over(jobs)
        await add_unserved(queue, rows)
        await seen(AlertTold, nth=2)

    (first,) = once
    assert (first.queue, first.ready, first.workers, first.also) == ("nobodys", 3, 0, ())
    assert 3600.0 <= first.oldest_ready_s < 3660.0
    assert [(alert.queue, alert.ready) for alert in behind] == [("nobodys", 3), ("nobodys", 1)]
    assert behind[1].since > first.last_at
    assert {one.what for one in seen.of(AlertTold)} == {"backlog"}


async def test_a_hook_may_be_about_one_queue(queue: Queue, rows: Rows, working: Working, seen: Events) -> None:
    """The others are somebody else's."""
    behind: list[str] = []

    @queue.on_backlog(age=60.0, queue="mail")
    async def tell(alert: BacklogAlert) -> None:
        behind.append(alert.queue)

    await queue.enqueue("work", queue="nobodys")
    await queue.enqueue("work", queue="mail")
    await rows.run("update @schema@.job set run_at = now() - interval '1 hour'")

    async with working(**OFTEN):
        await seen(AlertTold)

    assert behind == ["mail"]


# -- cost and rights ---------------------------------------------------------------------------------


def loops() -> set[str]:
    """The names of the loops that look at the whole queue."""
    names = {task.get_name() for task in asyncio.all_tasks()}
    return {name for name in names if name.startswith(("jobq alerts", "jobq lookout"))}


async def test_without_a_hook_nothing_is_looked_at(queue: Queue, working: Working) -> None:
    """No loop, no statement; and dead letters alone need no reading of the queues."""

    async with working(**OFTEN):
        none = loops()

    @queue.on_dead
    async def tell(alert: DeadAlert) -> None: ...

    async with working(**OFTEN):
        one = loops()

    assert none == set()
    assert one == {f"jobq alerts of {__name__}.{tell.__qualname__} (dead)"}


@pytest.fixture
async def worker_dsn(conn: Conn, dsn: str, schema: str) -> AsyncIterator[str]:
    """The DSN of somebody who has the rights of a worker and no others."""
    prefix = "alerts_"
    await conn.execute(roles_sql(schema, prefix=prefix))
    yield f"{dsn}&role={prefix}worker"
    for role in await conn.fetch("select rolname from pg_roles where starts_with(rolname, $1)", prefix):
        await conn.execute(f"drop owned by {role['rolname']} cascade; drop role {role['rolname']}")


async def test_the_role_of_a_worker_is_enough(
    queue: Queue,
    told: list[DeadAlert],
    worker_dsn: str,
    rows: Rows,
    behind: list[BacklogAlert],
    working: Working,
    seen: Events,
) -> None:
    """For both kinds of hook."""
    queue.use_dsn(worker_dsn)

    async with working(**OFTEN):
        await rows.dead(kind="fail")
        await add_unserved(queue, rows)
        await seen(AlertTold, nth=2)

    assert (len(told), len(behind)) == (1, 1)
    assert not seen.has(AlertsHalted)
