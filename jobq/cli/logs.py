"""Log lines for people or programs: on stderr, with the time in UTC, of jobq and of the user's own loggers alike."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

from jobq.cli.output import printable
from jobq.telemetry.json_lines import JsonLines


class LogLevel(StrEnum):
    """What is shown: this and worse."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How it is shown."""

    HUMAN = "human"
    JSON = "json"


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))  # an error's message may hold anything

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        return at.isoformat(sep=" ", timespec="milliseconds")


def show_log(level: LogLevel, shown_as: LogFormat = LogFormat.HUMAN) -> None:
    """Show what is logged from now on, unless the user's module configures logging itself.

    As JSON, warnings of Python's are logged too: a stranger's line among them would break whoever reads it.
    """
    handler = logging.StreamHandler(sys.stderr)
    match shown_as:
        case LogFormat.HUMAN:
            handler.setFormatter(_Lines("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
        case LogFormat.JSON:
            handler.setFormatter(JsonLines())
            logging.captureWarnings(True)
    logging.basicConfig(level=level.value.upper(), handlers=[handler])


def keep_log_enabled() -> None:
    """Undo what `logging.config.dictConfig` does by default to loggers that it does not name."""
    logging.getLogger("jobq").disabled = False
