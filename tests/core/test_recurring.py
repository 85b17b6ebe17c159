"""What a recurring entry may say, and what becomes of its ticks at a moment."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq import NewJob, RecurringError
from jobq.core.cron import Schedule
from jobq.core.recurring import AHEAD, Decision, DueEntry, decide, make_entry

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def job(**stated: Any) -> NewJob:
    """What an entry enqueues."""
    return NewJob(**{"kind": "report", "payload": b"{}", "home": "mail", **stated})


def declared(**stated: Any) -> Any:
    """Check an entry that says what is *stated*, and else nothing that is wrong."""
    usual = {
        "name": "report",
        "expression": "0 9 * * *",
        "zone": "UTC",
        "job": job(),
        "catch_up": "last",
        "within": None,
        "cap": None,
        "overlap": "allow",
        "now": NOON,
    }
    return make_entry(**{**usual, **stated})


def due(**stated: Any) -> DueEntry:
    """An entry of each minute at noon, of which everything before has been decided, but for what is *stated*."""
    usual = {
        "name": "report",
        "revision": 1,
        "expression": "* * * * *",
        "zone": "UTC",
        "catch_up": "last",
        "catch_up_within_s": 3600.0,
        "catch_up_cap": None,
        "overlap": "allow",
        "decided_until": NOON,
        "held_tick": None,
        "is_busy": False,
        "now": NOON,
    }
    return DueEntry(**{**usual, **stated})


def fired(decision: Decision) -> list[str]:
    """The ticks that are enqueued."""
    return [f"{tick:%H:%M}" for tick in decision.fire]


# -- what is refused ---------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "recurring name '' is not a name"),
    ({"name": "each day"}, "recurring name 'each day' is not a name"),
    ({"name": "x" * 101}, "more than 100"),
    ({"name": None}, "is not a string"),
    (
        {"expression": "0 0 30 2 *"},
        "recurring 'report': expression '0 0 30 2 *' names a day that none of its months",
    ),
    ({"expression": "0 0 9 * * *"}, "no field for seconds"),
    ({"zone": "Europe/Berlim"}, "recurring 'report': time zone 'Europe/Berlim' is not known"),
    ({"catch_up": "some"}, "catch_up is 'some'; it is 'last', 'all' or 'none'"),
    ({"overlap": "kill"}, "overlap is 'kill'; it is 'allow', 'skip' or 'queue'"),
    ({"catch_up": "all"}, "catch_up is 'all' and catch_up_cap None; 'all' needs a cap of 1 to 1000"),
    ({"catch_up": "all", "cap": 0}, "catch_up_cap is 0; it is 1 to 1000 ticks"),
    ({"catch_up": "all", "cap": True}, "catch_up_cap is True"),
    ({"catch_up": "all", "cap": 1001}, "catch_up_cap is 1001"),
    ({"cap": 5}, "catch_up is 'last' and catch_up_cap 5"),
    ({"catch_up": "none", "within": 3600}, "catch_up_within goes with catch_up='last' only, and not with 'none'"),
    ({"catch_up": "all", "cap": 5, "overlap": "skip"}, "which overlap='skip' forbids: choose one of them"),
    ({"within": 0}, "catch_up_within is 0; it is a minute to a year"),
    ({"within": timedelta(days=400)}, "it is a minute to a year"),
    ({"within": "1h"}, "catch_up_within is '1h'"),
    ({"job": job(priority=10)}, "recurring 'report': priority is 10; it is 0 (first) to 9 (last)"),
    ({"job": job(queue="no such")}, "queue 'no such' is not a name"),
    ({"job": job(home=None)}, "pass queue='...'"),
    ({"job": job(run_at=NOON)}, "state no run_at and no key"),
    ({"job": job(idempotency_key="k")}, "state no run_at and no key"),
]


@pytest.mark.parametrize(("stated", "why"), REFUSED, ids=[str(one[0])[:40] for one in REFUSED])
def test_what_can_be_known_to_be_wrong_is_refused_at_once(stated: dict[str, Any], why: str) -> None:
    """With the name, the value and the remedy, before a worker has looked at it."""
    with pytest.raises(RecurringError, match=re.escape(why)):
        declared(**stated)


def test_an_entry_says_everything_that_its_row_does() -> None:
    """The usual is filled in, and `@daily` is put into fields."""
    entry = declared(expression="@daily", zone="Europe/Berlin", job=job(priority=3, payload=b'{"a": 1}'))

    assert (entry.expression, entry.zone, entry.kind, entry.payload) == (
        "0 0 * * *",
        "Europe/Berlin",
        "report",
        '{"a": 1}',
    )
    assert (entry.queue, entry.priority, entry.max_attempts) == ("mail", 3, None)
    assert (entry.catch_up, entry.catch_up_within_s, entry.catch_up_cap, entry.overlap) == (
        "last",
        3600.0,
        None,
        "allow",
    )


# -- what becomes of the ticks -----------------------------------------------------------------------


def test_a_tick_is_enqueued_a_minute_before_it_comes() -> None:
    """So that it is there whatever happens to the worker in that minute; the next is looked at in time."""
    decision = decide(due(expression="1,5 12 * * *"))

    assert fired(decision) == ["12:01"]
    assert decision.decided_until == NOON + MINUTE
    assert (decision.next_tick, decision.look_at) == (NOON + 5 * MINUTE, NOON + 5 * MINUTE - AHEAD)


def test_what_is_decided_is_not_decided_again() -> None:
    """The tick that lies ahead has its job."""
    assert fired(decide(due(decided_until=NOON + MINUTE))) == []


def test_an_entry_is_looked_at_once_a_day_at_least() -> None:
    """The rules of its zone may change in a year."""
    decision = decide(due(expression="@yearly"))

    assert decision.next_tick == datetime(2027, 1, 1, tzinfo=UTC)
    assert decision.look_at == NOON + timedelta(days=1)


def test_f49_the_last_owed_tick_runs_if_it_is_not_too_late() -> None:
    """F49: a deploy over the tick loses no run; the limit is the entry's."""
    ten = due(expression="0 10 * * *", decided_until=NOON - 24 * HOUR)

    assert fired(decide(ten)) == []
    assert (decide(ten).missed, decide(ten).missed_tick) == (1, NOON - 2 * HOUR)
    late = due(expression="0 10 * * *", decided_until=NOON - 24 * HOUR, catch_up_within_s=7200.0)
    assert fired(decide(late)) == ["10:00"]
    assert (decide(late).missed, decide(late).late_s) == (0, 7200.0)


