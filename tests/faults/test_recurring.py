"""Ticks of recurring entries while workers die, freeze and crash: each is enqueued once."""

from __future__ import annotations

import signal

from jobq.worker.faults import Point
from tests.faults.account import name_of
from tests.faults.fleet import SHORT_LEASE, Fleet
from tests.faults.ledger import Ledger
from tests.faults.producer import Fate
from tests.faults.run import FaultRun
from tests.worker.observe import Jobs, eventually

ENTRIES = 60
OWED = 3

SOME = """
    create table @schema@.enqueued (id bigint, name text, tick timestamptz);
    create function @schema@.note() returns trigger language plpgsql as $note$
    begin
        insert into @schema@.enqueued
        values (new.id, new.headers ->> 'recurring', (new.headers ->> 'tick')::timestamptz);
        return new;
    end
    $note$;
    create trigger note after insert on @schema@.job for each row execute function @schema@.note();
    insert into @schema@.recurring (name, expression, kind, payload, catch_up, catch_up_cap)
    select 'nap-' || n, '* * * * *', 'nap', '{{"seconds": 0}}', 'all', {owed} from generate_series(1, {entries}) n;
    update @schema@.recurring set decided_until = now() - interval '10 hours';
"""
"""Entries of each minute, and ten hours without a worker; each tick that is enqueued is noted, and stays so."""


async def all_enqueued(jobs: Jobs) -> None:
    """Wait until each entry is moved on, and remove all of them: what lies ahead is withdrawn."""
    await eventually(
        lambda: jobs.run("select count(*) from @schema@.recurring where next_tick is null"), lambda left: left == 0
    )
    await jobs.run("delete from @schema@.recurring")


async def account_for(jobs: Jobs, run: FaultRun) -> list[int]:
    """Note what the entries have enqueued, as if a producer had; but not what was withdrawn. Returns the ids."""
    await run.recovers()
    ids: list[int] = await jobs.run("select array(select id from @schema@.done order by id)")
    for job_id in ids:
        run.producer.note(name_of("nap", job_id), Fate.COMMITTED)
    return ids


async def test_f51_workers_that_die_freeze_and_crash_at_a_tick_lose_none_and_double_none(
    fleet: Fleet, run: FaultRun, ledger: Ledger, jobs: Jobs
) -> None:
    """F51: between the decision and its write one is killed, one frozen, one meets a bug; three others go on."""
    await jobs.script(SOME.format(owed=OWED, entries=ENTRIES))
    fleet.arm(Point.BEFORE_FIRE, "kill")
    killed = await fleet.launch(**SHORT_LEASE)
    await killed.says("at before fire: kill")
    fleet.arm(Point.BEFORE_FIRE, "pause")
    frozen = await fleet.launch(**SHORT_LEASE)
    await frozen.says("at before fire: pause")
    frozen.send(signal.SIGSTOP)
    fleet.arm(Point.BEFORE_FIRE, "raise", times=2)
    buggy = await fleet.launch(**SHORT_LEASE)
    await buggy.says("recurring crashed, restarting it: LookupError")
    fleet.disarm()
    for _ in range(3):
        await fleet.launch(**SHORT_LEASE)

    await all_enqueued(jobs)
    frozen.send(signal.SIGCONT)
    await frozen.says(" started: queues ")
    ids = await account_for(jobs, run)

    counts = await jobs.run("select array(select count(*) from @schema@.enqueued group by name)")
    doubles = await jobs.run("select array(select name from @schema@.enqueued group by name, tick having count(*) > 1)")
    # Those that were owed and the one that lies ahead; another where a minute has begun meanwhile.
    assert len(counts) == ENTRIES
    assert set(counts) <= {OWED + 1, OWED + 2}
    assert doubles == []
    assert len(ids) >= ENTRIES * OWED
    assert {ledger.starts(job_id) for job_id in ids} == {1}
    assert await killed.ends() == -signal.SIGKILL
