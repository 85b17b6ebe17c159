"""What became of attempts is counted by kind, each one once, and forgotten after a day."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from jobq import Job, Permanent, Queue, Snooze
from jobq.core.histogram import percentile_ms, upper_bound_ms
from jobq.core.states import State
from jobq.db.overview import Overview
from jobq.telemetry.events import DatabaseAway, LeaseLost
from jobq.worker import pulse
from tests.db.rows import Rows
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import Events, Jobs, eventually

SUMS = """
select coalesce(json_object_agg(s.kind, json_build_array(s.rows, s.done, s.retried, s.dead, s.durations)), '{}')::text
from (
    select k.kind, count(distinct k.ctid) as rows, sum(k.done) filter (where n = 1) as done,
        sum(k.retried) filter (where n = 1) as retried, sum(k.dead) filter (where n = 1) as dead,
        coalesce(sum(d.count), 0) as durations
    from @schema@.kind_stat k
    left join lateral unnest(k.counts) with ordinality as d (count, n) on true
    group by k.kind
) s
"""


class Sum(NamedTuple):
    """What all rows of a kind say together."""

    rows: int
    done: int
    retried: int
    dead: int
    durations: int


async def sums(jobs: Jobs) -> Mapping[str, Sum]:
    found: dict[str, list[Any]] = json.loads(await jobs.run(SUMS))
    return {kind: Sum(*values) for kind, values in found.items()}


async def test_what_died_before_its_handler_was_called_has_no_duration(
    schema: str, rows: Rows, queue: Queue, jobs: Jobs, working: Working
) -> None:
    """It is counted as dead; 0 ms would be somebody's percentile."""

    @queue.task("work")
    async def work(order_id: int) -> None: ...

    await rows.waiting(kind="work", queue="default", payload='{"order_id": "not a number"}')
    async with working():
        await jobs.all_become(State.DEAD, 1)

    [kind] = (await Overview(schema).look(rows.conn)).kinds
    assert (kind.dead, kind.p50_ms) == (1, None)


async def test_each_attempt_is_counted_once_at_the_latest_at_the_end(
    queue: Queue, jobs: Jobs, working: Working
) -> None:
    """By what became of it: done, tried again, dead; with its duration."""

    @queue.task("work", max_attempts=3, backoff=AT_ONCE)
    async def work(job: Job, how: str) -> None:
        if how == "fail" or (how == "twice" and job.attempt < 2):
            raise OSError
        if how == "die":
            raise Permanent

    await queue.enqueue_many([work.bind(how) for how in ("", "", "", "twice", "fail", "die")])
    async with working():
        await jobs.until({State.DONE: 4, State.DEAD: 2})

    # Done: three, and one after a retry. Retried: once, and twice before the third attempt dies.
    assert await sums(jobs) == {"work": Sum(1, 4, 3, 2, 9)}


async def test_durations_are_those_of_the_handler(queue: Queue, jobs: Jobs, working: Working) -> None:
    """In milliseconds, by bucket."""
    gate = asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        await gate.wait()

    job = await queue.enqueue(work.bind())
    async with working():
        await jobs.become(job.id, State.RUNNING)
        asyncio.get_running_loop().call_later(0.1, gate.set)
        await jobs.become(job.id, State.DONE)

    buckets = await jobs.run("select buckets from @schema@.kind_stat")
    run_ms = await jobs.run("select run_ms from @schema@.done")
    assert len(buckets) == 1
    assert upper_bound_ms(buckets[0] - 1) < run_ms <= upper_bound_ms(buckets[0])
    assert percentile_ms({buckets[0]: 1}, 0.5) == upper_bound_ms(buckets[0])


async def test_counts_are_written_once_a_period(queue: Queue, jobs: Jobs, working: Working) -> None:
    """While the worker runs, so that `jobq stats` shows what it does."""

    @queue.task("work")
    async def work() -> None: ...

    async with working(tally_s=0.02):
        await queue.enqueue(work.bind())
        await eventually(lambda: sums(jobs), lambda found: found == {"work": Sum(1, 1, 0, 0, 1)})
        await queue.enqueue(work.bind())
        await eventually(lambda: sums(jobs), lambda found: found == {"work": Sum(2, 2, 0, 0, 2)})


async def test_a_lost_lease_is_not_counted(queue: Queue, seen: Events, jobs: Jobs, working: Working) -> None:
    """Nothing became of it here."""
    started, finish = asyncio.Event(), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    job = await queue.enqueue(work.bind())
    async with working():
        await started.wait()
        await jobs.steal(job.id, into="elsewhere")
        finish.set()
        await seen(LeaseLost)

    assert await sums(jobs) == {}


async def test_what_only_waits_leaves_no_row(queue: Queue, jobs: Jobs, working: Working) -> None:
    """A kind whose jobs are snoozed or handed back has nothing to tell, and appends nothing."""

    @queue.task("wait")
    async def wait() -> Snooze:
        return Snooze(3600)

    job = await queue.enqueue(wait.bind())
    async with working():
        await jobs.waits_longer(job.id, 60)

    assert await jobs.run("select count(*) from @schema@.kind_stat") == 0


async def test_counts_that_cannot_be_written_are_kept(
    queue: Queue, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are added to what comes meanwhile, and written when the database takes them (once each)."""
    monkeypatch.setattr(pulse, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(pulse, "LONGEST_PAUSE_S", 0.02)
    await jobs.script(
        """
        create function @schema@.refuse() returns trigger language plpgsql as $refuse$
        begin
            raise exception 'injected' using errcode = 'read_only_sql_transaction';
        end
        $refuse$;
        create trigger refuse before insert on @schema@.kind_stat for each row execute function @schema@.refuse();
        """
    )

    @queue.task("work")
    async def work() -> None: ...

    async with working(tally_s=0.02):
        await queue.enqueue(work.bind())
        away = await seen(DatabaseAway)
        await queue.enqueue(work.bind())
        await jobs.all_become(State.DONE, 2)
        await jobs.script("drop trigger refuse on @schema@.kind_stat")
        await eventually(lambda: sums(jobs), lambda found: found and found["work"].done == 2)

    assert away.loop == "tally"
    assert (await sums(jobs))["work"][1:] == (2, 0, 0, 2)


async def test_counts_older_than_a_day_are_forgotten(queue: Queue, jobs: Jobs, working: Working) -> None:
    """F75: by any worker's upkeep."""

    @queue.task("work")
    async def work() -> None: ...

    await jobs.run(
        "insert into @schema@.kind_stat (at, worker_id, done, retried, dead, queue, kind, buckets, counts)"
        " select now() - n * interval '10 hours', gen_random_uuid(), 1, 0, 0, 'q', 'k', '{1}', '{1}'"
        " from generate_series(0, 9) n"
    )
    async with working(upkeep_s=0.01):
        left = await eventually(lambda: jobs.run("select count(*) from @schema@.kind_stat"), lambda count: count < 10)

    assert left == 3
