"""`skewed.py SECONDS run ...`: the program `jobq` in a process whose wall clock is wrong by so many seconds.

Not a wrong clock of the machine, which the tests may not set: what Python code asks for the time is replaced before
anything of jobq is imported. C code and the clocks that only count on are not wrong, and do not matter here.
"""

from __future__ import annotations

import datetime
import sys
import time
from typing import Any, Self

AHEAD_S = float(sys.argv.pop(1))

_RIGHT = datetime.datetime
_right_time, _right_time_ns = time.time, time.time_ns


class _AsRight(type):
    """`isinstance` takes a right time for a skewed one: both are met, because C code makes the right ones."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RIGHT)


class _Skewed(datetime.datetime, metaclass=_AsRight):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return super().now(tz) + datetime.timedelta(seconds=AHEAD_S)

    @classmethod
    def utcnow(cls) -> Self:
        return cls.now(datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Self:
        return cls.now()


def skew() -> None:
    """Let the wall clock of this process be wrong."""
    replaced: list[tuple[object, str, Any]] = [
        (time, "time", lambda: _right_time() + AHEAD_S),
        (time, "time_ns", lambda: _right_time_ns() + int(AHEAD_S * 1e9)),
        (datetime, "datetime", _Skewed),
    ]
    for where, name, skewed in replaced:
        setattr(where, name, skewed)


if __name__ == "__main__":
    assert "jobq" not in sys.modules
    skew()
    from jobq import queue
    from jobq.cli.main import main

    seen = vars(queue)["datetime"].now(datetime.UTC)
    print(f"off by {round(seen.timestamp() - _right_time())} s: jobq sees {seen}", flush=True)
    main()