def test_f49_a_weekly_entry_fires_however_often_workers_restart() -> None:
    """F49: it is the row that remembers, so a week may have any number of starts in it."""
    entry = due(expression="30 12 * * tue", decided_until=NOON - timedelta(days=6))

    assert [fired(decide(due(**{**_fields(entry), "now": NOON + n * MINUTE}))) for n in (0, 29, 30, 40)] == [
        [],
        ["12:30"],
        ["12:30"],
        ["12:30"],
    ]


def _fields(entry: DueEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


def test_f50_ten_hours_of_a_minute_job_are_one_job() -> None:
    """F50: the last owed tick stands for all of them; none of them is missed."""
    decision = decide(due(decided_until=NOON - 10 * HOUR, now=NOON + timedelta(seconds=1)))

    assert fired(decision) == ["12:00", "12:01"]
    assert (decision.covered, decision.missed) == (599, 0)


def test_f50_all_are_at_most_as_many_as_the_cap() -> None:
    """F50: the latest five of six hundred; the others are missed, and said to be."""
    entry = due(decided_until=NOON - 10 * HOUR, catch_up="all", catch_up_cap=5, now=NOON + timedelta(seconds=1))

    assert fired(decide(entry)) == ["11:56", "11:57", "11:58", "11:59", "12:00", "12:01"]
    assert (decide(entry).missed, decide(entry).missed_tick) == (595, NOON - 5 * MINUTE)


def test_none_catches_up_with_nothing_but_takes_what_is_not_late() -> None:
    """Between the tick and the look of a worker there may always be some seconds."""
    entry = due(expression="0 12 * * *", decided_until=NOON - HOUR, catch_up="none")

    assert fired(decide(due(**{**_fields(entry), "now": NOON + MINUTE}))) == ["12:00"]
    assert fired(decide(due(**{**_fields(entry), "now": NOON + 2 * MINUTE}))) == []
    assert decide(due(**{**_fields(entry), "now": NOON + 2 * MINUTE})).missed_tick == NOON


def test_who_must_not_overlap_is_decided_when_the_tick_comes() -> None:
    """A minute before nobody knows whether the previous run will have ended."""
    decision = decide(due(overlap="skip", expression="1,2 12 * * *"))

    assert fired(decision) == []
    assert decision.look_at == decision.next_tick == NOON + MINUTE


@pytest.mark.parametrize(
    ("overlap", "held", "is_busy", "fires", "holds", "skips"),
    [
        ("skip", None, False, ["12:00"], None, 0),
        ("skip", None, True, [], None, 1),
        ("queue", None, False, ["12:00"], None, 0),
        ("queue", None, True, [], "12:00", 0),
        ("queue", NOON - MINUTE, True, [], "11:59", 1),
        ("queue", NOON - MINUTE, False, ["11:59"], "12:00", 0),
    ],
)
def test_a_tick_that_meets_an_unfinished_run(
    overlap: str, held: datetime | None, is_busy: bool, fires: list[str], holds: str | None, skips: int
) -> None:
    """It is skipped, or the one that waits; what waits goes first, and nothing is enqueued beside a run."""
    decision = decide(due(overlap=overlap, held_tick=held, is_busy=is_busy, decided_until=NOON - MINUTE))

    assert fired(decision) == fires
    assert (decision.held_tick and f"{decision.held_tick:%H:%M}") == holds
    assert decision.skipped == skips
    assert decision.decided_until == NOON
    assert decision.look_at == (NOON + MINUTE if holds is None else NOON + timedelta(seconds=1))


@given(
    expression=st.sampled_from(["* * * * *", "*/7 * * * *", "30 */2 * * *"]),
    looks=st.lists(st.integers(1, 200), min_size=1, max_size=40),
)
def test_whenever_it_is_looked_at_each_tick_is_decided_once(expression: str, looks: list[int]) -> None:
    """Whatever the pauses, with all and without a cap that matters: each tick is enqueued, in order, and once."""
    now, entry = NOON, due(expression=expression, catch_up="all", catch_up_cap=1000)
    found: list[datetime] = []
    for pause in looks:
        decision = decide(entry)
        found += decision.fire
        now += pause * timedelta(seconds=20)
        entry = due(**{**_fields(entry), "decided_until": decision.decided_until, "now": now})
        assert decision.missed == decision.skipped == 0

    ticks = takewhile(lambda tick: tick <= entry.decided_until, Schedule(expression, "UTC").after(NOON))
    assert found == list(ticks)
