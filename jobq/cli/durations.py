"""Durations as people type them (`90s`, `15m`, `24h`, `7d`, `1h30m`), and as they read them (`3 h ago`)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1), "s": timedelta(seconds=1)}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PART = re.compile(rf"({_NUMBER.pattern})([dhms])")
_DURATION = re.compile(rf"(?:{_NUMBER.pattern}[dhms])+")


def duration(text: str) -> timedelta:
    """Return what *text* says. A number without a unit is refused, unless it is 0: `7` could be days or seconds.

    Raises `typer.BadParameter`, which the command line reports as a usage error.
    """
    if _NUMBER.fullmatch(text) and float(text) != 0:
        raise typer.BadParameter(f"{text} of what? Write {text}s, {text}m, {text}h or {text}d.")
    return duration_or_seconds(text)


def duration_or_seconds(text: str) -> timedelta:
    """Return what *text* says; a number without a unit counts seconds, as in a systemd unit."""
    spelled = f"{text}s" if _NUMBER.fullmatch(text) else text
    if not _DURATION.fullmatch(spelled):
        raise typer.BadParameter(f"{text!r} is not a duration: write 30s, 15m, 24h or 7d, or several as in 1h30m.")
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(spelled)), timedelta())
    except OverflowError:
        raise typer.BadParameter(f"{text} is too long.") from None


def in_seconds(span: timedelta) -> str:
    """Return *span* as an option takes it, `90s`, to the millisecond."""
    return f"{span.total_seconds():.3f}".rstrip("0").rstrip(".") + "s"


def words(span: timedelta) -> str:
    """Return *span* in its largest fitting unit: `45 s`, `12 min`, `5 h`, `3 d`. A negative one counts as 0."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h"
    return f"{seconds // 86400} d"


def moment(at: datetime, *, now: datetime) -> str:
    """Return a time in UTC, with its offset and with its distance from *now*."""
    distance = f"in {words(at - now)}" if at > now else f"{words(now - at)} ago"
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S%z} ({distance})".replace("+0000", "+00:00")
