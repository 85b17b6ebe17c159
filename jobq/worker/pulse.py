"""How a loop shows that it lives, and how it lives through a database that is away.

Two notions of health. *Alive*: the loop comes round, even if only to note that the database is away; a loop that does
not is stuck, and the process should be replaced. *Working*: it has succeeded lately; a worker that is alive and not
working should get no trust, and no restart either, because restarting does not bring a database back.
"""

from __future__ import annotations

import math
import random
import time

import anyio
import msgspec

from jobq.errors import ConflictError, DatabaseError, PreparedStatementError
from jobq.telemetry.events import DatabaseAway, DatabaseBack, Emit, PreparedStatementsLost

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
CONFLICT_PAUSE_S = 0.05
CONFLICTS_IN_A_ROW = 3


class Pulse:
    """The pulse of one loop: when it came round last, when it worked last, since when its database is away.

    *bound_s* is how long a turn may take. A loop that waits for work, and would be woken, rests: that counts as both.
    Written by the loop, read by the heartbeat's thread.
    """

    def __init__(self, loop: str, *, bound_s: float, emit: Emit) -> None:
        self.loop = loop
        self.bound_s = bound_s
        self._emit = emit
        self._came_round_at = time.monotonic()
        self._worked_at = time.monotonic()
        self._resting = False
        self._away_since: float | None = None
        self._failures = 0
        self._conflicts = 0

    # -- by the loop ---------------------------------------------------------------------------------

    def worked(self) -> None:
        """Note a turn that succeeded."""
        self._resting = False
        self._conflicts = 0
        self._came_round_at = self._worked_at = time.monotonic()
        if self._away_since is not None:
            self._emit(DatabaseBack(self.loop, time.monotonic() - self._away_since))
            self._away_since = None
            self._failures = 0

    def rest(self) -> None:
        """Note that the loop waits for work now, however long that takes."""
        self._resting = True

    def begin(self) -> None:
        """Note that the loop has been woken and begins a turn."""
        self._resting = False
        self._came_round_at = time.monotonic()

    async def pause(self, error: DatabaseError) -> None:
        """Note a turn without a database, and wait before the next: exponential, jittered, at most five seconds.

        A conflict with another transaction is no outage but a moment's wait, unless it meets one again and again.
        """
        self._resting = False
        self._came_round_at = time.monotonic()
        if isinstance(error, PreparedStatementError):
            self._emit(PreparedStatementsLost(str(error)))
        if isinstance(error, ConflictError) and self._conflicts < CONFLICTS_IN_A_ROW:
            self._conflicts += 1
            await anyio.sleep(random.random() * CONFLICT_PAUSE_S)
            return
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._emit(DatabaseAway(self.loop, str(error)))
        bound_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        await anyio.sleep(bound_s * (0.5 + random.random() / 2))

    # -- by whoever asks -----------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Whether the loop comes round."""
        return self.is_alive_since(-math.inf)

    def is_alive_since(self, since: float) -> bool:
        """Whether the loop comes round, given that it could not before *since* (monotonic): its bound counts anew."""
        return self._resting or time.monotonic() - max(self._came_round_at, since) < self.bound_s

    @property
    def is_working(self) -> bool:
        """Whether the loop has succeeded lately."""
        return self._away_since is None and (self._resting or time.monotonic() - self._worked_at < self.bound_s)


class Vitals(msgspec.Struct):
    """The pulses of a worker."""

    pulses: list[Pulse]

    def stuck(self, *, since: float = -math.inf) -> list[str]:
        """Return the loops that do not come round, though they could from *since* on: a handler blocked them before."""
        return [pulse.loop for pulse in self.pulses if not pulse.is_alive_since(since)]

    def failing(self) -> list[str]:
        """Return the loops that have not succeeded lately."""
        return [pulse.loop for pulse in self.pulses if not pulse.is_working]
