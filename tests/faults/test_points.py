"""Faults between two steps of a worker, and bugs in its loops, at named points (field reports A, D and F)."""

from __future__ import annotations

import signal

import pytest

from jobq.core.states import State
from jobq.worker.faults import Point
from tests.faults.conftest import Add
from tests.faults.fleet import SHORT_LEASE, Fleet
from tests.faults.ledger import Ledger
from tests.faults.run import FaultRun
from tests.worker.observe import Jobs

FOR_EVER = 10**9

LOOPS = (Point.CLAIM, Point.BEFORE_SETTLE, Point.BEAT, Point.LISTEN, Point.REAP)


async def test_a_loop_that_crashes_once_is_restarted_and_costs_no_run(
    fleet: Fleet, run: FaultRun, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F03: each loop in turn meets a bug; it is logged with its traceback, the loop runs again, the jobs run once."""
    for point in LOOPS:
        fleet.arm(point, "raise")
    worker = await fleet.start()
    ids = await add("nap", 5, seconds=0.1)

    await worker.says("crashed, restarting it: ", len(LOOPS))
    await run.recovers()

    assert [ledger.starts(one) for one in ids] == [1] * 5
    assert (await jobs.run("select sum(attempt) from @schema@.done")) == 5
    assert await worker.stop() == 0


@pytest.mark.parametrize("point", [Point.CLAIM, Point.BEAT, Point.REAP])
async def test_a_loop_that_crashes_again_and_again_ends_the_process_with_1(fleet: Fleet, point: Point) -> None:
    """F03, F05: what cannot be restarted takes the process down, and the code says crash."""
    fleet.arm(point, "raise", times=FOR_EVER)
    worker = await fleet.launch(beat_s=0.3, worker_lease_s=3.0)

    code = await worker.ends()

    assert code == 1, worker.log
    assert worker.lines("crashed, stopping the worker: ")


async def test_a_claim_loop_that_crashes_after_its_commit_hands_the_jobs_back(
    fleet: Fleet, run: FaultRun, ledger: Ledger, add: Add
) -> None:
    """F17: claimed and not started, in a process that lives: they start soon, and no attempt is counted."""
    ids = await add("nap", 3, seconds=0.1)
    fleet.arm(Point.AFTER_CLAIM_COMMIT, "raise")
    await fleet.start(job_lease_s=60.0)

    await ledger.until("end", 3, limit_s=5.0)
    await run.recovers()

    assert [ledger.starts(one) for one in ids] == [1] * 3
    assert {effect.attempt for effect in ledger.effects("start")} == {1}


@pytest.mark.leaves_jobs
async def test_a_stop_between_claim_and_start_hands_the_jobs_back(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F17: SIGTERM after the commit of a claim: nothing of it starts, and each attempt is returned."""
    ids = await add("nap", 3, seconds=0.1)
    fleet.arm(Point.AFTER_CLAIM_COMMIT, "pause")
    worker = await fleet.launch()
    await worker.says("at after claim commit: pause")

    code = await worker.stop()

    assert code == 0
    assert ledger.effects() == []
    for one in ids:
        now = await jobs.get(one)
        assert (now.state, now.attempt, now.errors) == (State.WAITING, 0, [])


async def test_a_worker_that_dies_between_claim_and_start_has_run_nothing(
    fleet: Fleet, run: FaultRun, ledger: Ledger, add: Add
) -> None:
    """F17: the jobs come back by the lease and start once, at their second attempt."""
    ids = await add("nap", 3, seconds=0.1)
    fleet.arm(Point.AFTER_CLAIM_COMMIT, "kill")
    assert await (await fleet.launch(**SHORT_LEASE)).ends() == -signal.SIGKILL
    fleet.disarm()

    await fleet.start(**SHORT_LEASE)
    await run.recovers()

    assert [ledger.starts(one) for one in ids] == [1] * 3
    assert {effect.attempt for effect in ledger.effects("start")} == {2}


async def test_a_worker_that_dies_before_it_settles_leaves_the_job_to_a_second_run(
    fleet: Fleet, run: FaultRun, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F13: at least once is the promise: the handler ended and nobody knew, so it runs again, and is done once."""
    (job_id,) = await add("nap", seconds=0.1)
    fleet.arm(Point.BEFORE_SETTLE, "kill")
    assert await (await fleet.launch(**SHORT_LEASE)).ends() == -signal.SIGKILL
    fleet.disarm()

    await fleet.start(**SHORT_LEASE)
    await run.recovers()

    assert (await jobs.become(job_id, State.DONE)).attempt == 2
    assert [effect.what for effect in ledger.effects(of=job_id)] == ["start", "end"] * 2
