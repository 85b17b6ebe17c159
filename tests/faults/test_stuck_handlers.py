"""Handlers that will not be cancelled hold no slots, and handlers that wait hold no transactions."""

from __future__ import annotations

import re
import time

import pytest

from jobq.core.states import State
from tests.faults.conftest import Add
from tests.faults.fleet import Fleet
from tests.faults.ledger import Ledger
from tests.worker.observe import Jobs


async def test_four_handlers_that_swallow_their_cancellation_do_not_keep_a_fifth_job_from_starting(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F35: all four slots are free again after the time-out of a second and the cancel grace, and the rows say why."""
    worker = await fleet.start("--concurrency", "4", "--cancel-grace", "0.5")
    ids = await add("hang", 4)
    await ledger.until("start", 4)

    (fifth,) = await add("nap", seconds=0.0)
    await ledger.until("end", of=fifth)
    await jobs.until({State.DEAD: 4, State.DONE: 1})

    assert len(worker.lines("hang [0-9]+ ignores its cancellation")) == 4, worker.log
    assert {effect.id for effect in ledger.effects("cancelled")} == set(ids)
    assert ledger.effects("end", kind="hang") == []
    errors = [(await jobs.get(one)).errors for one in ids]
    assert [[(error["type"], error["message"]) for error in of_one] for of_one in errors] == [
        [("TimeoutError", "timed out after 1 s")]
    ] * 4
    assert await jobs.run("select array_agg(distinct reason) from @schema@.dead_letter") == ["attempts used up"]


@pytest.mark.leaves_jobs
async def test_handlers_that_hang_are_named_with_the_line_at_which_they_stand(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F35: each of them, as soon as that is far above what is usual, and the slots that they all hold."""
    await jobs.run(
        "insert into @schema@.kind_stat (at, worker_id, done, retried, dead, queue, kind, buckets, counts)"
        " select now(), gen_random_uuid(), 100, 0, 0, 'default', 'nap', '{1}', '{100}'"
    )
    worker = await fleet.start("--concurrency", "4", slots_stuck_s=1.0)
    ids = await add("nap", 4, seconds=300.0)
    await ledger.until("start", 4)

    (stuck,) = await worker.says("and nothing finished")
    slow = await worker.says("has run for", 4, limit_s=60.0)

    where = r"/tests/faults/app\.py:[0-9]+ in nap"
    assert re.search(rf"all slots of queue default \(4 async\).*(nap [0-9]+ at .*{where}(, )?){{3}}$", stuck)
    named = [
        re.search(rf"nap ([0-9]+) has run for 1[0-9.]+ s .* take up to 1 ms\) and stands at .*{where}$", line)
        for line in slow
    ]
    assert {int(match[1]) for match in named if match} == set(ids)


async def test_no_transaction_stays_open_while_handlers_wait(
    fleet: Fleet, ledger: Ledger, jobs: Jobs, add: Add
) -> None:
    """F94: twenty jobs sleep: in none of many looks a connection of jobq has idled in a transaction for 100 ms."""
    await fleet.start("--concurrency", "21")
    await jobs.become((await add("nap", seconds=0.0))[0], State.DONE)
    await add("nap", 20, seconds=2.5)
    await ledger.until("start", 21)

    idle: list[str] = []
    looks = 0
    stop_at = time.monotonic() + 2.0
    while time.monotonic() < stop_at:
        idle += await jobs.backends(
            "state like 'idle in transaction%' and clock_timestamp() - state_change > interval '100 ms'"
        )
        looks += 1
    connected = await jobs.backends()
    await jobs.all_become(State.DONE, 21)

    assert idle == []
    assert looks > 10
    assert {"jobq claims", "jobq settling", "jobq heartbeat", "jobq listener"} <= set(connected)
