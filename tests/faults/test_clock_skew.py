"""Workers whose wall clocks are wrong: only the database's clock says when a lease lapses and a job is due."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from jobq.core.states import State
from jobq.db.statements import load_statements
from tests.faults.conftest import Add
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn

HOUR_S = 3600.0
JOB_LEASE_S = 4.0
"""Longer than the workers' leases."""


async def test_workers_whose_clocks_are_an_hour_off_take_nothing_from_each_other(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F36: an hour ahead, an hour behind and right: jobs longer than all leases start once, in each of the three."""
    workers = [
        await fleet.start("--concurrency", "2", clock_ahead_s=off_s, job_lease_s=JOB_LEASE_S)
        for off_s in (HOUR_S, -HOUR_S, 0.0)
    ]
    assert [bool(worker.lines(r"off by -?3600 s")) for worker in workers] == [True, True, False]

    ids = await add("nap", 6, seconds=JOB_LEASE_S + 2.0)
    await ledger.until("start", 6)
    kept_for_s = await jobs.run(
        """
        select array(
            select extract(epoch from w.lease_until - clock_timestamp())::float8 from @schema@.worker w
            union all
            select extract(epoch from j.lease_until - clock_timestamp())::float8 from @schema@.job j
        )
        """
    )
    await ledger.until("end", 6)
    await jobs.all_become(State.DONE, 6)

    assert len(kept_for_s) == 3 + 6
    assert all(-60.0 < seconds <= JOB_LEASE_S for seconds in kept_for_s), kept_for_s
    assert [ledger.starts(one) for one in ids] == [1] * 6
    assert {effect.pid for effect in ledger.effects("start")} == {worker.pid for worker in workers}
    assert {effect.attempt for effect in ledger.effects()} == {1}
    assert [worker.lines("lost its lease|taken back|has lapsed") for worker in workers] == [[], [], []]


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
async def test_a_delay_counts_from_the_databases_now_whoever_states_it(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add, off_s: float
) -> None:
    """F36: what a skewed worker enqueues for later, and a snooze of its own, start when they should, and not before."""
    # Each time at which a job begins to wait or to run, by the database's clock; `now()` is the transaction's start.
    await jobs.script(
        """
        create table @schema@.moves (
            kind text, waits boolean, run_at timestamptz, claimed_at timestamptz, at timestamptz
        );
        create function @schema@.note_move() returns trigger language plpgsql as $note$
        begin
            insert into @schema@.moves values (new.kind, new.worker_id is null, new.run_at, new.claimed_at, now());
            return new;
        end
        $note$;
        create trigger note_move before insert or update on @schema@.job
            for each row execute function @schema@.note_move();
        """
    )
    worker = await fleet.start(clock_ahead_s=off_s)
    assert worker.lines(f"off by {off_s:g} s")

    await add("postpone", seconds=3.0)
    await ledger.until("end", kind="nap")
    await ledger.until("start", 2, kind="postpone")
    await jobs.all_become(State.DONE, 2)

    delays_s = await jobs.run(
        """
        select array(
            select extract(epoch from m.run_at - m.at)::float8 from @schema@.moves m
            where m.waits and m.run_at - m.at > interval '1 s'
        )
        """
    )
    assert len(delays_s) == 2
    assert all(3.0 <= seconds < 3.0 + 20.0 for seconds in delays_s), delays_s
    assert await jobs.run("select count(*) from @schema@.moves m where not m.waits") == 3
    assert await jobs.run("select count(*) from @schema@.moves m where not m.waits and m.claimed_at < m.run_at") == 0


async def test_no_statement_of_a_worker_takes_a_time_from_its_clock(conn: Conn, schema: str) -> None:
    """F36: parameters are durations, to which the server adds its own now; the server itself says of which types.

    A user may state when a job is due, as text; pages of keys, marks of claims and ticks hand back what was read, or
    what a calendar makes of it.
    """
    takes_a_time, casts_to_a_time = set(), set()
    for name, text in load_statements(schema).items():
        code = re.sub(r"--.*", "", text)
        if re.match(r"\s*(create|do|set|show)\b", code):
            continue  # takes no parameters
        parameters = (await conn.prepare(text)).get_parameters()
        if any(parameter.name.removesuffix("[]") in ("timestamptz", "timestamp", "date") for parameter in parameters):
            takes_a_time.add(name)
        if re.search(r"(?<!null)::\s*(timestamp|date\b)|to_timestamp", code):
            casts_to_a_time.add(name)

    assert takes_a_time == {"lock_lapsed_keys", "claim_jobs", "find_passed", "fire_recurring"}
    assert casts_to_a_time == {
        "enqueue_job",
        "enqueue_keyed",
        "insert_jobs",
        "claim_jobs",
        "find_passed",
        "fire_recurring",
    }
