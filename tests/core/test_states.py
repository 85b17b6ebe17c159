"""The table of states: what it allows, and that every statement that it names is there and says the same."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from jobq.core.states import OWNED, TRANSITIONS, Event, State, Transition

SQL = {
    entry.name.removesuffix(".sql"): entry.read_text("utf-8")
    for entry in files("jobq.db").joinpath("sql").iterdir()
    if entry.name.endswith(".sql")
}
CHANGE = re.compile(r"-- (\w+): (\w+) -> (\w+)\n")


def reachable(start: State) -> set[State]:
    found, todo = set[State](), [start]
    while todo:
        state = todo.pop()
        if state not in found:
            found.add(state)
            todo += [change.target for change in TRANSITIONS if change.source is state]
    return found


def test_each_change_is_listed_once() -> None:
    """One row for each statement and event."""
    assert len({(change.event, change.statement) for change in TRANSITIONS}) == len(TRANSITIONS)


def test_an_event_has_one_meaning() -> None:
    """Whatever statement makes it, the same event leads from the same state to the same state."""
    meanings = {(change.event, change.source, change.target) for change in TRANSITIONS}

    assert len(meanings) == len(Event)


@pytest.mark.parametrize("change", TRANSITIONS, ids=lambda change: f"{change.event}-{change.statement}")
def test_a_statement_says_the_change_that_the_table_says(change: Transition) -> None:
    """The first line of its file is the row of the table."""
    assert SQL[change.statement].startswith(f"-- {change.statement}: {change.source} -> {change.target}\n")


def test_no_other_statement_changes_a_state() -> None:
    """A file whose head tells a change is in the table, so the table is whole."""
    told = {(match[1], match[2], match[3]) for text in SQL.values() if (match := CHANGE.match(text))}

    assert told == {(change.statement, change.source, change.target) for change in TRANSITIONS}


def test_only_a_claim_makes_a_job_run() -> None:
    """So every running job has an owner and a fence of its own."""
    assert {change.event for change in TRANSITIONS if change.source not in OWNED and change.target in OWNED} == {
        Event.CLAIM
    }


OWNED_CHANGES = {change.statement for change in TRANSITIONS if change.source in OWNED}

MANY = ("and j.fence = ($2::int[])[width_bucket(j.id, $1::bigint[])]", "and j.worker_id is not distinct from $3")
PROOFS = {
    **dict.fromkeys(("settle_done", "settle_retry", "settle_released", "settle_dead"), MANY),
    "renew_jobs": MANY,
    "isolate_job": ("where j.id = $1", "and j.fence = $2", "and j.worker_id is not distinct from $3"),
    "release_strays": ("and j.id <> all($2::bigint[])", "and j.worker_id is not distinct from $1"),
    "reap_worker": ("and w.lease_until < clock_timestamp()", "and j.worker_id is not distinct from $1"),
    "reap_orphans": (
        MANY[0],
        "and j.lease_until is not null",
        "j.lease_until < clock_timestamp()",
        "or not exists (select from @schema@.worker w where w.worker_id = j.worker_id)",
    ),
}
"""What a change of a running job has to show: that the writer owns it, forgot it, or that a lease has lapsed."""


@pytest.mark.parametrize("statement", sorted(OWNED_CHANGES))
def test_a_change_of_a_running_job_proves_its_right(statement: str) -> None:
    """The attempt's own writes show id, fence and worker; a reap that a lease has lapsed, a stray its worker."""
    body = "\n".join(line.strip() for line in SQL[statement].splitlines() if not line.startswith("--"))

    assert [proof for proof in PROOFS[statement] if f"{proof}\n" not in f"{body}\n"] == []


def test_only_a_lapsed_lease_is_a_reason_without_a_proof() -> None:
    """Whatever takes no fence is the reaper's, or a worker's about what it holds without knowing."""
    assert PROOFS.keys() == OWNED_CHANGES
    assert {name for name in OWNED_CHANGES if "fence = " not in " ".join(PROOFS[name])} == {
        "release_strays",
        "reap_worker",
    }


def test_no_job_is_stuck() -> None:
    """From every state a job can still be finished or dropped, but for history, which is the end."""
    for state in set(State) - {State.DONE}:
        assert State.DONE in reachable(state)
    assert reachable(State.DONE) == {State.DONE}
    assert reachable(State.ABSENT) == set(State)


def test_only_a_person_lets_a_job_vanish() -> None:
    """A dead letter is deleted, a tick that nobody wants any more withdrawn; nothing else leads to no row at all."""
    assert {change.event for change in TRANSITIONS if change.target is State.ABSENT} == {Event.DELETE, Event.WITHDRAW}
