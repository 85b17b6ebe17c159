"""The loop that enqueues ticks: any number of workers, each entry by itself, and nothing where there is none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from jobq import Job, JobqError, Queue
from jobq.core.states import State
from jobq.telemetry.events import DatabaseAway
from jobq.telemetry.recurring import (
    RecurringCaughtUp,
    RecurringChanged,
    RecurringFailed,
    RecurringMissed,
    RecurringSkipped,
)
from tests.worker.conftest import Working
from tests.worker.faults import Faults
from tests.worker.observe import Events, Jobs, eventually, until_true

if TYPE_CHECKING:
    from tests.conftest import Conn

LOOK_S = 0.02
TEN_HOURS = timedelta(hours=10)
NEW_YEAR = "0 0 1 1 *"
FRESH = "select declared_at > now() - interval '1 min' from @schema@.recurring"


async def absent(jobs: Jobs, name: str, delay: timedelta) -> None:
    """Let no worker have been there for so long."""
    await jobs.run("delete from @schema@.job where worker_id is null and headers ->> 'recurring' = $1", name)
    await jobs.run(
        """
        update @schema@.recurring
        set decided_until = clock_timestamp() - $2::interval, look_at = now(), revision = revision + 1
        where name = $1
        """,
        name,
        delay,
    )


async def looked_at(jobs: Jobs, name: str) -> None:
    """Wait until a worker has decided about the entry since it was changed."""
    text = "select next_tick is not null and look_at > now() from @schema@.recurring where name = $1"
    await eventually(lambda: jobs.run(text, name))


async def ticks(jobs: Jobs, name: str) -> list[Any]:
    """The ticks of an entry whose jobs wait, run or were done at one time, in their order."""
    return list(
        await jobs.run("select array(select tick from @schema@.enqueued where name = $1 order by tick, id)", name)
    )


@pytest.fixture
async def noted(jobs: Jobs) -> None:
    """Note each tick that is ever enqueued, in a table beside jobq's."""
    await jobs.script(
        """
        create table @schema@.enqueued (id bigint, name text, tick timestamptz, run_at timestamptz);
        create function @schema@.note() returns trigger language plpgsql as $note$
        begin
            insert into @schema@.enqueued
            values (new.id, new.headers ->> 'recurring', (new.headers ->> 'tick')::timestamptz, new.run_at);
            return new;
        end
        $note$;
        create trigger note after insert on @schema@.job for each row execute function @schema@.note();
        """
    )


@pytest.fixture
async def tidy(queue: Queue) -> list[datetime | None]:
    """A kind that does nothing but note its tick."""
    ran: list[datetime | None] = []

    @queue.task(kind="tidy", on_duplicate="harmless")
    async def tidy(job: Job) -> None:
        ran.append(job.tick)

    return ran


@pytest.fixture
async def ordinary(conn: Conn, jobs: Jobs, dsn: str) -> AsyncIterator[str]:
    """The DSN of a role that may do everything with jobq's objects, but nothing with the recurring entries."""
    role = f"ordinary_{os.getpid()}"
    await conn.execute(f"create role {role} login")
    await jobs.script(
        f"""
        grant usage on schema @schema@ to {role};
        grant all on all tables in schema @schema@ to {role};
        grant all on all sequences in schema @schema@ to {role};
        revoke all on @schema@.recurring from {role};
        """
    )
    parts = urlsplit(dsn)
    yield parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
    await conn.execute(f"drop owned by {role}; drop role {role}")


