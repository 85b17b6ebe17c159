"""How a claim loop waits when it has found less than it could take: asleep for few jobs, polling for many.

A sleeper is notified by every enqueue of its queue, which costs the enqueue a lock of the whole server;
above some rate it is cheaper for everybody that the worker looks by itself every few milliseconds.
"""

from __future__ import annotations

import math
from enum import Enum

BUSY_ABOVE_PER_S = 50.0
"""Above this rate of jobs the loop polls; 50 notified commits a second cost an enqueuer nothing that it notices."""

ASLEEP_BELOW_PER_S = 25.0
"""Below this rate it sleeps again; half, so that a rate around the bound does not write the flag for ever."""

_MEMORY_S = 1.0


class Rest(Enum):
    """What a claim loop does next."""

    LOOK_AGAIN = "look again at once"
    POLL = "look again in a few milliseconds, not notified"
    SLEEP = "wait for a notification, or the poll"


class Ahead:
    """How many jobs a claim loop takes beyond the free slots, so that no slot is idle during the next claim.

    Twice what finishes during a claim: the loop claims again when half of that is used up, and the other half lasts
    until the answer. Nothing for jobs that take much longer than a claim: what waits here could run elsewhere.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._finished = 0
        self._finished_lately = 0.0
        self._answered_at: float | None = None

    def after(self, *, finished: int, took_s: float, now: float) -> int:
        """Return how many, after a claim that *took_s*; *finished* is how many attempts have, in all.

        *now* is monotonic.
        """
        elapsed_s = 0.0 if self._answered_at is None else max(0.0, now - self._answered_at)
        self._answered_at = now
        self._finished_lately = self._finished_lately * math.exp(-elapsed_s / _MEMORY_S) + finished - self._finished
        self._finished = finished
        return min(self._most, int(2 * self._finished_lately / _MEMORY_S * took_s))


class Pace:
    """The rate at which a claim loop finds jobs, forgotten over a second, and what follows from it."""

    def __init__(self) -> None:
        self._found_lately = 0.0
        self._looked_at = 0.0
        self._busy = False

    def after(self, found: int, limit: int, *, now: float) -> Rest:
        """Say how to rest after a claim that *found* jobs where it could have taken *limit*. *now* is monotonic."""
        elapsed_s = max(0.0, now - self._looked_at)
        self._looked_at = now
        self._found_lately = self._found_lately * math.exp(-elapsed_s / _MEMORY_S) + found
        rate_per_s = self._found_lately / _MEMORY_S
        self._busy = rate_per_s > (ASLEEP_BELOW_PER_S if self._busy else BUSY_ABOVE_PER_S)
        if found >= limit:
            return Rest.LOOK_AGAIN
        return Rest.POLL if self._busy else Rest.SLEEP
