"""What a claim took whose answer was never seen: rows that bear this worker's id and that nobody runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobq.core.job import JobId, WorkerId
from jobq.db.store import Store
from jobq.telemetry.events import Emit, StraysReleased

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection


class Strays:
    """Remembers that a claim may have committed unseen, and hands its rows back before the next one."""

    def __init__(
        self, *, store: Store, worker_id: WorkerId, in_hand: Callable[[], Sequence[JobId]], emit: Emit
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._in_hand = in_hand
        self._emit = emit
        self._suspected = False

    def suspect(self) -> None:
        """Note that a claim ended without an answer."""
        self._suspected = True

    async def release(self, conn: AnyConnection) -> None:
        """Hand back what is not in hand, if there is a suspicion. To be called where claims are serialised."""
        if not self._suspected:
            return
        released = await self._store.release_strays(conn, self._worker_id, self._in_hand())
        self._suspected = False
        if released:
            self._emit(StraysReleased(sorted(released)))
