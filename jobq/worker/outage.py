"""Says once what several loops meet: an outage at its begin and at its end, a wrong setting for good."""

from __future__ import annotations

import threading
import time

from jobq.telemetry.events import DatabaseAway, DatabaseBack, Emit, Event, PreparedStatementsLost


class SaidOnce:
    """An `Emit` that passes on the first loop's `DatabaseAway` and the last loop's `DatabaseBack` of an outage.

    Of `PreparedStatementsLost` it passes on the first.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._turn = threading.Lock()
        self._away: set[str] = set()
        self._since = 0.0
        self._has_said_lost = False

    def __call__(self, event: Event) -> None:
        """Emit *event*, unless it says what was said already. From the event loop and from the side thread."""
        match event:
            case DatabaseAway(loop):
                with self._turn:
                    first = not self._away
                    self._away.add(loop)
                    if first:
                        self._since = time.monotonic()
                if first:
                    self._emit(event)
            case DatabaseBack(loop):
                with self._turn:
                    self._away.discard(loop)
                    last = not self._away
                if last:
                    self._emit(DatabaseBack(loop, time.monotonic() - self._since))
            case PreparedStatementsLost():
                with self._turn:
                    first, self._has_said_lost = not self._has_said_lost, True
                if first:
                    self._emit(event)
            case _:
                self._emit(event)
