"""Dead letters: what they hold, and how a person makes them ready again or drops them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jobq import ConfigurationError, Queue
from jobq.core.states import State
from jobq.db.reports import DeadFilter, Reports
from jobq.db.store import Redriven
from jobq.dead_letters import PAGE, DeadLetters, RedriveReport
from tests.db.rows import KIND, QUEUE, Attempt, Rows, error_json, settle

if TYPE_CHECKING:
    from tests.conftest import Conn

COLUMNS = [
    *("id", "enqueued_at", "worker_id", "crashes", "fence", "redrives", "max_attempts", "priority"),
    *("queue", "kind", "payload", "headers", "idempotency_key"),
]
"""What a dead letter takes over from the job unchanged."""


@pytest.fixture
def letters(schema: str) -> DeadLetters:
    """The dead letters of this test's schema."""
    return DeadLetters(schema)


@pytest.fixture
def reports(schema: str) -> Reports:
    """The reads of this test's schema."""
    return Reports(schema)


async def die(rows: Rows, attempt: Attempt, *, started: bool = True, **error: Any) -> None:
    reasons, errors = ["attempts used up"], [error_json(**error)]
    await rows.store.settle_dead(rows.conn, attempt.worker_id, [attempt], [started], reasons, errors)


async def errors_of(rows: Rows, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await rows.value(f"select errors from @schema@.{table}"))
    return found


# -- what they hold ----------------------------------------------------------------------------------


async def test_a_dead_letter_holds_the_whole_job(rows: Rows) -> None:
    """Everything that it takes to make it ready again is taken over unchanged."""
    attempt = await rows.running(
        payload='{"order_id": 8}', priority=2, max_attempts=4, idempotency_key="receipt:8", queue="slow", kind="print"
    )
    await rows.run("""update @schema@.job set headers = '{"trace": "x"}', crashes = 2, redrives = 3""")
    job = await rows.job(attempt.id)

    await die(rows, attempt)

    letter = await rows.dead_letter(attempt.id)
    assert [letter[name] for name in COLUMNS] == [job[name] for name in COLUMNS]
    assert (letter["run_at"], letter["claimed_at"], letter["attempt"]) == (job["run_at"], job["claimed_at"], 1)


async def test_a_dead_letter_says_why(rows: Rows) -> None:
    """The last error in columns of its own and at the end of the history, with its attempt, worker and time."""
    attempt = await rows.running()

    await die(rows, attempt, message="no such order", type="LookupError", fingerprint="fedcba987654")

    letter = await rows.dead_letter(attempt.id)
    (error,) = await errors_of(rows, "dead_letter")
    assert letter["reason"] == "attempts used up"
    assert letter["error_type"] == error["type"] == "LookupError"
    assert letter["error_message"] == error["message"] == "no such order"
    assert letter["fingerprint"] == error["fingerprint"] == "fedcba987654"
    assert (error["attempt"], error["worker_id"]) == (1, str(attempt.worker_id))
    assert await rows.value("select (errors -> 0 ->> 'at')::timestamptz = died_at from @schema@.dead_letter")


async def test_the_first_failure_is_remembered(rows: Rows) -> None:
    """From the first retry on, over later ones, into the dead letter; a job that dies at once failed then."""
    attempt = await rows.running()
    await settle(rows, "settle_retry", attempt)
    first_failed_at = (await rows.job(attempt.id))["first_failed_at"]
    await settle(rows, "settle_retry", await rows.reclaimed(attempt.id))

    await die(rows, await rows.reclaimed(attempt.id))
    at_once = await rows.dead_letter(await rows.dead())

    letter = await rows.dead_letter(attempt.id)
    assert first_failed_at == letter["first_failed_at"] < letter["died_at"]
    assert [error["attempt"] for error in json.loads(letter["errors"])] == [1, 2, 3]
    assert at_once["first_failed_at"] == at_once["died_at"]


async def test_an_attempt_that_never_started_does_not_count(rows: Rows) -> None:
    """A payload that does not fit is a dead letter whose handler was called 0 times."""
    attempt = await rows.running()

    await die(rows, attempt, started=False)

    assert (await rows.dead_letter(attempt.id))["attempt"] == 0


