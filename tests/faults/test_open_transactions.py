"""Workers that are frozen while a transaction of theirs is open, or that could have one (field report F94)."""

from __future__ import annotations

import signal

import pytest

from jobq.core.states import State
from tests.faults.conftest import Add
from tests.faults.fleet import LIMIT_S, SHORT_LEASE, Fleet
from tests.faults.ledger import Ledger
from tests.worker.observe import Jobs, eventually, within

HOLDS_ROWS = "backend_xid is not null"
"""Whoever writes or locks a row has a transaction id."""

IN_STATEMENT = "state = 'active' and query like '%pg_sleep%'"


@pytest.mark.parametrize("in_statement", [False, True], ids=["silent", "in a statement"])
async def test_the_transaction_of_a_job_whose_worker_is_frozen_ends_with_the_time_of_the_job(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add, in_statement: bool
) -> None:
    """F94: a write of somebody else to its row goes through, so does an attempt elsewhere; the first writes nothing."""
    await jobs.run("insert into @schema@.effects (job_id) values (0)")
    frozen = await fleet.start(**SHORT_LEASE)
    (job_id,) = await add("hold", seconds=600.0, in_statement=in_statement)
    await ledger.until("locked")
    if in_statement:
        await eventually(lambda: jobs.backends(IN_STATEMENT))
    frozen.send(signal.SIGSTOP)
    other = await fleet.start(**SHORT_LEASE)

    assert await within(LIMIT_S, jobs.run("update @schema@.effects set job_id = 0 returning true"))
    await ledger.until("end", of=job_id)
    await jobs.become(job_id, State.DONE)
    frozen.send(signal.SIGCONT)
    await frozen.says("lost its lease at attempt 1: nothing was written")

    first, last = ledger.effects("locked", of=job_id)
    assert (first.pid, last.pid) == (frozen.pid, other.pid)
    assert await jobs.run("select array_agg(fence) from @schema@.effects") == [last.fence]
    assert await frozen.stop() == 0


@pytest.mark.leaves_jobs
async def test_a_worker_that_is_frozen_at_any_moment_keeps_no_row_locked(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F94: twenty jobs that sleep and others that come and go; what a statement has locked it lets go at its end."""
    worker = await fleet.start(upkeep_s=0.05, tally_s=0.05, worker_lease_s=12.0, job_lease_s=60.0)
    naps = await add("nap", 20, seconds=30.0)
    await ledger.until("start", len(naps))

    for moment in range(20):
        await add("nap", 20, seconds=0.0)
        await ledger.until("start", len(naps) + 20 * moment + 1)
        worker.send(signal.SIGSTOP)
        await eventually(lambda: jobs.backends(HOLDS_ROWS), lambda found: found == [])
        worker.send(signal.SIGCONT)

    assert worker.lines("crashed|lost its lease") == []
