"""The statements whose plans are tested, with arguments for the tables of `plans.py`, their indexes and bounds."""

from __future__ import annotations

from typing import NamedTuple

from jobq.core.job import PRIORITIES
from jobq.db.overview import COUNT_LIMIT, WINDOW_S
from jobq.dead_letters import PAGE
from tests.db.plans import FIRST_HELD, FIRST_RUN_AT, HELD_ROWS, LAPSED, WATCHED, WORKER


class Case(NamedTuple):
    """A statement, its arguments as literals, and the indexes that it may use, in any number."""

    statement: str
    arguments: str
    indexes: set[str]


class Bound(NamedTuple):
    """A statement, its arguments, how many rows come back, how many pages it may touch, and a script to run before."""

    statement: str
    arguments: str
    rows: int
    pages: int
    before: str | None = None


def array(*values: object) -> str:
    """An array as a literal; EXECUTE takes no subquery."""
    return "'{" + ",".join(map(str, values)) + "}'"


def marks(run_at: object, job_id: int = 0) -> str:
    """The same mark in each lane, as two literals."""
    return f"{array(*[run_at] * len(PRIORITIES))}, {array(*[job_id] * len(PRIORITIES))}"


def claim(limit: int, start: str, *, queue: str = "mail") -> str:
    return f"'{queue}', '{{send_receipt}}', {limit}, '{WORKER}', 60, {start}"


def look(before: str, *, since: str = "0001-01-01 00:00:00+00", queue: str = "mail") -> str:
    return f"'{queue}', '{{send_receipt}}', {array(*[since] * len(PRIORITIES))}, {before}"


UNSERVED_LOOK = 1_000
"""How many of the oldest ready jobs of each queue and priority are asked for a kind that nobody takes."""

NOTE_DEAD = "'app.tell', null, 600, 7.5, 1000"
"""With a page that is a tenth of a worker's."""

NOON = '"2026-12-01 12:00:00+00"'
TIMES = "null, '2026-12-01 12:00:00+00', '2026-12-01 12:01:00+00', '2026-12-01 12:00:00+00'"
FRONT = marks("0001-01-01 00:00:00+00")
MIDDLE = marks("2020-01-01 00:00:05+00", 5_000)


def cases(batch: int) -> list[Case]:
    """The statements and their indexes; those that are given ids are given *batch* of them."""
    ids = range(FIRST_HELD, FIRST_HELD + batch * 2, 2)
    letters = array(*range(2_000_000, 2_000_000 + batch * 7, 7))
    proof, each_1, each_empty = _held(ids)
    return [
        Case("claim_jobs", claim(100, FRONT), {"job_waiting", "job_pkey"}),
        Case("find_passed", look(FRONT), {"job_waiting"}),
        Case("has_ready", "'{mail}', '{send_receipt}'", {"job_waiting"}),
        Case("settle_done", f"{proof}, {each_1}", {"job_pkey"}),
        Case("settle_retry", f"{proof}, {each_1}, {each_empty}", {"job_pkey"}),
        Case("settle_released", f"{proof}, {each_1}, {each_empty}", {"job_pkey"}),
        Case("settle_dead", f"{proof}, {array(*['t'] * batch)}, {each_empty}, {each_empty}", {"job_pkey"}),
        Case("renew_jobs", f"{proof}, 60", {"job_pkey"}),
        Case("isolate_job", f"{FIRST_HELD + 7}, 1, '{WORKER}'", {"job_pkey"}),
        Case("release_strays", f"'{WORKER}', {array(*ids)}", {"job_held", "job_pkey"}),
        Case("reap_worker", f"'{WORKER}', 2, {batch}", {"job_held", "job_pkey"}),
        Case("reap_orphans", f"{array(*ids)}, {each_1}, 2", {"job_pkey"}),
        Case("list_orphans", f"{batch}", {"job_held"}),
        Case("forget_worker", f"'{WORKER}'", {"job_held"}),
        Case("redrive_jobs", letters, {"dead_letter_pkey"}),
        Case("delete_dead_letters", letters, {"dead_letter_pkey"}),
        Case("show_dead", "2000007", {"dead_letter_pkey"}),
        Case("list_dead", "100", {"dead_letter_died"}),
        Case("page_dead_ids", f"2010000, 2040000, {PAGE}", {"dead_letter_pkey"}),
        Case("find_oldest_dead", "", {"dead_letter_died"}),
        Case("note_dead", NOTE_DEAD, {"dead_letter_died", "dead_letter_pkey"}),
        Case("list_due_recurring", "100", {"job_pkey"}),
        Case("foresee_recurring", "", set()),
        Case("fire_recurring", f"'report', 1, {array(*[NOON] * 5)}, {TIMES}, 0, null, 0", set()),
        Case("run_recurring", "'report'", {"job_pkey"}),
        Case("count_recurring", "", {"job_pkey"}),
        Case("list_recurring", "", {"job_pkey"}),
        # What these walk stands in functions: their own plans are in test_views.py.
        Case("list_queues", "", set()),
        Case("list_kinds", f"{WINDOW_S}", set()),
        Case("list_unserved", "", set()),
        Case("list_running_kinds", "", {"job_held"}),
        Case("list_durations", f"{WINDOW_S}", {"kind_stat_at"}),
        Case("explain_job", f"{FIRST_HELD + 7}", set()),
    ]


