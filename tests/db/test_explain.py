"""Why a job is not running: each reason is one sentence with its numbers, the same in psql, Python and the command."""

from __future__ import annotations

import re

import pytest

from jobq.core.states import State
from tests.db.explained import MOMENT, holds, numbers, ready_for, serve, why
from tests.db.plans import DEAD, DONE, MODES, READY, SCHEDULED, STALE, buffers
from tests.db.plans import run as run_statement
from tests.db.rows import QUEUE, Rows, error_json, new_worker, settle

# -- not waiting -----------------------------------------------------------------------------------------


async def test_a_job_that_never_was_is_unknown(rows: Rows) -> None:
    """Or is not committed yet, or is gone: which of them, nobody knows."""
    found = await why(rows, 4711)

    assert holds(found, "unknown", r"there is no job 4711: it is not committed yet, it was deleted, or .*")


async def test_a_job_that_runs_says_where(rows: Rows) -> None:
    """Attempt, worker, since when, and until when it is the worker's."""
    attempt = await rows.running(await serve(rows, QUEUE))
    await rows.run("update @schema@.job set claimed_at = claimed_at - interval '3 min 12 s'")

    found = await why(rows, attempt.id)

    assert holds(
        found,
        "running",
        rf"send_receipt {attempt.id} has been running for 3 min 12 s in queue mail, attempt 1, in worker web-1:7;"
        rf" its lease lasts until {MOMENT} \(in (1 min|5\d s)\)\.",
    )
    assert numbers(found)["worker"] == "web-1:7"


async def test_a_job_whose_worker_fell_silent_is_about_to_be_taken_back(rows: Rows) -> None:
    """By a worker that is alive, if one is; the one that holds it is named though its row may be gone."""
    worker_id = await serve(rows, QUEUE, lease_s=-5.0)
    attempt = await rows.running(worker_id)
    forgotten = await rows.running(new_worker())
    await rows.lapse(forgotten)

    nobody = await why(rows, attempt.id)
    await serve(rows, "other")
    somebody = await why(rows, forgotten.id)

    assert holds(
        nobody,
        "silent",
        rf"send_receipt {attempt.id} is held by worker web-1:7 for attempt 1, but the lease lapsed at {MOMENT}"
        r" \(5 s ago\): no worker is alive to take it back\.",
    )
    assert holds(
        somebody,
        "silent",
        rf"send_receipt {forgotten.id} is held by worker {forgotten.worker_id} for attempt 1, but .* one that lives"
        r" takes it back \(1 is alive\)\.",
    )


async def test_a_job_that_is_done_says_when(rows: Rows) -> None:
    """While the history knows it."""
    attempt = await rows.in_state(State.DONE)

    found = await why(rows, attempt.id)

    assert holds(
        found, "done", rf"send_receipt {attempt.id} is done since {MOMENT} \(0 s ago\): attempt 1 took 12 ms\."
    )


async def test_a_dead_letter_says_why_and_how_to_redrive_it(rows: Rows) -> None:
    """With a command for this schema, quoted for a shell; of the error one line."""
    job_id = await rows.dead(error_json("no answer\nfrom the server"))

    found = await why(rows, job_id)

    schema = rows.store.schema.replace("'", "'\\''")
    assert found.reason == "dead"
    assert re.match(
        rf"send_receipt {job_id} is a dead letter since {MOMENT} \(0 s ago\): permanent failure after 1 attempt, with"
        r" TimeoutError: no answer; once",
        found.sentence,
    )
    assert f"`jobq dead redrive {job_id} --schema '{schema}'` runs it again." in found.sentence


# -- waiting ---------------------------------------------------------------------------------------------


async def test_a_scheduled_job_says_until_when(rows: Rows) -> None:
    """Nobody need be there for it yet."""
    job_id = await rows.waiting(delay_s=11_550.0)

    found = await why(rows, job_id)

    assert holds(found, "scheduled", rf"send_receipt {job_id} is scheduled for {MOMENT} \(in 3 h 12 min\)\.")
    assert 11_540 < numbers(found)["wait_s"] < 11_551


async def test_a_queue_without_a_worker_is_the_reason(rows: Rows) -> None:
    """Though others are alive, and one that served it is not."""
    await serve(rows, "other")
    await serve(rows, QUEUE, lease_s=-1.0)
    job_id = await ready_for(rows, "5 min")

    found = await why(rows, job_id)

    assert holds(
        found,
        "no_worker",
        rf"send_receipt {job_id} has been ready for 5 min, but no live worker serves queue mail"
        r" \(1 worker is alive\)\.",
    )


async def test_a_kind_without_a_handler_is_the_reason(rows: Rows) -> None:
    """F65: a renamed kind, or a worker of an older release."""
    for _ in range(2):
        await serve(rows, QUEUE, kinds=("other",))
    job_id = await ready_for(rows, "5 min")

    found = await why(rows, job_id)

    assert holds(
        found,
        "no_handler",
        rf"send_receipt {job_id} has been ready for 5 min, but no live worker of queue mail has a handler for its"
        r" kind \(2 serve the queue\)\.",
    )


