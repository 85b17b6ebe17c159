"""Single connections of a worker that are lost (field reports A and B)."""

from __future__ import annotations

import pytest

from tests.faults.conftest import Add
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger, now
from tests.faults.proxy import Proxy
from tests.faults.run import FaultRun
from tests.worker.observe import Jobs, eventually

ROLES = ("claims", "settling", "listener", "heartbeat", "upkeep")


@pytest.mark.parametrize("role", ROLES)
async def test_a_backend_that_is_terminated_ten_times_under_load_costs_nothing(
    fleet: Fleet, run: FaultRun, ledger: Ledger, jobs: Jobs, add: Add, role: str
) -> None:
    """F02, F07: each connection is replaced as often as it is lost; every job runs once, but for a lost claim's."""
    worker = await fleet.start("--concurrency", "5", beat_s=0.3)
    ids: list[int] = []
    # Not while it is made: one that fails before it has worked is tried again after ever longer pauses.
    works = f"application_name = 'jobq {role}' and query <> '' and query not like 'show %'"

    for _ in range(10):
        ids += await add("nap", 20, seconds=0.05)
        await ledger.until("start", len(ids) - 10)
        await eventually(lambda: jobs.backends(works))
        await jobs.terminate(f"jobq {role}")
        await run.recovers()

    assert [ledger.starts(one) for one in ids] == [1] * 200
    assert {effect.attempt for effect in ledger.effects("start")} == {1}
    assert worker.lines("lost its lease|taken back|crashed") == []
    assert await worker.stop() == 0


async def test_a_wake_up_is_heard_after_each_loss_of_the_listener(
    fleet: Fleet, run: FaultRun, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F07: with a poll of ten seconds, ten terminations of the listener: each time the next job starts in two."""
    await fleet.start(poll_s=10.0)

    for count in range(1, 11):
        await eventually(lambda: jobs.terminate("jobq listener"))
        await eventually(lambda: jobs.backends("application_name = 'jobq listener' and state = 'idle'"))
        await eventually(jobs.asleep)
        added_at = now()
        (job_id,) = await add("nap", seconds=0.0)
        (effect,) = await ledger.until("start", of=job_id)

        assert effect.at - added_at < 2.0, f"round {count}"
        await run.recovers()


async def test_a_job_is_found_by_the_poll_while_the_listener_is_deaf(
    fleet: Fleet, run: FaultRun, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F08: notifications are an optimisation: without one a job starts within the poll and a second."""
    await fleet.start(dsn=proxy.dsn, poll_s=2.0)
    await eventually(jobs.asleep)

    proxy.black_hole("jobq listener")
    added_at = now()
    await add("nap", seconds=0.0)
    (effect,) = await ledger.until("start")

    assert effect.at - added_at < 2.0 * 1.1 + 1.0
    await run.recovers()


async def test_a_listener_that_was_dropped_without_a_word_is_replaced_and_hears_again(
    fleet: Fleet, run: FaultRun, proxy: Proxy, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F06: asked every 10 s, it has 5 s to answer; then it listens anew and wakes the claims, long before the poll."""
    worker = await fleet.start(dsn=proxy.dsn, poll_s=30.0)
    await eventually(jobs.asleep)

    proxy.deafen("jobq listener")
    deaf_at = now()
    await add("nap", seconds=0.0)
    (effect,) = await ledger.until("start")

    assert effect.at - deaf_at < 10.0 + 5.0 + 1.5
    await worker.says("listener: the database is back")
    await eventually(jobs.asleep)
    again_at = now()
    (job_id,) = await add("nap", seconds=0.0)
    (effect,) = await ledger.until("start", of=job_id)
    assert effect.at - again_at < 2.0
    await run.recovers()