@pytest.mark.parametrize("failures", [20, 21, 22, 60])
async def test_errors_are_bounded_to_the_first_and_the_last_20(rows: Rows, failures: int) -> None:
    """However often a job fails, in the waiting job and in the dead letter (F64)."""
    job_id = await rows.waiting()
    for number in range(1, failures):
        attempt = await rows.reclaimed(job_id)
        error = error_json(f"failure {number}")
        await rows.store.settle_retry(rows.conn, attempt.worker_id, [attempt], [0.0], [error])
    waiting = [error["message"] for error in await errors_of(rows, "job")]

    await die(rows, await rows.reclaimed(job_id), message=f"failure {failures}")

    dead = [error["message"] for error in await errors_of(rows, "dead_letter")]
    assert waiting == bounded(failures - 1)
    assert dead == bounded(failures)
    assert len(dead) == min(failures, 21)


def bounded(failures: int) -> list[str]:
    return [f"failure {n}" for n in range(1, failures + 1) if n == 1 or n > failures - 20]


async def test_the_history_of_large_errors_is_below_a_megabyte(rows: Rows) -> None:
    """Each error is bounded by the library to some 36 kB, so 21 of them are (F64)."""
    job_id = await rows.waiting()
    for _ in range(30):
        attempt = await rows.reclaimed(job_id)
        await settle(rows, "settle_retry", attempt)
        await rows.run(
            "update @schema@.job"
            " set errors = jsonb_set(errors, '{-1,traceback}', to_jsonb(repeat(md5(random()::text), 1024)))"
        )

    assert await rows.value("select length(errors::text) from @schema@.job") < 1_000_000
    assert await rows.value("select sum(pg_column_size(j.*)) from @schema@.job j") < 1_000_000


# -- which -------------------------------------------------------------------------------------------

HOUR_S = 3600.0
FILTERS = {
    "kind": (DeadFilter(kind="print"), {"print"}),
    "queue": (DeadFilter(queue="slow"), {"slow"}),
    "fingerprint": (DeadFilter(fingerprint="fedcba987654"), {"other error"}),
    "older": (DeadFilter(older_than_s=HOUR_S), {"old"}),
    "younger": (DeadFilter(younger_than_s=HOUR_S), {"print", "slow", "other error", "plain"}),
    "all": (DeadFilter(older_than_s=0.0), {"print", "slow", "other error", "plain", "old"}),
    "both": (DeadFilter(kind="print", queue="slow"), set()),
    "window": (DeadFilter(older_than_s=HOUR_S, younger_than_s=2.5 * HOUR_S), {"old"}),
}


async def test_all_that_is_stated_must_match(rows: Rows, reports: Reports, letters: DeadLetters) -> None:
    """Listing, counting, redriving and deleting mean the same letters by the same filter."""
    made = {
        "print": await rows.dead(kind="print"),
        "slow": await rows.dead(queue="slow"),
        "other error": await rows.dead(error_json(fingerprint="fedcba987654")),
        "plain": await rows.dead(),
        "old": await rows.dead(),
    }
    await rows.run("update @schema@.dead_letter set died_at = now() - interval '2 hours' where id = $1", made["old"])

    for name, (wanted, meant) in FILTERS.items():
        expected = sorted(made[each] for each in meant)
        listed = sorted(letter.id for letter in await reports.list_dead(rows.conn, wanted, limit=100))
        counted, _ = await reports.count_dead(rows.conn, wanted)
        async with undone(rows.conn):
            deleted = await letters.delete(rows.conn, wanted)
            gone = sorted(set(made.values()) - set(await rows.ids("dead_letter")))
        async with undone(rows.conn):
            report = await letters.redrive(rows.conn, wanted)
            ready = await rows.ids("job")

        assert listed == gone == ready == expected, name
        assert (counted, deleted, report) == (len(expected), len(expected), RedriveReport(len(expected))), name


@asynccontextmanager
async def undone(conn: Conn) -> AsyncIterator[None]:
    """Roll back what is done inside."""
    transaction = conn.transaction()
    await transaction.start()
    yield
    await transaction.rollback()


async def test_ids_are_redriven_and_no_others(rows: Rows, letters: DeadLetters, queue: Queue) -> None:
    """Ids that are no dead letters, living jobs among them, change nothing."""
    dead = [await rows.dead() for _ in range(4)]
    waiting, running = await rows.waiting(), await rows.running()
    before = await rows.contents(*dead)

    by_queue = await queue.redrive(dead[2], waiting, running.id, 999_999)
    report = await letters.redrive(rows.conn, DeadFilter(ids=(dead[0], dead[0])))

    assert (by_queue, report) == (RedriveReport(1), RedriveReport(1))
    assert await rows.ids("dead_letter") == [dead[1], dead[3]]
    assert await rows.contents(*dead) == before


