"""How a loop lives through a database that is away: it says so once, backs off, and says when it is over."""

from __future__ import annotations

import random
import time

import anyio

from jobq.errors import ConflictError, DatabaseError
from jobq.telemetry.events import DatabaseAway, DatabaseBack, Emit

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
CONFLICT_PAUSE_S = 0.05
CONFLICTS_IN_A_ROW = 3


class Outage:
    """The memory of one loop about its database: away since when, and how often it has tried."""

    def __init__(self, loop: str, emit: Emit) -> None:
        self._loop = loop
        self._emit = emit
        self._since: float | None = None
        self._failures = 0
        self._conflicts = 0

    async def pause(self, error: DatabaseError) -> None:
        """Note a failure and wait before the next try: exponential, jittered, at most five seconds.

        A conflict with another transaction is no outage but a moment's wait, unless it meets one again and again.
        """
        if isinstance(error, ConflictError) and self._conflicts < CONFLICTS_IN_A_ROW:
            self._conflicts += 1
            await anyio.sleep(random.random() * CONFLICT_PAUSE_S)
            return
        if self._since is None:
            self._since = time.monotonic()
            self._emit(DatabaseAway(self._loop, str(error)))
        bound_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        await anyio.sleep(bound_s * (0.5 + random.random() / 2))

    def over(self) -> None:
        """Note a success."""
        self._conflicts = 0
        if self._since is not None:
            self._emit(DatabaseBack(self._loop, time.monotonic() - self._since))
            self._since = None
            self._failures = 0