def bounds(batch: int) -> dict[str, Bound]:
    """What a statement may cost: a few pages for each lane, and some twenty for each of *batch* jobs that it names."""
    in_hand = range(FIRST_HELD + batch, FIRST_HELD + HELD_ROWS)
    proof, each_1, _ = _held(range(FIRST_HELD, FIRST_HELD + batch * 2, 2))
    return {
        "claim 1": Bound("claim_jobs", claim(1, FRONT), 1, 200),
        "claim 100": Bound("claim_jobs", claim(100, FRONT), 100, 3_000),
        "claim none": Bound("claim_jobs", claim(100, FRONT, queue="later"), 0, 200),
        "claim 100 from marks": Bound("claim_jobs", claim(100, MIDDLE), 100, 3_000),
        "claim none from marks": Bound("claim_jobs", claim(100, MIDDLE, queue="later"), 0, 200),
        "nothing before the front": Bound("find_passed", look(FRONT), 1, 200),
        "nothing before marks": Bound("find_passed", look(marks(FIRST_RUN_AT)), 1, 200),
        "nothing before the scheduled": Bound(
            "find_passed", look(marks("9999-01-01 00:00:00+00"), queue="later"), 1, 200
        ),
        "something before marks": Bound("find_passed", look(MIDDLE), 1, 200),
        "nothing shortly before marks": Bound("find_passed", look(MIDDLE, since="2020-01-01 00:00:05+00"), 1, 200),
        "ready": Bound("has_ready", "'{mail}', '{send_receipt}'", 1, 200),
        "none ready": Bound("has_ready", "'{later}', '{send_receipt}'", 1, 200),
        "settle many": Bound("settle_done", f"{proof}, {each_1}", batch, 20 * batch),
        "renew many": Bound("renew_jobs", f"{proof}, 60", batch, 20 * batch + 5_000, LAPSED),
        "reap many": Bound("reap_worker", f"'{WORKER}', 2, {batch}", batch, 20 * batch + 5_000, LAPSED),
        "release many": Bound("release_strays", f"'{WORKER}', {array(*in_hand)}", batch, 20 * batch + 5_000, LAPSED),
        "list many orphans": Bound("list_orphans", f"{batch}", batch, 20 * batch + 5_000, LAPSED),
        "list 100": Bound("list_dead", "100", 100, 200),
        "find the oldest dead": Bound("find_oldest_dead", "", 1, 200),
        "note that nothing has died": Bound("note_dead", NOTE_DEAD, 1, 200, WATCHED.format(ago="0 s")),
        "note what has died in two minutes": Bound("note_dead", NOTE_DEAD, 1, 500, WATCHED.format(ago="2 min")),
        "note one page of all that has died": Bound("note_dead", NOTE_DEAD, 1, 5_000, WATCHED.format(ago="1 year")),
        # Two queues, of which one has three lanes too many, and the dead.
        "count everything": Bound("list_queues", "", 2, 4 * COUNT_LIMIT + 6_000),
        "look for the unserved": Bound("list_unserved", "", 1, 10 * UNSERVED_LOOK + 1_000),
        "explain one that runs": Bound("explain_job", f"{FIRST_HELD + 7}", 1, 2_000),
        "explain the last in its queue": Bound("explain_job", "9990", 1, COUNT_LIMIT + 3_000),
        "read the standing": Bound("read_standing", "", 1, COUNT_LIMIT + 2_000),
        "sum an hour": Bound("list_kinds", f"{WINDOW_S}", 1, 1_000),
        "sum the durations of an hour": Bound("list_durations", f"{WINDOW_S}", 2, 1_000),
        "sum what runs": Bound("list_running_kinds", "", 1, 2_000),
    }


def _held(ids: range) -> tuple[str, str, str]:
    """The proof for these jobs, a number for each, and an error for each."""
    ones = array(*[1] * len(ids))
    return f"{array(*ids)}, {ones}, '{WORKER}'", ones, array(*['"{}"'] * len(ids))