async def test_f49_what_the_code_declares_is_there_and_fires_nothing_of_the_past(
    queue: Queue, working: Working, seen: Events, jobs: Jobs
) -> None:
    """F49: a new entry fires nothing at first sight, and is told once, however many workers declare it."""

    @queue.recurring("0 0 29 2 *", tz="Europe/Berlin", name="leap", payload={"year": 4}, queue="mail", priority=2)
    @queue.task(kind="celebrate")
    async def celebrate(year: int) -> None: ...

    async with working(recurring_s=LOOK_S):
        await looked_at(jobs, "leap")
        async with working(recurring_s=LOOK_S):
            (entry,) = await queue.recurring.list()
            await queue.recurring.pause("leap", why="for the moment")

    assert (entry.expression, entry.zone) == ("0 0 29 2 *", "Europe/Berlin")
    assert (entry.kind, entry.queue) == ("celebrate", "mail")
    assert (entry.state, entry.last_tick, entry.missed) == ("well", None, 0)
    assert seen.of(RecurringChanged) == [RecurringChanged(["leap"])]
    assert await jobs.run("select count(*) from @schema@.job") == 0
    async with working(recurring_s=LOOK_S):
        assert [one.state for one in await queue.recurring.list()] == ["paused"]


async def test_a_start_after_a_long_stop_confirms_what_the_code_declares(
    queue: Queue, tidy: list[datetime | None], working: Working, jobs: Jobs
) -> None:
    """F49: at once, so that an entry of this release is not taken for one of an older one."""
    queue.recurring(NEW_YEAR)(queue.handlers["tidy"])
    async with working(recurring_s=LOOK_S):
        await looked_at(jobs, "tidy")
    await jobs.run("update @schema@.recurring set declared_at = now() - interval '1 hour'")

    async with working(recurring_s=LOOK_S):
        await eventually(lambda: jobs.run(FRESH))
        await jobs.run("update @schema@.recurring set declared_at = now() - interval '6 min', look_at = now()")
        await looked_at(jobs, "tidy")
        assert not await jobs.run(FRESH), "it is said again in five minutes, and not at each look"


@pytest.mark.usefixtures("noted")
async def test_f51_workers_that_look_at_once_enqueue_each_tick_once(
    queue: Queue, tidy: list[datetime | None], working: Working, seen: Events, jobs: Jobs
) -> None:
    """F49, F50, F51: ten hours without a worker, and then eight at once: one job, and it knows its tick."""
    names = [f"tidy-{n}" for n in range(20)]
    job = queue.handlers["tidy"].bind()
    for name in names:
        await queue.recurring.add(name, "* * * * *", job)
        await absent(jobs, name, TEN_HOURS)
    async with AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(working(recurring_s=LOOK_S))
        for name in names:
            await looked_at(jobs, name)
        told = await seen(RecurringCaughtUp, nth=20)
        await eventually(jobs.count, lambda count: count[State.DONE] >= 20)

    of_each = [await ticks(jobs, name) for name in names]
    assert all(len(one) == len(set(one)) for one in of_each)
    # The one that was owed, and the one that lies ahead; a third where a minute has begun meanwhile.
    assert {len(one) for one in of_each} <= {2, 3}
    assert sorted(event.name for event in seen.of(RecurringCaughtUp)) == sorted(names)
    assert told.covered in (598, 599, 600)
    assert told.tick in tidy
    assert seen.of(RecurringMissed) == []


@pytest.mark.usefixtures("noted", "tidy")
async def test_f50_all_that_is_owed_up_to_a_cap(queue: Queue, working: Working, seen: Events, jobs: Jobs) -> None:
    """F50: five of six hundred, and an alarm for the others."""
    job = queue.handlers["tidy"].bind()
    await queue.recurring.add("tidy", "* * * * *", job, catch_up="all", catch_up_cap=5)
    await absent(jobs, "tidy", TEN_HOURS)
    async with working(recurring_s=LOOK_S):
        missed = await seen(RecurringMissed)
        found = await ticks(jobs, "tidy")

    # Five that were owed, and the one that lies ahead; another where a minute has begun meanwhile.
    assert len(found) in (6, 7)
    assert missed.missed in (594, 595, 596)
    assert missed.tick == found[0] - timedelta(minutes=1)


