"""Looks every few seconds at what runs, and names what has run for much longer than is usual for its kind.

What is usual is read only while something has run for long, and then seldom: a worker whose jobs are fast asks nothing.
While it cannot be read, the last reading holds. It takes part in neither health: a worker works without it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import anyio

from jobq.core import usual
from jobq.core.usual import judge_durations
from jobq.db.connect import Link
from jobq.db.overview import Overview
from jobq.errors import DatabaseError, SchemaError
from jobq.telemetry.events import Emit, JobSlow
from jobq.worker.attempt import Attempt
from jobq.worker.executor import Executor
from jobq.worker.stuck_slots import StuckSlots

LOOK_EVERY_S = 5.0

READ_EVERY_S = 300.0
"""It is an hour's figures that are read; those of the next minute say the same."""

DEADLINE_S = 3.0
"""For one reading. It shares its connection with the reaper, which must not wait long."""

MOST_A_LOOK = 10
"""Where thousands hang at once, the others are named at the looks that follow."""


class SlowJobs:
    """The watch over the attempts of one worker, and over its slots."""

    def __init__(
        self, *, executors: Sequence[Executor], slots: Sequence[StuckSlots], overview: Overview, link: Link, emit: Emit
    ) -> None:
        self._executors = executors
        self._slots = slots
        self._overview = overview
        self._link = link
        self._emit = emit
        self._named: set[Attempt] = set()
        self._durations: Mapping[str, Mapping[int, int]] = {}
        self._read_next = time.monotonic()

    async def run(self) -> None:
        """Look once in a while until cancelled."""
        while True:
            await anyio.sleep(LOOK_EVERY_S)
            if self._long_running():
                await self._read_usual()
                self._name_slow()
            for slots in self._slots:
                slots.look(time.monotonic())

    def _long_running(self) -> list[Attempt]:
        """Return what may be slow and was not named yet, the oldest first."""
        running = [one for executor in self._executors for one in executor.attempts]
        self._named.intersection_update(running)
        since = time.monotonic() - usual.LEAST_S
        # What is cancelled already is about to end, or is named as what ignores that.
        found = [one for one in running if one.started <= since and one.interruption is None and not one.overran]
        return sorted((one for one in found if one not in self._named), key=lambda one: one.started)

    async def _read_usual(self) -> None:
        if time.monotonic() < self._read_next:
            return
        self._read_next = time.monotonic() + READ_EVERY_S
        try:
            async with self._link.lend() as conn:
                with anyio.fail_after(DEADLINE_S):
                    self._durations = await self._overview.durations(conn)
        except (DatabaseError, SchemaError):
            pass  # Whoever works on this connection says that it is away.

    def _name_slow(self) -> None:
        slow = 0
        for attempt in self._long_running():
            claimed, ran_s = attempt.claimed, time.monotonic() - attempt.started
            found = judge_durations(self._durations.get(claimed.kind, {}), attempt.handler.timeout_s)
            if ran_s < found.slow_after_s:
                continue
            self._named.add(attempt)
            self._emit(
                JobSlow(
                    id=claimed.id,
                    kind=claimed.kind,
                    attempt=claimed.attempt,
                    ran_s=ran_s,
                    usual_s=found.usual_s,
                    location=attempt.line(),
                    queue=claimed.queue,
                )
            )
            slow += 1
            if slow == MOST_A_LOOK:
                return
