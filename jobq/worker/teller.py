"""Tells one hook of the incidents that it is about: notes them, takes those that are to be told, and calls it.

In every worker whose queue has the hook, no leader: the database says which of them tells. It takes part in neither
health: a worker works without telling anybody. A hook runs beside the jobs, in no slot; what it raises ends in a line
of the log and another try, and so does what takes too long. A worker that dies meanwhile, or is stopped, has taken what
it was telling for `LEASE_S` only; then another tells.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import assert_never

import anyio
import msgspec

from jobq.alerts import BacklogHook, DeadHook, Hook
from jobq.core.alert import Allowance, BacklogAlert, DeadAlert, divide, pause_s
from jobq.core.failure import Failure
from jobq.core.job import WorkerId
from jobq.db.connect import Link
from jobq.db.incidents import Incident, Incidents
from jobq.db.overview import Glance
from jobq.errors import DatabaseError, SchemaError
from jobq.telemetry.events import AlertFailed, AlertsHalted, AlertTold, Emit
from jobq.worker.hook_call import call_hook
from jobq.worker.lookout import Lookout

CALL_S = 30.0
"""How long one call of a hook may take."""

WRITE_S = 3.0
"""For writing down that it was told, also while the worker stops: or it would be told once more for nothing."""

LEASE_S = 60.0
"""How long an incident is this worker's to tell: the call, what the database may take, and a turn to write it late."""

TAKEN_AT_ONCE = 100
"""Kinds or queues; those beyond are told a minute later."""

PAGE = 10_000
"""Dead letters that one statement reads."""

PAGES_A_LOOK = 10
"""The connection is the reaper's too. Whatever is left is read at the next look."""