@pytest.mark.usefixtures("noted", "tidy")
async def test_a_tick_that_is_too_late_is_an_alarm_and_no_run(
    queue: Queue, working: Working, seen: Events, jobs: Jobs
) -> None:
    """Should have run and did not: an event, a state, and what the entry counts."""
    job = queue.handlers["tidy"].bind()
    eight = (await jobs.run("select now()") - timedelta(hours=4)).hour
    await queue.recurring.add("tidy", f"30 {eight} * * *", job)
    await absent(jobs, "tidy", timedelta(days=1))
    async with working(recurring_s=LOOK_S):
        missed = await seen(RecurringMissed)
        (entry,) = await queue.recurring.list()

    assert (missed.name, missed.missed, missed.tick.minute) == ("tidy", 1, 30)
    assert (entry.state, entry.missed, entry.should_have_run_at) == ("missed", 1, missed.tick)
    assert await ticks(jobs, "tidy") == []


@pytest.mark.usefixtures("noted", "tidy")
async def test_f53_one_bad_entry_never_stops_the_others(
    queue: Queue, working: Working, seen: Events, jobs: Jobs
) -> None:
    """F53: what cannot be read, what cannot be enqueued and what is well; each fails alone, and comes back."""

    @queue.task(kind="doomed", on_duplicate="harmless")
    async def doomed() -> None: ...

    await Faults(jobs).refuse("job", "new.kind = 'doomed'")
    for name, kind, expression in (
        ("unreadable", "tidy", "0 0 30 2 *"),
        ("refused", "doomed", "* * * * *"),
        ("well", "tidy", "* * * * *"),
    ):
        await jobs.run(
            "insert into @schema@.recurring (name, kind, expression) values ($1, $2, $3)", name, kind, expression
        )
    await absent(jobs, "refused", timedelta(minutes=5))
    async with working(recurring_s=LOOK_S):
        await looked_at(jobs, "well")
        failed = {(await seen(RecurringFailed, nth=nth)).name: seen.of(RecurringFailed)[nth - 1] for nth in (1, 2)}
        states = {one.name: one.state for one in await queue.recurring.list()}
        assert await ticks(jobs, "well") != []
        assert await ticks(jobs, "refused") == []

        await jobs.script("drop trigger refuse on @schema@.job")
        await jobs.run("update @schema@.recurring set look_at = now() where name = 'refused'")
        caught_up = await seen(RecurringCaughtUp)

    assert states == {"unreadable": "faulty", "refused": "faulty", "well": "well"}
    assert failed["unreadable"].tick is None
    assert "30 February" in failed["unreadable"].error
    assert failed["refused"].tick is not None
    assert failed["refused"].error.endswith("refused")
    assert caught_up.name == "refused"
    assert caught_up.tick in await ticks(jobs, "refused")


async def test_f53_an_entry_that_cannot_be_declared_holds_up_no_other(
    queue: Queue, tidy: list[datetime | None], working: Working, seen: Events, jobs: Jobs
) -> None:
    """F53: it is said, once, and tried again; the others of the same code are there."""
    await Faults(jobs).refuse("recurring", "new.name = 'bad'")
    queue.recurring(NEW_YEAR, name="bad")(queue.handlers["tidy"])
    queue.recurring(NEW_YEAR, name="good")(queue.handlers["tidy"])

    async with working(recurring_s=LOOK_S):
        failed = await seen(RecurringFailed)
        await looked_at(jobs, "good")
        await jobs.script("drop trigger refuse on @schema@.recurring")
        await eventually(queue.recurring.list, lambda entries: [one.name for one in entries] == ["bad", "good"])

    assert (failed.name, failed.tick) == ("bad", None)
    assert len(seen.of(RecurringFailed)) == 1


