"""What a job waits for after an attempt: told from what is on record of it, and no more than is on record."""

from __future__ import annotations

import msgspec
import pytest

from jobq.core.failure import Failure
from jobq.core.outcomes import DRAINED, LEASE_LAPSED
from tests.db.explained import MOMENT, holds, serve, why
from tests.db.rows import QUEUE, Attempt, Rows, error_json, settle


async def release(rows: Rows, attempt: Attempt, *, delay_s: float = 90.0, record: Failure | None = None) -> None:
    """Hand a job back, as a snooze does without a record and a drain with one."""
    records = [msgspec.json.encode(record).decode() if record else None]
    await rows.store.settle_released(rows.conn, attempt.worker_id, [attempt], [delay_s], records)


async def test_a_job_that_failed_says_which_attempt_and_with_what(rows: Rows) -> None:
    """And when the next one comes."""
    attempt = await rows.running(max_attempts=5)
    await rows.store.settle_retry(rows.conn, attempt.worker_id, [attempt], [90.0], [error_json("no answer")])

    found = await why(rows, attempt.id)

    assert holds(
        found,
        "retry",
        rf"send_receipt {attempt.id} waits until {MOMENT} \(in 1 min 2\d s\): attempt 1 of 5 failed \d s ago with"
        r" TimeoutError: no answer\.",
    )


async def test_a_job_whose_worker_was_lost_says_so(rows: Rows) -> None:
    """That is no failure of its attempt; how many such crashes there were counts."""
    worker_id = await serve(rows, QUEUE, lease_s=-5.0)
    attempt = await rows.running(worker_id)
    await rows.store.reap_worker(rows.conn, worker_id, pause_s=0.0, limit=10)
    await rows.run("update @schema@.job set run_at = clock_timestamp() + interval '90 s'")

    found = await why(rows, attempt.id)

    assert holds(
        found,
        "crash",
        rf"send_receipt {attempt.id} waits until {MOMENT} \(in 1 min 2\d s\): the worker of attempt 1 ended or fell"
        r" silent, which was found \d s ago \(1 crash so far\)\.",
    )


@pytest.mark.parametrize("record", [DRAINED, LEASE_LAPSED], ids=lambda record: record.type)
async def test_a_job_that_was_handed_back_has_not_failed(rows: Rows, record: Failure) -> None:
    """Its record says why it runs again."""
    attempt = await rows.running()
    await release(rows, attempt, record=record)

    found = await why(rows, attempt.id)

    assert holds(
        found,
        "released",
        rf"send_receipt {attempt.id} waits until {MOMENT} \(in 1 min 2\d s\): attempt 1 was handed back \d s ago and"
        rf" nothing failed \({record.type}: {record.message}\)\.",
    )


@pytest.mark.parametrize("before", ["nothing", "a failure", "a drain", "a crash"])
async def test_a_job_that_snoozed_waits_for_nothing_that_was_before(rows: Rows, before: str) -> None:
    """The last record is of an earlier attempt, and a snooze leaves none: no more is said than is known."""
    attempt = await rows.running(max_attempts=5)
    if before == "a failure":
        await settle(rows, "settle_retry", attempt)
    elif before == "a drain":
        await release(rows, attempt, delay_s=0.0, record=DRAINED)
    elif before == "a crash":
        await rows.lapse(attempt)
        await rows.store.reap_orphans(rows.conn, [attempt], pause_s=0.0)
    if before != "nothing":
        attempt = await rows.reclaimed(attempt.id)
    number = 2 if before in ("a failure", "a crash") else 1
    await release(rows, attempt)

    found = await why(rows, attempt.id)

    assert holds(
        found,
        "released",
        rf"send_receipt {attempt.id} waits until {MOMENT} \(in 1 min 2\d s\): attempt {number}, claimed \d s ago, was"
        r" handed back and nothing failed \(a Snooze, or a worker that could not run it alone\)\.",
    )
