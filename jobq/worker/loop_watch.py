"""Watches the event loop from the heartbeat's thread: names what blocks it, and settles what it can no longer end."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import Callable, Sequence

import anyio

from jobq.core.job import JobId, WorkerId
from jobq.core.outcomes import TimedOut, judge
from jobq.db.connect import Link
from jobq.db.store import Store
from jobq.errors import DatabaseError
from jobq.telemetry.events import Emit, LoopBlocked, LoopUnblocked
from jobq.telemetry.measured import LoopTurned
from jobq.worker.in_hand import InHand
from jobq.worker.pulse import Pulse
from jobq.worker.settler import Settlement, tell, write_outcomes
from jobq.worker.whereabouts import line_of_thread

TURN_S = 0.25
"""How often the event loop shows that it turns."""

BLOCKED_AFTER_S = 1.0
"""Without a turn for this long the loop counts as blocked."""

WATCH_S = 0.25
"""How often the thread looks."""


class LoopWatch:
    """The watch over one event loop: `turn` runs on it, `watch` in the thread."""

    def __init__(
        self, *, store: Store, link: Link, worker_id: WorkerId, in_hand: Callable[[], Sequence[InHand]], emit: Emit
    ) -> None:
        self._store = store
        self._link = link
        self._worker_id = worker_id
        self._in_hand = in_hand
        self._emit = emit
        self.pulse = Pulse("loop watch", bound_s=link.patience_s, emit=emit)
        self._turned_at = time.monotonic()
        self._blocked_since: float | None = None
        self._excused_until = -math.inf
        self.unblocked_at = -math.inf
        self._settled_here: set[tuple[JobId, int]] = set()
        self._loop_thread = threading.get_ident()

    async def turn(self) -> None:
        """Show that the event loop turns, until cancelled."""
        self._loop_thread = threading.get_ident()
        while True:
            now = time.monotonic()
            if now - self._turned_at >= BLOCKED_AFTER_S:
                self.unblocked_at = now
            self._turned_at = now
            await anyio.sleep(TURN_S)
            self._emit(LoopTurned(self.lag_s))

    @property
    def lag_s(self) -> float:
        """How much longer ago the loop's last turn is than it should be: grows while something blocks the loop."""
        return max(0.0, time.monotonic() - self._turned_at - TURN_S)

    @property
    def is_blocked(self) -> bool:
        """Whether the loop has not turned lately."""
        return time.monotonic() - self._turned_at >= BLOCKED_AFTER_S

    @property
    def is_excused(self) -> bool:
        """Whether a job that is within its hard time-out may be what blocks the loop."""
        return time.monotonic() < max(self._excused_until, self._last_overdue_at())

    def _last_overdue_at(self) -> float:
        """Return until when a job that runs on the loop may hold it up; a job in a thread cannot, and has no limit."""
        times = (one.overdue_at for one in self._in_hand() if one.policy is not None)
        return max((at for at in times if at < math.inf), default=-math.inf)

    async def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch *loop* until cancelled."""
        while True:
            try:
                await self._look(loop)
            except DatabaseError as error:
                await self.pulse.pause(error)
            else:
                self.pulse.worked()
                await asyncio.sleep(WATCH_S)

    async def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        still_s = time.monotonic() - self._turned_at
        if still_s < BLOCKED_AFTER_S:
            if self._blocked_since is not None:
                self._emit(LoopUnblocked(time.monotonic() - self._blocked_since))
                self._blocked_since = None
                self._excused_until = -math.inf
            return
        # Kept until the loop has turned: the job that held it up is gone a moment earlier.
        self._excused_until = max(self._excused_until, self._last_overdue_at())
        if self._blocked_since is None:
            self._blocked_since = self._turned_at
            self._name_blocker(loop, still_s)
        await self._settle_overdue()

    def _name_blocker(self, loop: asyncio.AbstractEventLoop, still_s: float) -> None:
        """Say which handler holds the loop, and at which line."""
        running = asyncio.current_task(loop)
        blocker = next((one for one in self._in_hand() if one.task is not None and one.task is running), None)
        if blocker is None:
            self._emit(LoopBlocked(None, None, line_of_thread(self._loop_thread), still_s))
        else:
            location = line_of_thread(self._loop_thread, blocker.module)
            self._emit(LoopBlocked(blocker.claimed.id, blocker.claimed.kind, location, still_s))

    async def _settle_overdue(self) -> None:
        """Settle as timed out what the blocked loop can neither cancel nor settle. Its own late settle is refused."""
        now = time.monotonic()
        held = self._in_hand()
        self._settled_here &= {(one.claimed.id, one.claimed.fence) for one in held}
        for one in held:
            proof = (one.claimed.id, one.claimed.fence)
            if one.policy is None or now < one.overdue_at or proof in self._settled_here:
                continue
            outcome = judge(one.claimed, TimedOut(one.timeout_s), one.policy, draw=random.random())
            settlement = Settlement(one.claimed, outcome, round(one.timeout_s * 1000))
            async with self._link.lend() as conn:
                sent_at = time.monotonic()
                matched = await write_outcomes(self._store, conn, self._worker_id, [settlement])
                took_s = time.monotonic() - sent_at
            tell(self._emit, [settlement], matched, took_s=took_s)
            self._settled_here.add(proof)