@pytest.mark.usefixtures("noted", "tidy")
async def test_f53_an_outage_ends_no_loop(queue: Queue, working: Working, seen: Events, jobs: Jobs) -> None:
    """F53: its connection is cut again and again at a tick, which runs when that is over."""
    job = queue.handlers["tidy"].bind()
    await queue.recurring.add("tidy", NEW_YEAR, job)
    async with working(recurring_s=LOOK_S):
        await looked_at(jobs, "tidy")
        await jobs.script(
            """
            create function @schema@.cut() returns trigger language plpgsql as $cut$
            begin
                perform pg_terminate_backend(pg_backend_pid());
                return new;
            end
            $cut$;
            create trigger cut before update on @schema@.recurring
                for each row when (current_setting('application_name') = 'jobq upkeep') execute function @schema@.cut();
            """
        )
        await queue.recurring.add("tidy", "* * * * *", job)
        await absent(jobs, "tidy", timedelta(minutes=5))
        await until_true(lambda: [event for event in seen.of(DatabaseAway) if event.loop == "recurring"])
        assert await ticks(jobs, "tidy") == []
        await jobs.script("drop trigger cut on @schema@.recurring")
        await seen(RecurringCaughtUp)

    assert len(await ticks(jobs, "tidy")) in (2, 3)


@pytest.mark.usefixtures("noted")
async def test_a_run_is_left_out_while_the_one_before_is_unfinished(
    queue: Queue, working: Working, seen: Events, jobs: Jobs
) -> None:
    """Skipped, and said; the next that meets no run is enqueued."""
    release = asyncio.Event()

    @queue.task(kind="long", on_duplicate="harmless")
    async def long() -> None:
        await release.wait()

    await queue.recurring.add("long", "* * * * *", long.bind(), overlap="skip")
    async with working(recurring_s=LOOK_S):
        first = await queue.recurring.run("long")
        await jobs.become(first, State.RUNNING)
        with pytest.raises(JobqError, match=f"does not overlap, and job {first} of it is unfinished"):
            await queue.recurring.run("long")
        await absent(jobs, "long", timedelta(minutes=1))
        skipped = await seen(RecurringSkipped)
        release.set()
        await jobs.become(first, State.DONE)
        await absent(jobs, "long", timedelta(minutes=1))
        await eventually(lambda: ticks(jobs, "long"), lambda found: len(found) == 2)

    assert (skipped.name, skipped.skipped) == ("long", 1)


@pytest.mark.usefixtures("noted")
async def test_a_run_that_waits_for_the_one_before_starts_at_its_end(
    queue: Queue, working: Working, jobs: Jobs
) -> None:
    """One waits, as the entry's row; nothing of it is enqueued before."""
    release = asyncio.Event()

    @queue.task(kind="long", on_duplicate="harmless")
    async def long() -> None:
        await release.wait()

    await queue.recurring.add("long", "* * * * *", long.bind(), overlap="queue")
    async with working(recurring_s=LOOK_S):
        first = await queue.recurring.run("long")
        await jobs.become(first, State.RUNNING)
        await absent(jobs, "long", timedelta(minutes=1))
        await eventually(queue.recurring.list, lambda entries: [one.state for one in entries] == ["held"])
        before = await ticks(jobs, "long")
        release.set()
        found = await eventually(lambda: ticks(jobs, "long"), lambda found: len(found) == 2)

    assert len(before) == 1
    assert len(found) == 2


@pytest.mark.parametrize("is_declared", [True, False])
async def test_what_the_role_may_not_see_ends_no_worker(
    queue: Queue,
    tidy: list[datetime | None],
    working: Working,
    seen: Events,
    jobs: Jobs,
    ordinary: str,
    is_declared: bool,
) -> None:
    """After an upgrade whose roles were not granted anew, a worker runs its jobs, and says what is not in order.

    It is not ready only if its code declares what it may not see.
    """
    queue.use_dsn(ordinary)
    if is_declared:
        queue.recurring("@daily")(queue.handlers["tidy"])
    async with working(recurring_s=LOOK_S):
        await seen(RecurringFailed)
        await queue.enqueue("tidy")
        await jobs.all_become(State.DONE, 1)
        if is_declared:
            await seen(DatabaseAway)

    assert tidy == [None]
    assert seen.has(DatabaseAway) is is_declared
