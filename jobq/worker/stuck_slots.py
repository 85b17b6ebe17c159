"""Notices that all slots of a queue have been busy for minutes while nothing finished: its handlers hang.

What ends by its time-out does not count as finished: a slot that goes from one hanging handler to another does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobq.telemetry.events import Emit, SlotsStuck
from jobq.worker.attempt import Attempt
from jobq.worker.executor import Executor

FIRST_FEW = 3
"""Attempts that are named, the oldest: what hangs mostly hangs at one line."""


class StuckSlots:
    """The watch over one executor's slots. A spell begins when all are taken, and anew when something finishes.

    A slot that is free at one look waits for its next job, which a claim brings; at two it ends the spell.
    """

    def __init__(self, *, queue: str, executor: Executor, after_s: float, emit: Emit) -> None:
        self._queue = queue
        self._executor = executor
        self._after_s = after_s
        self._emit = emit
        self._finished = 0
        self._since: float | None = None
        self._is_said = False
        self._was_free = False

    def look(self, now: float) -> None:
        """Say once a spell that it has lasted for too long."""
        executor = self._executor
        finished = executor.finished - executor.timed_out
        was_free, self._was_free = self._was_free, executor.running < executor.slots
        if self._was_free:
            if was_free:
                self._since = None
        elif self._since is None or finished != self._finished:
            self._since, self._finished, self._is_said = now, finished, False
        elif not self._is_said and now - self._since >= self._after_s:
            self._is_said = True
            self._emit(
                SlotsStuck(
                    queue=self._queue,
                    executor=executor.name,
                    slots=executor.slots,
                    still_s=now - self._since,
                    oldest=[_named(one) for one in _oldest(executor.attempts)],
                )
            )


def _oldest(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    return sorted(attempts, key=lambda one: one.started)[:FIRST_FEW]


def _named(attempt: Attempt) -> str:
    return f"{attempt.claimed.kind} {attempt.claimed.id} at {attempt.line()}"