async def test_a_job_that_may_have_killed_workers_says_from_which_limit_on_it_runs_alone(rows: Rows) -> None:
    """Its kind's max_crashes is not on record until a worker has decided: the sentence states the condition."""
    worker_id = await serve(rows, QUEUE)
    job_id = await ready_for(rows, "5 min")
    await rows.run("update @schema@.job set crashes = 4 where id = $1", job_id)

    waits = await why(rows, job_id)
    attempt = await rows.reclaimed(job_id, worker_id)
    await rows.running(worker_id)
    claimed = await why(rows, job_id)
    await rows.store.isolate_job(rows.conn, worker_id, attempt)
    runs = await why(rows, job_id)

    assert holds(
        waits,
        "next",
        rf"send_receipt {job_id} has been ready for 5 min in queue mail: 0 ready jobs are before it, and 0 run in its"
        r" 1 live worker; 4 workers have died while it ran, so if the max_crashes of its kind is 5 or less it runs"
        r" alone\.",
    )
    assert holds(
        claimed,
        "running",
        rf"send_receipt {job_id} has been held for \d s in queue mail, attempt 1, in worker web-1:7; its lease lasts"
        rf" until {MOMENT} \(in .*\); 4 workers have died while it ran, so if the max_crashes of its kind is 5 or less"
        r" it waits there for the end of 1 other job\.",
    )
    assert holds(
        runs,
        "running",
        rf"send_receipt {job_id} has been running alone for \d s in queue mail, attempt 1, in worker web-1:7; its lease"
        rf" lasts until {MOMENT} \(in [^;]*\)\.",
    )


async def test_what_is_before_it_is_counted(rows: Rows) -> None:
    """A lower number of priority goes first, then run_at, then id; what is scheduled or elsewhere is not before it."""
    worker_id = await serve(rows, QUEUE)
    for _ in range(3):
        await rows.running(worker_id)
    await rows.running(queue="other", worker_id=worker_id)
    first = await rows.many_waiting(2, priority=0)
    job_id = await ready_for(rows, "5 min")
    older = await ready_for(rows, "6 min")
    await ready_for(rows, "4 min")
    await ready_for(rows, "9 min", priority=6)
    await ready_for(rows, "9 min", queue="other")
    await rows.scheduled(priority=0)

    found = await why(rows, job_id)

    assert holds(
        found,
        "position",
        rf"send_receipt {job_id} has been ready for 5 min in queue mail: 3 ready jobs are before it, and 3 run in its"
        r" 1 live worker, the oldest for \d s\.",
    )
    assert (await rows.ids(where="queue = 'mail' and worker_id is null"))[:2] == first
    assert numbers(await why(rows, older))["ahead"] == 2


async def test_a_count_of_many_ends_somewhere(rows: Rows) -> None:
    """At 10,000, and says so."""
    await serve(rows, QUEUE)
    await rows.run(READY)
    job_id = await rows.waiting(priority=9)

    found = await why(rows, job_id)

    assert ": at least 10,000 ready jobs are before it, and 0 run in its" in found.sentence
    assert (numbers(found)["ahead"], numbers(found)["ahead_is_at_least"]) == (10_000, True)


async def test_the_next_one_says_what_runs_beside_it(rows: Rows) -> None:
    """How many, and how long the oldest of them; no word of slots, of which nothing is known."""
    worker_id = await serve(rows, QUEUE)
    for _ in range(2):
        await rows.running(worker_id)
    await rows.run("update @schema@.job set claimed_at = claimed_at - interval '12 min 5 s'")
    job_id = await ready_for(rows, "5 min")

    found = await why(rows, job_id)

    assert holds(
        found,
        "next",
        rf"send_receipt {job_id} has been ready for 5 min in queue mail: 0 ready jobs are before it, and 2 run in its"
        r" 1 live worker, the oldest for 12 min 5 s\.",
    )
    assert (numbers(found)["ahead"], numbers(found)["running"]) == (0, 2)


# -- the rest --------------------------------------------------------------------------------------------


async def test_a_job_that_moves_is_found_once(rows: Rows) -> None:
    """The answer is of the snapshot of the statement that asks, whatever is committed meanwhile."""
    attempt = await rows.running(await serve(rows, QUEUE))
    async with rows.conn.transaction(isolation="repeatable_read"):
        await rows.count()
        other = await why(rows, attempt.id)
    await settle(rows, "settle_done", attempt)

    assert other.reason == "running"
    assert (await why(rows, attempt.id)).reason == "done"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-3.0, "0 s"),
        (59.9, "59 s"),
        (60.0, "1 min"),
        (192.5, "3 min 12 s"),
        (3659.0, "1 h"),
        (18_120.0, "5 h 2 min"),
        (86_460.0, "1 d"),
        (3 * 86_400.0 + 4 * 3600 + 59, "3 d 4 h"),
    ],
)
async def test_a_time_is_spelt_as_stats_spells_it(rows: Rows, seconds: float, expected: str) -> None:
    """In its two largest units."""
    assert await rows.value("select @schema@.spell($1)", seconds) == expected


@pytest.mark.parametrize("mode", MODES)
async def test_asking_costs_the_same_for_any_number_of_jobs(rows: Rows, mode: str) -> None:
    """With stale statistics: 100,000 ready, and it is the first of them, the last, or done."""
    await serve(rows, "mail")
    await rows.run(";".join([STALE, READY, SCHEDULED, DEAD, DONE]))
    first = await rows.value("select min(id) from @schema@.job where priority = 0")
    last = await rows.value("select max(id) from @schema@.job where priority = 9 and run_at < now()")

    pages = {
        job_id: buffers(await run_statement(rows.conn, rows.store.schema, mode, "explain_job", str(job_id)))
        for job_id in (first, last, 3_000_007, 2_000_007, 4_000_000)
    }

    assert pages.pop(last) < 12_000
    assert max(pages.values()) < 1_000, pages
