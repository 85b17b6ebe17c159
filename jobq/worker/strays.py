"""What a claim took whose answer was never seen: rows that bear this worker's id and that nobody runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobq.core.job import JobId, WorkerId
from jobq.db.store import Store
from jobq.telemetry.events import Emit, StraysReleased

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection


class Strays:
    """Hands such rows back: before the claim that follows one without an answer, and every *every_s* seconds.

    A claim that was given up may reach the server, and commit, after somebody has looked for it.
    """

    def __init__(
        self,
        *,
        store: Store,
        worker_id: WorkerId,
        in_hand: Callable[[], Sequence[JobId]],
        every_s: float,
        emit: Emit,
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._in_hand = in_hand
        self._every_s = every_s
        self._emit = emit
        self._suspected = False
        self._looked_at = time.monotonic()

    def suspect(self) -> None:
        """Note that a claim ended without an answer."""
        self._suspected = True

    async def release(self, conn: AnyConnection) -> None:
        """Hand back what is not in hand, if it is time to look. To be called where claims are serialised."""
        now = time.monotonic()
        if not self._suspected and now - self._looked_at < self._every_s:
            return
        released = await self._store.release_strays(conn, self._worker_id, self._in_hand())
        self._suspected = False
        self._looked_at = now
        if released:
            self._emit(StraysReleased(sorted(released)))
