"""Hears the notifications of enqueues and wakes claim loops. Only latency depends on it: polls find every job.

That LISTEN was accepted means nothing behind a pooler, where the session that listens is nobody's a moment later. So
each new connection has to hear a word that is said on another one; if it does not, the claim loops poll, which costs
less than flags and notifications that nobody hears.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from jobq.db.connect import Ear, Link
from jobq.db.store import Store
from jobq.errors import ConflictError, DatabaseError, DatabaseUnavailableError
from jobq.telemetry.events import Emit, ListenRestored, ListenUnavailable
from jobq.worker.faults import Point, reach
from jobq.worker.pulse import Pulse

CHECK_S = 10.0
"""A connection that a proxy or a failover has dropped without a word looks like a quiet one: ask it now and then."""

HEAR_S = 5.0
"""How long the word may take: a notification takes a millisecond."""

TRY_AGAIN_S = 300.0
"""A server that was too busy is not so for ever; but a pooler stays one, and PgBouncer logs a warning at each try."""

NOT_HEARD = (
    f"a notification was not heard within {HEAR_S:g} s; behind a pooler in transaction mode set listen_dsn"
    " (JOBQ_LISTEN_DSN) to a DSN of the same database that goes around it"
)


class Listener:
    """The one listening connection of a worker, replaced whenever it is lost. The word is said on *link*.

    *wake* gets a queue's name, or None for all of them: after a gap in which some notifications were missed.
    """

    def __init__(
        self, *, ear: Ear, store: Store, link: Link, wake: Callable[[str | None], None], poll_s: float, emit: Emit
    ) -> None:
        self._ear = ear
        self._store = store
        self._link = link
        self._wake = wake
        self._poll_s = poll_s
        self._emit = emit
        self._word = ""
        self._heard = asyncio.Event()
        self._hears = True
        self.is_up = False
        """Whether a connection listens now that has heard a word."""
        bound_s = max(CHECK_S + ear.patience_s, link.patience_s + HEAR_S)
        self.pulse = Pulse("listener", bound_s=bound_s, emit=emit)

    @property
    def hears(self) -> bool:
        """Whether notifications come through, as far as is known."""
        return self._hears

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            await reach(Point.LISTEN)
            try:
                async with self._ear.listen(self._hear) as lost:
                    self.pulse.begin()
                    self._wake(None)
                    await self._try(lost)
                    if self._heard.is_set():
                        self._note_heard()
                        self.pulse.worked()
                        try:
                            await self._stay(lost)
                        finally:
                            self.is_up = False
                    if self._heard.is_set() or lost.is_set():
                        continue
                reason = NOT_HEARD
            except (DatabaseUnavailableError, ConflictError) as error:
                await self.pulse.pause(error)
                continue
            except DatabaseError as error:
                reason = str(error)
            await self._do_without(reason)

    def _note_heard(self) -> None:
        self.is_up = True
        if not self._hears:
            self._hears = True
            self._emit(ListenRestored())

    def _hear(self, said: str) -> None:
        if said == self._word:
            self._heard.set()
        else:
            self._wake(said)

    async def _try(self, lost: asyncio.Event) -> None:
        """Say a word on another connection, and wait until it is heard, the connection is *lost*, or it is too late."""
        self._heard.clear()
        self._word = f"?{uuid4().hex}"  # no name of a queue
        async with self._link.lend() as conn:
            await self._store.try_listener(conn, self._word)
        with anyio.move_on_after(HEAR_S):
            async with anyio.create_task_group() as first:
                first.start_soon(_end_at, self._heard, first)
                first.start_soon(_end_at, lost, first)

    async def _stay(self, lost: asyncio.Event) -> None:
        while not lost.is_set():
            with anyio.move_on_after(CHECK_S):
                await lost.wait()
            if not lost.is_set():
                await self._ear.check()
                self.pulse.worked()

    async def _do_without(self, reason: str) -> None:
        """Let the claim loops poll for a while. Working without notifications is working."""
        if self._hears:
            self._hears = False
            self._emit(ListenUnavailable(reason, self._poll_s))
            self._wake(None)
        self.pulse.worked()
        self.pulse.rest()
        await anyio.sleep(TRY_AGAIN_S)
        self.pulse.begin()


async def _end_at(event: asyncio.Event, group: TaskGroup) -> None:
    await event.wait()
    group.cancel_scope.cancel()