async def test_a_queue_redrives_by_filter(rows: Rows, queue: Queue) -> None:
    """`queue.redrive` takes the same filters, ages as durations."""
    old, printed, _ = await rows.dead(), await rows.dead(kind="print"), await rows.dead()
    await rows.run("update @schema@.dead_letter set died_at = now() - interval '2 hours' where id = $1", old)

    by_age = await queue.redrive(older_than=timedelta(hours=1))
    by_kind = await queue.redrive(
        kind="print", younger_than=timedelta(hours=1), queue=QUEUE, fingerprint="0123456789ab"
    )

    assert (by_age, by_kind) == (RedriveReport(1), RedriveReport(1))
    assert await rows.ids("job") == [old, printed]


async def test_a_filter_that_states_nothing_is_refused(rows: Rows, letters: DeadLetters, queue: Queue) -> None:
    """Never "all" by accident (F113)."""
    await rows.dead()
    before = await rows.contents()

    with pytest.raises(ConfigurationError, match="which dead letters"):
        await letters.redrive(rows.conn, DeadFilter())
    with pytest.raises(ConfigurationError, match="older than 0 seconds is all"):
        await letters.delete(rows.conn, DeadFilter())
    with pytest.raises(ConfigurationError, match="state ids, a kind"):
        await queue.redrive()

    assert await rows.contents() == before


# -- redrive -----------------------------------------------------------------------------------------


async def test_a_redriven_job_begins_anew(rows: Rows, letters: DeadLetters) -> None:
    """The same id, options, fence and errors; attempts, crashes and the last claim are gone (F113)."""
    attempt = await rows.running(payload='{"n": 1}', priority=2, max_attempts=4, idempotency_key="a")
    await rows.run("""update @schema@.job set attempt = 4, crashes = 2, headers = '{"trace": "x"}'""")
    await die(rows, attempt)
    letter = await rows.dead_letter(attempt.id)
    earliest = await rows.value("select clock_timestamp()")

    await letters.redrive(rows.conn, DeadFilter(ids=(attempt.id,)))

    job = await rows.job(attempt.id)
    kept = set(COLUMNS) - {"worker_id", "crashes", "redrives"} | {"first_failed_at", "errors"}
    assert {name: job[name] for name in kept} == {name: letter[name] for name in kept}
    assert (job["attempt"], job["crashes"], job["redrives"]) == (0, 0, 1)
    assert (job["worker_id"], job["claimed_at"], job["lease_until"]) == (None, None, None)
    assert job["run_at"] >= earliest
    assert await rows.ids("dead_letter") == []


async def test_a_redriven_job_may_die_again(rows: Rows, letters: DeadLetters) -> None:
    """After its full number of attempts; errors go on, the fence grows, the first failure stays (F113)."""
    job_id = await rows.dead(max_attempts=3)
    first_failed_at = (await rows.dead_letter(job_id))["first_failed_at"]
    await letters.redrive(rows.conn, DeadFilter(ids=(job_id,)))
    for _ in range(2):
        await settle(rows, "settle_retry", await rows.reclaimed(job_id))
    await die(rows, await rows.reclaimed(job_id))

    report = await letters.redrive(rows.conn, DeadFilter(ids=(job_id,)))

    job = await rows.job(job_id)
    assert report == RedriveReport(1)
    assert (job["fence"], job["redrives"], job["attempt"]) == (4, 2, 0)
    assert job["first_failed_at"] == first_failed_at
    assert [error["attempt"] for error in await errors_of(rows, "job")] == [1, 1, 2, 3]


async def test_a_second_redrive_is_harmless(rows: Rows, letters: DeadLetters) -> None:
    """What is not dead any more is not touched, whether it waits, runs or is done."""
    dead = [await rows.dead() for _ in range(3)]
    wanted = DeadFilter(ids=tuple(dead))
    await letters.redrive(rows.conn, wanted)
    await rows.reclaimed(dead[1])
    await settle(rows, "settle_done", await rows.reclaimed(dead[2]))
    before = await rows.contents()

    report = await letters.redrive(rows.conn, wanted)

    assert report == RedriveReport(0)
    assert await rows.contents() == before


