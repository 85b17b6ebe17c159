"""The thread beside the event loop: what must go on while a handler blocks the loop runs here, on a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from functools import partial

import anyio

LOOK_S = 0.25
"""How often the event loop looks whether the thread is well."""

END_LOOK_S = 0.02

LEAVE_S = 3.0
"""How long the end of the routines may take."""

Routine = Callable[[asyncio.AbstractEventLoop], Coroutine[None, None, None]]
"""Gets the worker's event loop; runs until cancelled."""


class SideThread:
    """One thread that runs *routines* side by side, and *at_end* when they have ended."""

    def __init__(self, routines: Sequence[Routine], *, at_end: Callable[[], Coroutine[None, None, None]]) -> None:
        self._routines = routines
        self._at_end = at_end
        self._crash: BaseException | None = None
        self._cancel: Callable[[], None] | None = None

    async def run(self) -> None:
        """Own the thread until cancelled. Raises what it died of."""
        self._crash = self._cancel = None
        loop = asyncio.get_running_loop()
        # In a copy of the context, which says whose log lines are written there.
        run = partial(copy_context().run, self._run, loop)
        thread = threading.Thread(target=run, name="jobq side thread", daemon=True)
        thread.start()
        try:
            while thread.is_alive():  # noqa: ASYNC110 - a thread sets no event of this loop when it dies
                await anyio.sleep(LOOK_S)
        finally:
            with anyio.move_on_after(LEAVE_S, shield=True):
                while thread.is_alive():
                    if self._cancel is not None:
                        self._cancel()
                    await anyio.sleep(END_LOOK_S)
        raise self._crash or RuntimeError("the side thread ended by itself")

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._run_all(loop))
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._crash = error

    async def _run_all(self, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.current_task()
        assert task is not None
        own_loop = asyncio.get_running_loop()

        def cancel() -> None:
            own_loop.call_soon_threadsafe(task.cancel)

        try:
            async with asyncio.TaskGroup() as group:
                self._cancel = cancel
                for routine in self._routines:
                    group.create_task(routine(loop))
        finally:
            self._cancel = None
            await self._at_end()
