"""Expressions and zones: what is refused, which times the fields name, and what runs when clocks are changed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq import RecurringError
from jobq.core.cron import MEANINGS, Schedule, read_fields

MINUTE = timedelta(minutes=1)

KNOWN = [
    # Known answers, the first three after noon on Tuesday, 1 December 2026; weekday 0 and 7 are Sunday.
    ("0 9 * * mon-fri", ["12-02 09:00", "12-03 09:00", "12-04 09:00"]),
    ("0 9 * * 1-5", ["12-02 09:00", "12-03 09:00", "12-04 09:00"]),
    ("30 7 * * 0", ["12-06 07:30", "12-13 07:30", "12-20 07:30"]),
    ("30 7 * * 7", ["12-06 07:30", "12-13 07:30", "12-20 07:30"]),
    ("30 7 * * SUN", ["12-06 07:30", "12-13 07:30", "12-20 07:30"]),
    ("*/20 * * * *", ["12-01 12:20", "12-01 12:40", "12-01 13:00"]),
    ("5-59/25 12 * * *", ["12-01 12:05", "12-01 12:30", "12-01 12:55"]),
    ("0 0 13 * fri", ["12-04 00:00", "12-11 00:00", "12-13 00:00"]),
    ("0 0 31 * *", ["12-31 00:00", "01-31 00:00", "03-31 00:00"]),
    ("0 0 29 2 *", ["02-29 00:00", "02-29 00:00", "02-29 00:00"]),
    ("0 0 L * *", ["12-31 00:00", "01-31 00:00", "02-28 00:00"]),
    ("0 12 * jan,jul mon#1", ["01-04 12:00", "07-05 12:00", "01-03 12:00"]),
    ("@hourly", ["12-01 13:00", "12-01 14:00", "12-01 15:00"]),
    ("@daily", ["12-02 00:00", "12-03 00:00", "12-04 00:00"]),
    ("@midnight", ["12-02 00:00", "12-03 00:00", "12-04 00:00"]),
    ("@weekly", ["12-06 00:00", "12-13 00:00", "12-20 00:00"]),
    ("@monthly", ["01-01 00:00", "02-01 00:00", "03-01 00:00"]),
    ("@yearly", ["01-01 00:00", "01-01 00:00", "01-01 00:00"]),
    ("@annually", ["01-01 00:00", "01-01 00:00", "01-01 00:00"]),
]

REFUSED = [
    ("0 0 30 2 *", "a day that none of its months has, such as 30 February"),
    ("0 0 31 4,6,9,11 *", "a day that none of its months has"),
    ("* * * *", "has 4 fields; write five fields"),
    ("0 0 9 * * *", "has 6 fields: there is no field for seconds"),
    ("0 0 9 * * * 2026", "has 7 fields: there is no field for seconds, and none for years"),
    ("", "is not a text of 1 to 200"),
    (" ", "has 0 fields"),
    ("60 * * * *", "bad minute"),
    ("* 24 * * *", "bad hour"),
    ("* * 0 * *", "bad day-of-month"),
    ("* * 32 * *", "bad day-of-month"),
    ("* * * 13 *", "bad month"),
    ("* * * * 8", "bad day-of-week"),
    ("* * * * fri-mon", "bad day-of-week"),
    ("*/0 * * * *", "bad minute"),
    ("-5 * * * *", "bad minute"),
    ("1.5 * * * *", "bad minute"),
    ("@reboot", "what runs at the start belongs into lifespan"),
    ("@fortnightly", "use one of @yearly"),
    ("every day at 9 o'clock", "cannot be read"),
    ("* * * * " + "1," * 200 + "1", "is not a text of 1 to 200"),
    ("\N{FULLWIDTH DIGIT ONE} * * * *", "ASCII"),
    (None, "is not a text"),
    (9, "is not a text"),
]


@pytest.mark.parametrize(("expression", "expected"), KNOWN, ids=[one[0] for one in KNOWN])
def test_f54_the_fields_name_the_times_that_they_name_elsewhere(expression: str, expected: list[str]) -> None:
    """F54: names, lists, ranges, steps; both numbers of Sunday; either day if both are stated; no 31st, no run."""
    found = islice(Schedule(expression, "UTC").after(datetime(2026, 12, 1, 12, tzinfo=UTC)), 3)

    assert [f"{tick:%m-%d %H:%M}" for tick in found] == expected


@pytest.mark.parametrize(("expression", "why"), REFUSED, ids=[str(one[0])[:20] for one in REFUSED])
def test_f54_what_is_no_expression_of_five_fields_is_refused_with_the_value(expression: object, why: str) -> None:
    """F54: no seconds, no guesses; with the value and with what to write."""
    with pytest.raises(RecurringError) as caught:
        read_fields(expression)

    assert str(caught.value).startswith("expression ")
    assert why in str(caught.value)


@given(st.text("0123456789*/,-#LW@adefjilmnoprstuwy ", max_size=30) | st.text(max_size=10))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    """No expression raises anything else, and one that is read has a tick."""
    try:
        fields = read_fields(text)
    except RecurringError:
        return
    assert next(Schedule(fields, "UTC").after(datetime(2026, 12, 1, tzinfo=UTC))).tzinfo is UTC


@pytest.mark.parametrize(
    "zone", ["Europe/Berlim", "localtime", "posixrules", "/etc/localtime", "../UTC", "Europe", "", None]
)
def test_a_zone_that_is_none_is_refused(zone: object) -> None:
    """With its name, and with what could be meant."""
    with pytest.raises(RecurringError, match=re.escape(f"time zone {zone!r} ") + ".*such as 'Europe/Berlin'"):
        Schedule("@daily", zone)  # type: ignore[arg-type]  # what a caller without a type checker may pass


# -- where clocks are changed ------------------------------------------------------------------------

NIGHTS = [
    # F48: zone, when it begins there, expression, and all that runs in the next 20 hours, or how often.
    ("Europe/Berlin", "2026-03-29 00:00", "30 2 * * *", ["03:00+0200"]),
    ("Europe/Berlin", "2026-03-29 00:00", "0,30 2 * * *", ["03:00+0200"]),
    ("Europe/Berlin", "2026-03-28 23:00", "0 */6 * * *", ["00:00+0100", "06:00+0200", "12:00+0200", "18:00+0200"]),
    ("Europe/Berlin", "2026-03-29 00:00", "*/15 * * * *", 80),
    ("Europe/Berlin", "2026-10-25 00:00", "30 2 * * *", ["02:30+0200"]),
    ("Europe/Berlin", "2026-10-25 00:00", "30 1,3 * * *", ["01:30+0200", "03:30+0100"]),
    ("Europe/Berlin", "2026-10-25 00:00", "30 * * * *", 20),
    ("America/New_York", "2026-03-08 00:00", "15 2 * * *", ["03:00-0400"]),
    ("America/New_York", "2026-11-01 00:00", "30 1 * * *", ["01:30-0400"]),
    ("America/New_York", "2026-11-01 00:00", "*/15 1 * * *", 8),
    ("America/Sao_Paulo", "2018-11-03 12:00", "0 0 * * *", ["01:00-0200"]),
    ("America/Santiago", "2026-09-05 12:00", "0 0 * * *", ["01:00-0300"]),
    ("Australia/Lord_Howe", "2026-10-04 00:00", "15 2 * * *", ["02:30+1100"]),
    ("Australia/Lord_Howe", "2026-04-05 00:00", "45 1 * * *", ["01:45+1100"]),
    ("Australia/Lord_Howe", "2026-04-05 00:00", "*/10 2 * * *", 6),
    ("UTC", "2026-03-29 00:00", "30 2 * * *", ["02:30+0000"]),
]


@pytest.mark.parametrize(("zone", "start", "expression", "expected"), NIGHTS, ids=[" ".join(one[:3]) for one in NIGHTS])
def test_f48_what_runs_in_a_night_in_which_clocks_are_changed(
    zone: str, start: str, expression: str, expected: list[str] | int
) -> None:
    """F48: fixed times run once, after the gap or at the first of two; others go by the time that passes."""
    begin = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)

    ticks = between(Schedule(expression, zone), begin, begin + timedelta(hours=20))

    found = [f"{tick.astimezone(ZoneInfo(zone)):%H:%M%z}" for tick in ticks]
    assert (len(found) if isinstance(expected, int) else found) == expected


EXPRESSIONS = ["30 2 * * *", "0,15,45 0-3,23 * * *", "*/30 * * * *", "7 * * * *", "*/10 0-3 * * *", "0 0 1-31 * *"]


@cache
def changes(zone: str) -> list[datetime]:
    """When the clocks of *zone* are changed in three years; no zone changes them twice in a week."""
    info, first = ZoneInfo(zone), datetime(2025, 1, 1, tzinfo=UTC)
    weeks = [first + timedelta(weeks=n) for n in range(3 * 53)]
    found = []
    for before, after in pairwise(weeks):
        if before.astimezone(info).utcoffset() == after.astimezone(info).utcoffset():
            continue
        while after - before > MINUTE:
            middle = before + (after - before) // 2 // MINUTE * MINUTE
            if middle.astimezone(info).utcoffset() == before.astimezone(info).utcoffset():
                before = middle
            else:
                after = middle
        found.append(after)
    return found


def between(schedule: Schedule, start: datetime, end: datetime) -> list[datetime]:
    """The ticks after *start*, up to and with *end*."""
    return list(takewhile(lambda tick: tick <= end, schedule.after(start)))


def by_the_clock(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """What an observer of a clock on the wall would do, minute by minute; the rules, told a second time."""
    info = ZoneInfo(zone)
    fits = {tick.replace(tzinfo=None) for tick in between(Schedule(expression, "UTC"), *walls(start, end))}
    is_fixed = not any(field.startswith("*") for field in expression.split()[:2])
    found, moment = [], start
    seen: set[datetime] = set()
    last = start.astimezone(info).replace(tzinfo=None)
    # Fixed times that came before the observer did come a second time for nobody.
    if is_fixed:
        seen = {(start - n * MINUTE).astimezone(info).replace(tzinfo=None, fold=0) for n in range(4 * 60)}
    while (moment := moment + MINUTE) <= end:
        wall = moment.astimezone(info).replace(tzinfo=None, fold=0)
        passed = [wall]
        if is_fixed and wall - last > MINUTE:  # a gap
            passed = [last + n * MINUTE for n in range(1, (wall - last) // MINUTE + 1)]
        if any(one in fits and one not in seen for one in passed):
            found.append(moment)
        if is_fixed:
            seen.update(passed)
        last = wall
    return found


def walls(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """The moments in whose numbers every clock of the world lies between."""
    return start - timedelta(hours=30), end + timedelta(hours=30)


@cache
def rules() -> list[tuple[str, datetime]]:
    """The changes of all zones; of those that change at one moment from and to the same time, one stands for all."""
    found = {}
    for zone in sorted(available_timezones()):
        if zone in ("localtime", "Factory") or zone.startswith(("posix", "right/")):
            continue
        for change in changes(zone):
            local = change.astimezone(ZoneInfo(zone))
            before = (change - MINUTE).astimezone(ZoneInfo(zone))
            found[change, local.utcoffset(), before.utcoffset()] = (zone, change)
    return list(found.values())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_f48_at_each_change_of_each_zone_the_ticks_are_those_of_the_clock(expression: str) -> None:
    """F48: forwards and backwards, from four hours before a change to four hours after it, begun anywhere."""
    every = rules()
    assert len(every) > 20

    for zone, change in every:
        schedule = Schedule(expression, zone)
        start, end = change - timedelta(hours=4), change + timedelta(hours=4)
        expected = by_the_clock(expression, zone, start, end)

        assert between(schedule, start, end) == expected, (zone, change)
        backwards = list(islice(schedule.until(end), len(expected) + 1))
        assert backwards[:-1] == expected[::-1], (zone, change)
        assert backwards[-1] <= start, (zone, change)
        for hours in (-2.5, -0.5, 0.0, 0.25, 1.5):
            middle = change + timedelta(hours=hours)
            assert between(schedule, middle, end) == [tick for tick in expected if tick > middle], (zone, middle)


def test_every_zone_is_read() -> None:
    """All that this machine knows, but for those that mean its own."""
    for zone in available_timezones() - {"localtime", "Factory"}:
        if not zone.startswith("posixrules"):
            assert next(Schedule("@daily", zone).after(datetime(2026, 12, 1, tzinfo=UTC))).day <= 2


@given(
    st.sampled_from(["Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]),
    st.sampled_from([*EXPRESSIONS, *MEANINGS, "0 9 * * mon-fri", "0 0 29 2 *", "*/7 5 13 * fri"]),
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),
)
def test_backwards_it_is_the_same(zone: str, expression: str, moment: datetime) -> None:
    """The ticks until the fifth after a moment are, the other way round, the five and those before."""
    schedule = Schedule(expression, zone)

    ticks = list(islice(schedule.after(moment), 5))

    assert list(islice(schedule.until(ticks[-1]), 5)) == ticks[::-1]
    assert ticks == sorted(set(ticks))
    assert next(schedule.until(moment)) <= moment < ticks[0]
