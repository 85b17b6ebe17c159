"""Keeps the loops of a worker running: what crashes by a bug is restarted, with backoff, and not for ever."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

from jobq.core.redaction import cover_passwords
from jobq.telemetry.events import Emit, LoopCrashed

RESTARTS = 5
"""How often one loop is restarted within `RESTARTS_WITHIN_S`, before the worker gives up."""

RESTARTS_WITHIN_S = 60.0

Loop = Callable[[], Awaitable[None]]


class Loops:
    """Starts loops. *on_hopeless* is called when one keeps crashing."""

    def __init__(self, *, on_hopeless: Callable[[], None], emit: Emit) -> None:
        self._on_hopeless = on_hopeless
        self._emit = emit

    def start(self, group: TaskGroup, name: str, loop: Loop) -> None:
        """Run *loop* in *group* until it ends or is cancelled."""
        group.start_soon(self._keep_running, name, loop, name=f"jobq {name}")

    async def _keep_running(self, name: str, loop: Loop) -> None:
        crashes: list[float] = []
        while True:
            try:
                await loop()
                return
            except Exception as error:
                now = time.monotonic()
                crashes = [*(at for at in crashes if now - at < RESTARTS_WITHIN_S), now]
                restarting = len(crashes) <= RESTARTS
                text = cover_passwords("".join(traceback.format_exception(error)))
                self._emit(LoopCrashed(name, type(error).__name__, cover_passwords(str(error)), text, restarting))
                if not restarting:
                    self._on_hopeless()
                    return
            await anyio.sleep(0.1 * 2 ** (len(crashes) - 1))
