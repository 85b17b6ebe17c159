"""Log records as lines of JSON: one object a line, the same for jobq's events and for the application's own records.

A formatter like any other of `logging`; `jobq run --log-format json` uses it, and so may a configuration of your own.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import orjson

from jobq.telemetry.context import ids_of_context

_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "event", "fields"}
"""What `logging` itself puts on a record, and what jobq does: the rest is `extra=` of whoever logged it."""


class JsonLines(logging.Formatter):
    """Time, level, logger and message; the ids of worker and job; an event's name and fields, or what `extra=` gave."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line. What a record holds beside its message may be anything."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if isinstance(event := getattr(record, "event", None), str):
            line["event"] = event
        more = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        if isinstance(fields := getattr(record, "fields", None), dict):
            more |= fields
        if record.exc_info:
            more["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            more["stack"] = self.formatStack(record.stack_info)
        return _encoded({**line, **ids_of_context(), **more, **line})


def _encoded(line: dict[str, object]) -> str:
    try:
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # a lone surrogate, a huge integer, a cycle: what the standard library can still write
        return json.dumps({name: _plain(value) for name, value in line.items()})


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
