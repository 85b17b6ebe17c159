"""One call of a hook, bounded: whatever the function does, the call ends, and at worst the function is left behind.

In a task of its own, like an attempt, and not in a cancel scope: a scope cancels again at each turn of the event loop,
and a function that catches everything and tries again would then do so thousands of times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from jobq.core.failure import Failure, describe, plain

CLEAN_UP_S = 5.0
"""How long a function may take to end once it is cancelled."""

LAST_CALL_S = 1.0
"""The same while the worker stops."""


class Called(msgspec.Struct, frozen=True):
    """How a call has ended: why it failed, None if it did not, and the task of a function that does not end."""

    failure: Failure | None
    left: asyncio.Task[Failure | None] | None = None


async def call_hook(call: Callable[[], Awaitable[None]], *, limit_s: float) -> Called:
    """Call a hook, for at most *limit_s* seconds. One that took longer has failed, even if it returned at last."""
    task = asyncio.get_running_loop().create_task(_run(call))
    try:
        await asyncio.wait([task], timeout=limit_s)
        if task.done():
            return Called(task.result())
        task.cancel()
        await asyncio.wait([task], timeout=CLEAN_UP_S)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.move_on_after(LAST_CALL_S, shield=True):
            await asyncio.wait([task])
        raise
    late = f"the call took longer than {limit_s:g} s"
    if task.done():
        return Called(plain(f"{late} and was cancelled", type="TimeoutError"))
    return Called(plain(f"{late}, ignores its cancellation and is left behind", type="TimeoutError"), task)


async def _run(call: Callable[[], Awaitable[None]]) -> Failure | None:
    try:
        await call()
    except BaseException as error:  # the last frame of the task: what passed it would end the event loop, or nothing
        return describe(error)
    return None
