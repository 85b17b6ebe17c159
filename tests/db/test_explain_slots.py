"""A job that waits for a slot: said where it is known of each of its workers, and where each holds enough."""

from __future__ import annotations

from typing import Any

import pytest

from jobq.core.worker import Slots
from tests.db.explained import holds, numbers, ready_for, serve, why
from tests.db.plans import HELD, MODES, READY, STALE, WORKER, buffers
from tests.db.plans import run as run_statement
from tests.db.rows import KIND, LEASE_S, QUEUE, Rows, new_worker

OLDER_BEAT = """
insert into @schema@.worker as w (worker_id, lease_until, started_at, pid, host, version, queues, kinds)
values ($1, clock_timestamp() + $2::float8 * interval '1 second', clock_timestamp(), 7, 'web-1', '0', $3, $4)
on conflict (worker_id) do update
set lease_until = excluded.lease_until
"""
"""As the schemas 2 and 3 had it: it does not name the slots."""


def slots(count: int, *kinds: str, queue: str = QUEUE) -> tuple[Slots, ...]:
    """Slots of one class of executor, that jobs of KIND share with those of *kinds*."""
    return (Slots([KIND, *kinds], {queue: count}),)


async def hold(rows: Rows, count: int, **stated: Any) -> None:
    """Let the worker *worker_id* hold that many jobs."""
    for _ in range(count):
        await rows.running(**stated)


async def test_workers_that_hold_as_many_jobs_as_they_have_slots_are_the_reason(rows: Rows) -> None:
    """Of all kinds that share the slots; what is claimed ahead is held, and not said to run."""
    one = await serve(rows, QUEUE, kinds=(KIND, "resize"), slots=slots(2, "resize"))
    other = await serve(rows, QUEUE, slots=slots(1))
    await serve(rows, QUEUE, kinds=("other",))
    await serve(rows, QUEUE, slots=slots(5), lease_s=-1.0)
    await hold(rows, 2, worker_id=one)
    await hold(rows, 1, worker_id=one, kind="resize")
    await hold(rows, 1, worker_id=other)
    await rows.run("update @schema@.job set claimed_at = claimed_at - interval '12 min 5 s'")
    job_id = await ready_for(rows, "5 min")
    for _ in range(3):
        await ready_for(rows, "6 min")

    found = await why(rows, job_id)

    assert holds(
        found,
        "slots",
        rf"send_receipt {job_id} has been ready for 5 min in queue mail: its 2 live workers hold 4 jobs for the 3 slots"
        r" that it could take, the oldest for 12 min 5 s; 3 ready jobs are before it\.",
    )
    said = numbers(found)
    assert (said["slots"], said["held"], said["running"], said["ahead"]) == (3, 4, 4, 3)


async def test_a_worker_that_may_have_a_slot_free_is_no_reason(rows: Rows) -> None:
    """What another has claimed ahead does not take it."""
    busy = await serve(rows, QUEUE, slots=slots(1))
    free = await serve(rows, QUEUE, slots=slots(2))
    await hold(rows, 3, worker_id=busy)
    await hold(rows, 1, worker_id=free)
    job_id = await ready_for(rows, "5 min")

    found = await why(rows, job_id)

    assert holds(
        found,
        "next",
        rf"send_receipt {job_id} has been ready for 5 min in queue mail: 0 ready jobs are before it, and 4 run in its"
        r" 2 live workers, the oldest for \d s\.",
    )
    assert numbers(found).keys().isdisjoint({"slots", "held"})


async def test_jobs_of_other_kinds_and_queues_take_other_slots(rows: Rows) -> None:
    """`async def` and `def` handlers have slots apart, and each queue its own."""
    rooms = (Slots([KIND], {QUEUE: 1, "other": 1}), Slots(["resize"], {QUEUE: 1, "other": 1}))
    worker_id = await serve(rows, QUEUE, "other", kinds=(KIND, "resize"), slots=rooms)
    await hold(rows, 2, worker_id=worker_id, kind="resize")
    await hold(rows, 2, worker_id=worker_id, queue="other")
    job_id = await ready_for(rows, "5 min")

    before = await why(rows, job_id)
    await hold(rows, 1, worker_id=worker_id)
    after = await why(rows, job_id)

    assert (before.reason, numbers(before)["running"]) == ("next", 2)
    assert after.reason == "slots"
    assert ": its 1 live worker holds 1 job for the 1 slot that it could take, the oldest for " in after.sentence


@pytest.mark.parametrize("known", [True, False])
async def test_a_worker_of_an_older_version_does_not_tell(rows: Rows, known: bool) -> None:
    """Then nobody knows whether it has a slot free, and the sentence says no word of slots."""
    taken, older = await serve(rows, QUEUE, slots=slots(1)), new_worker()
    for _ in range(2):
        await rows.run(OLDER_BEAT, older, LEASE_S, [QUEUE], [KIND if not known else "other"])
    await hold(rows, 1, worker_id=taken)
    await hold(rows, 1, worker_id=older)
    job_id = await ready_for(rows, "5 min")

    found = await why(rows, job_id)

    assert found.reason == ("slots" if known else "next")
    assert ("slot" in found.sentence) == known


async def test_a_suspect_that_waits_for_a_slot_is_still_a_suspect(rows: Rows) -> None:
    """The sentence goes on with what is on record of its crashes."""
    await hold(rows, 1, worker_id=await serve(rows, QUEUE, slots=slots(1)))
    job_id = await ready_for(rows, "5 min")
    await rows.run("update @schema@.job set crashes = 4 where id = $1", job_id)

    found = await why(rows, job_id)

    assert found.reason == "slots"
    assert found.sentence.endswith(
        "; 0 ready jobs are before it; 4 workers have died while it ran, so if the max_crashes of its kind is 5 or less"
        " it runs alone."
    )


@pytest.mark.parametrize("mode", MODES)
async def test_what_workers_hold_costs_no_scan(rows: Rows, mode: str) -> None:
    """With stale statistics, 100,000 ready and 1,000 held: a probe of the index for each worker."""
    await serve(rows, QUEUE, worker_id=WORKER, slots=slots(1_000))
    await rows.run(";".join([STALE, READY, HELD]))
    first = await rows.value("select min(id) from @schema@.job where priority = 0 and worker_id is null")

    plan = await run_statement(rows.conn, rows.store.schema, mode, "explain_job", str(first))

    assert (await why(rows, first)).reason == "slots"
    assert buffers(plan) < 2_000
