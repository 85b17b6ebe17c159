"""What the handlers of all worker processes did, in a file that the queue cannot touch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

T = TypeVar("T")

LIMIT_S = 20.0
LOOK_EVERY_S = 0.01


class Effect(msgspec.Struct, frozen=True):
    """One line: *what* a handler did, in which attempt and process, and when by `now`."""

    what: str
    id: int
    kind: str
    attempt: int
    fence: int
    pid: int
    at: float
    token: str = ""


def now() -> float:
    """Return the clock of the ledger, which goes on in a stopped process."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Ledger:
    """The effects, read anew at each look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def effects(self, what: str | None = None, *, of: int | None = None, kind: str | None = None) -> list[Effect]:
        """Return the effects so far, in order: of one sort, of one job, of one kind."""
        lines = self.path.read_bytes().splitlines()
        return [
            effect
            for effect in (msgspec.json.decode(line, type=Effect) for line in lines)
            if what in (None, effect.what) and of in (None, effect.id) and kind in (None, effect.kind)
        ]

    def starts(self, job_id: int) -> int:
        """Return how often a job's handler was called."""
        return len(self.effects("start", of=job_id))

    async def until(
        self, what: str, count: int = 1, *, of: int | None = None, kind: str | None = None, limit_s: float = LIMIT_S
    ) -> list[Effect]:
        """Wait for so many effects, and return them."""
        return await until(
            lambda: self.effects(what, of=of, kind=kind),
            lambda found: len(found) >= count,
            limit_s=limit_s,
            what=f"{count} times {what!r}",
        )


async def until(
    look: Callable[[], T], is_there: Callable[[T], object], *, limit_s: float = LIMIT_S, what: str = "it"
) -> T:
    """Look at something outside the database until it is there, and return it."""
    give_up_at = time.monotonic() + limit_s
    while not is_there(found := look()):
        if time.monotonic() > give_up_at:
            pytest.fail(f"{what} not there within {limit_s:g} s; last seen: {found!r}")
        await asyncio.sleep(LOOK_EVERY_S)
    return found