class Teller:
    """The loop of one hook in one worker."""

    def __init__(
        self,
        hook: Hook,
        *,
        incidents: Incidents,
        link: Link,
        lookout: Lookout,
        worker_id: WorkerId,
        every_s: float,
        emit: Emit,
    ) -> None:
        self.hook = hook
        self._incidents = incidents
        self._link = link
        self._lookout = lookout
        self._worker_id = worker_id
        self._every_s = every_s
        self._emit = emit
        self._allowance = Allowance()
        self._is_watching = False
        self._answers: list[tuple[Sequence[Incident], Failure | None]] = []
        """What became of calls that is not written yet: the failure, None if the hook was told."""
        self._left: list[asyncio.Task[Failure | None]] = []
        """Calls that do not end. While there is one this worker makes no other; another worker does."""

    async def run(self) -> None:
        """Look, and tell what there is, once a period until cancelled."""
        is_halted = False
        glance: Glance | None = None
        while True:
            try:
                await self._write_answers()
                await self._note(glance)
                await self._tell(await self._take())
            except (DatabaseError, SchemaError) as error:
                if not is_halted:
                    self._emit(AlertsHalted(self.hook.name, str(error)))
                is_halted = True
                self._is_watching = False  # after a week without a look, what says how far was read is gone
            else:
                is_halted = False
            glance = await self._pause()

    async def _pause(self) -> Glance | None:
        """Wait for a period, or for the lookout's next reading if that is what the hook is about."""
        glance = None
        with anyio.move_on_after(self._every_s * random.uniform(0.9, 1.1)):
            if isinstance(self.hook, BacklogHook):
                glance = await self._lookout.next_glance()
            else:
                await anyio.sleep_forever()
        return glance

    # -- what there is to tell -----------------------------------------------------------------------

    async def _note(self, glance: Glance | None) -> None:
        match self.hook:
            case DeadHook():
                await self._note_dead(self.hook)
            case BacklogHook():
                if glance is not None and (behind := find_behind(glance, self.hook)):
                    async with self._link.lend() as conn:
                        await self._incidents.note_backlog(conn, self.hook.name, behind, quiet_s=self.hook.quiet_s)
            case _:
                assert_never(self.hook)

    async def _note_dead(self, hook: DeadHook) -> None:
        # Workers look in turns: one that comes soon after another has nothing to look for.
        lately_s = self._every_s / 2
        for _ in range(PAGES_A_LOOK):
            async with self._link.lend() as conn:
                if not self._is_watching:
                    await self._incidents.watch_dead(conn, hook.name)
                    self._is_watching = True
                goes_on = await self._incidents.note_dead(
                    conn, hook.name, kinds=hook.kinds, quiet_s=hook.quiet_s, lately_s=lately_s, limit=PAGE
                )
            if not goes_on:
                return
            lately_s = 0.0

    async def _take(self) -> list[Incident]:
        self._left = [task for task in self._left if not task.done()]
        if self._left or self._allowance.left(time.monotonic()) == 0:
            return []
        async with self._link.lend() as conn:
            return await self._incidents.take_incidents(
                conn,
                self.hook.name,
                self.hook.what,
                worker_id=self._worker_id,
                lease_s=LEASE_S,
                limit=TAKEN_AT_ONCE,
            )

    # -- telling -------------------------------------------------------------------------------------

    async def _tell(self, due: Sequence[Incident]) -> None:
        now = time.monotonic()
        groups = divide(due, self._allowance.left(now))
        self._allowance.spend(len(groups), now)
        async with anyio.create_task_group() as calls:
            for group in groups:
                calls.start_soon(self._call, group)

    async def _call(self, group: Sequence[Incident]) -> None:
        called = await call_hook(lambda: self._call_hook(group), limit_s=CALL_S)
        if called.left is not None:
            self._left.append(called.left)
        failure = called.failure
        self._answers.append((group, failure))
        self._say(group, failure)
        with suppress(DatabaseError, SchemaError), anyio.move_on_after(WRITE_S, shield=True):
            await self._write_answers()  # what is left is written at the next turn

    async def _call_hook(self, group: Sequence[Incident]) -> None:
        match self.hook:
            case DeadHook(tell=tell):
                await tell(msgspec.convert({"kind": group[0].subject, **_fields(group)}, DeadAlert))
            case BacklogHook(tell=tell):
                await tell(msgspec.convert({"queue": group[0].subject, **_fields(group)}, BacklogAlert))
            case _:
                assert_never(self.hook)

    def _say(self, group: Sequence[Incident], failure: Failure | None) -> None:
        names, hook, tries = [one.subject for one in group], self.hook, _tries(group)
        if failure is None:
            self._emit(AlertTold(hook.name, hook.what, names))
        else:
            text = failure.type, failure.message, failure.traceback
            self._emit(AlertFailed(hook.name, hook.what, names, tries, *text, pause_s(tries)))

    async def _write_answers(self) -> None:
        """Write what became of the calls. What cannot be written is kept."""
        while self._answers:
            group, failure = self._answers.pop(0)
            try:
                await self._write_answer(group, failure)
            except BaseException:
                self._answers.append((group, failure))
                raise

    async def _write_answer(self, group: Sequence[Incident], failure: Failure | None) -> None:
        name, what, mine = self.hook.name, self.hook.what, self._worker_id
        async with self._link.lend() as conn:
            if failure is None:
                await self._incidents.close_incidents(conn, name, what, group, worker_id=mine)
            else:
                again_in_s = pause_s(_tries(group))
                await self._incidents.postpone_incidents(conn, name, what, group, worker_id=mine, pause_s=again_in_s)


def find_behind(glance: Glance, hook: BacklogHook) -> Mapping[str, Mapping[str, object]]:
    """Return the queues that are behind, for *hook*, by name, with what an alert says of each."""
    return {
        one.queue: {"oldest_ready_s": one.oldest_ready_s, "ready": one.ready.count, "workers": one.workers}
        for one in glance.queues
        if hook.queue in (None, one.queue) and one.oldest_ready_s is not None and one.oldest_ready_s >= hook.age_s
    }


def _fields(group: Sequence[Incident]) -> dict[str, object]:
    first, *rest = group
    also = tuple(one.subject for one in rest)
    return {"since": first.since, "last_at": first.seen_at, "also": also, **first.facts}


def _tries(group: Sequence[Incident]) -> int:
    return max(one.tries for one in group)