async def test_a_held_key_is_reported_and_its_letter_left(rows: Rows, letters: DeadLetters) -> None:
    """Among 2,500 in pages, three whose key a newer job holds stay as they are; the others are ready (F113)."""
    dead = await rows.many_dead(2_500)
    held = [dead[0], dead[PAGE], dead[-1]]
    await rows.run(
        "update @schema@.dead_letter set idempotency_key = 'key ' || id where id % 2 = 0 or id = any($1)", held
    )
    holders = [await rows.waiting(idempotency_key=f"key {job_id}") for job_id in held]
    before = [await rows.dead_letter(job_id) for job_id in held]

    report = await letters.redrive(rows.conn, DeadFilter(kind=KIND))

    assert report == RedriveReport(
        2_497, tuple(Redriven(job_id, owner, QUEUE) for job_id, owner in zip(held, holders, strict=True))
    )
    assert [await rows.dead_letter(job_id) for job_id in held] == before
    assert await rows.ids("dead_letter") == held
    assert await rows.count() == 2_497 + 3


@pytest.mark.parametrize("answers", [True, False], ids=["key answers", "key lapsed"])
async def test_of_two_letters_with_one_key_one_is_redriven(rows: Rows, letters: DeadLetters, answers: bool) -> None:
    """The second was enqueued when the first's time was over; the one that is not redriven is reported."""
    first = await rows.dead(idempotency_key="a")
    await rows.run("update @schema@.idempotency_key set until = now() - interval '1 s'")
    second = await rows.dead(idempotency_key="a")
    if not answers:
        await rows.run("update @schema@.idempotency_key set until = now() - interval '1 s'")

    report = await letters.redrive(rows.conn, DeadFilter(ids=(first, second)))

    (one,) = report.held
    assert report.redriven == 1
    assert {one.id, one.owner_id} == {first, second}
    assert (await rows.state_of(one.owner_id), await rows.state_of(one.id)) == (State.WAITING, State.DEAD)


async def test_what_a_bulk_redrive_did_stays_done(rows: Rows, letters: DeadLetters) -> None:
    """Each page commits by itself: after a failure in the second the first is ready, and a repeat does the rest."""
    dead = await rows.many_dead(PAGE + 5)
    await rows.run(
        f"""
        create function @schema@.refuse() returns trigger language plpgsql as
            $$ begin raise exception 'not this one'; end $$;
        create trigger refuse before insert on @schema@.job for each row
            when (new.id = {dead[-1]}) execute function @schema@.refuse();
        """
    )
    with pytest.raises(Exception, match="not this one"):
        await letters.redrive(rows.conn, DeadFilter(kind=KIND))
    after_failure = await rows.count()
    await rows.run("drop trigger refuse on @schema@.job")

    report = await letters.redrive(rows.conn, DeadFilter(kind=KIND))

    assert (after_failure, report) == (PAGE, RedriveReport(5))
    assert await rows.ids() == dead


# -- delete ------------------------------------------------------------------------------------------


async def test_deleted_letters_are_gone_for_good(rows: Rows, letters: DeadLetters) -> None:
    """Nothing of them is left, in pages, and living jobs are not touched."""
    dead = await rows.many_dead(PAGE + 5)
    waiting, running, printed = await rows.waiting(), await rows.running(), await rows.dead(kind="print")
    before = await rows.contents(*dead)

    deleted = await letters.delete(rows.conn, DeadFilter(kind=KIND))
    again = await letters.delete(rows.conn, DeadFilter(kind=KIND))

    assert (deleted, again) == (PAGE + 5, 0)
    assert await rows.contents() == before
    assert await rows.ids("dead_letter") == [printed]
    assert await rows.ids("job") == [waiting, running.id]


async def test_only_letters_are_deleted(rows: Rows) -> None:
    """The ids of living and done jobs are no dead letters."""
    attempts = [await rows.in_state(state) for state in (State.WAITING, State.RUNNING, State.DONE)]
    before = await rows.contents()

    deleted = await rows.store.delete_dead_letters(rows.conn, [attempt.id for attempt in attempts])

    assert deleted == []
    assert await rows.contents() == before
