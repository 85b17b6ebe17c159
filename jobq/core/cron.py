"""When a recurring entry is due: five fields of cron in a time zone, and the ticks that they name.

cronsim reads the fields and walks the calendar. What becomes of a time where clocks are changed is decided here, by the
rules of Debian's cron, in any zone and in both directions:

- An entry with fixed times (neither its minute nor its hour begins with `*`) runs once for each time that it names:
  what the clocks skip, at the first moment after the gap; what comes twice, at the first of the two.
- Any other goes by the time that passes: at each minute that exists and fits, also when it comes again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from jobq.core.names import shown
from jobq.errors import RecurringError

MEANINGS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

MAX_EXPRESSION = 200
"""Characters: a list of every minute has 170."""

_FIELDS = (
    "write five fields: minute (0-59), hour (0-23), day of the month (1-31), month (1-12 or jan-dec), day of the week"
    " (0-7 or sun-sat), such as '0 9 * * mon-fri'"
)
_ANY_TIME = datetime(2000, 1, 1)
"""What names no minute in the fifty years after it names none at all."""

_SECOND = timedelta(seconds=1)


class Schedule:
    """An expression in a zone. Raises `RecurringError`, with the value and the remedy, for what cannot be."""

    def __init__(self, expression: str, zone: str) -> None:
        self.fields = read_fields(expression)
        self.zone = read_zone(zone)
        self._is_fixed = not any(field.startswith("*") for field in self.fields.split()[:2])

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks after *moment*, in their order, in UTC. Fifty years without one end it."""
        wall, ambiguity = self._wall(moment)
        last = moment
        for tick in self._in_order(CronSim(self.fields, wall - ambiguity)):
            if tick > last:
                yield tick
                last = tick

    def until(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks up to and with *moment*, the latest first, in UTC."""
        wall, ambiguity = self._wall(moment)
        last = moment + timedelta.resolution
        for tick in self._in_order(CronSim(self.fields, wall + ambiguity + _SECOND, reverse=True), sign=-1):
            if tick < last:
                yield tick
                last = tick

    def _wall(self, moment: datetime) -> tuple[datetime, timedelta]:
        """What a clock on the wall shows at *moment*, and by how much it is put back if it shows that twice."""
        local = moment.astimezone(self.zone)
        ambiguity = _offset(local.replace(fold=0)) - _offset(local.replace(fold=1))
        return local.replace(microsecond=0, tzinfo=None, fold=0), max(ambiguity, timedelta(0))

    def _in_order(self, walls: Iterator[datetime], *, sign: int = 1) -> Iterator[datetime]:
        """Yield the moments of *walls*, which ascend, or descend if *sign* is -1.

        What a clock shows twice comes again after other times that it shows: of the two moments the one that is met
        first keeps the order of *walls*, and the other waits until they have come past it.
        """
        waiting: list[tuple[float, datetime]] = []
        for wall in walls:
            moments = self._moments(wall)[::sign]
            while moments and waiting and waiting[0][0] < sign * moments[0].timestamp():
                yield heappop(waiting)[1]
            yield from moments[:1]
            for moment in moments[1:]:
                heappush(waiting, (sign * moment.timestamp(), moment))
        while waiting:
            yield heappop(waiting)[1]

    def _moments(self, wall: datetime) -> list[datetime]:
        """Return when a clock that shows *wall* makes this entry due: never, once or twice."""
        early = wall.replace(tzinfo=self.zone, fold=0)
        late = early.replace(fold=1)
        before, after = _offset(early), _offset(late)
        if before == after:
            return [_utc(wall, before)]
        if before > after:
            return [_utc(wall, before)] if self._is_fixed else [_utc(wall, before), _utc(wall, after)]
        return [self._end_of_gap(_utc(wall, after), _utc(wall, before))] if self._is_fixed else []

    def _end_of_gap(self, before: datetime, after: datetime) -> datetime:
        """Return the moment between the two at which the clocks are put forward, to the second."""
        old = _offset(before.astimezone(self.zone))
        while after - before > _SECOND:
            middle = before + (after - before) // 2
            middle = middle.replace(microsecond=0)
            if _offset(middle.astimezone(self.zone)) == old:
                before = middle
            else:
                after = middle
        return after


def read_fields(expression: object) -> str:
    """Return the five fields of *expression*; `@daily` and its like are put into fields.

    Raises `RecurringError` unless it is an expression of cron that names a time which can come.
    """
    if not isinstance(expression, str) or not expression.isascii() or not 0 < len(expression) <= MAX_EXPRESSION:
        raise _refused(expression, f"is not a text of 1 to {MAX_EXPRESSION} ASCII characters; {_FIELDS}")
    fields = MEANINGS.get(expression.strip().lower(), expression).split()
    if fields and fields[0].startswith("@"):
        known = ", ".join(MEANINGS)
        why = "is not known" + ("; what runs at the start belongs into lifespan" if fields[0] == "@reboot" else "")
        raise _refused(expression, f"{why}; use one of {known}, or {_FIELDS}")
    if len(fields) != 5:
        more = ": there is no field for seconds, and none for years" if len(fields) > 5 else ""
        raise _refused(expression, f"has {len(fields)} field{'s' * (len(fields) != 1)}{more}; {_FIELDS}")
    text = " ".join(fields)
    try:
        next(CronSim(text, _ANY_TIME))
    except CronSimError as error:
        what = str(error)
        if what == "Bad day-of-month" and re.fullmatch(r"[\d,-]+", fields[2]) and _is_day(fields[2]):
            raise _refused(expression, "names a day that none of its months has, such as 30 February") from None
        raise _refused(expression, f"cannot be read: {what[:1].lower()}{what[1:]}; {_FIELDS}") from None
    except StopIteration:
        raise _refused(expression, "names a time that never comes, such as 30 February") from None
    return text


def read_zone(name: object) -> ZoneInfo:
    """Return the time zone *name*. Raises `RecurringError` if it is not known, or another one on each machine."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", name):
        raise RecurringError(f"time zone {shown(name)} is no name; use one such as 'Europe/Berlin' or 'UTC'")
    if name in ("localtime", "posixrules", "Factory"):
        raise RecurringError(
            f"time zone {name!r} means another one on each machine; use a name such as 'Europe/Berlin' or 'UTC'"
        )
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RecurringError(
            f"time zone {shown(name)} is not known here; use a name such as 'Europe/Berlin' or 'UTC', and if it is one,"
            " install tzdata, of the system or from PyPI"
        ) from None


def _is_day(field: str) -> bool:
    return all(number.isdigit() and 1 <= int(number) <= 31 for number in re.split("[,-]", field))


def _offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None  # each zone of zoneinfo has one at all times
    return offset


def _utc(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)


def _refused(expression: object, why: str) -> RecurringError:
    return RecurringError(f"expression {shown(expression)} {why}")
