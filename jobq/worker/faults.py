"""Named points of the worker at which a test of processes lets something happen: a bug, a pause, a death.

Nothing in jobq arms them, no setting and no variable of the environment does; unarmed, one costs an empty call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum


class Point(StrEnum):
    """Where: at the head of a loop's turn, or between two steps that a fault may part."""

    CLAIM = "claim"
    AFTER_CLAIM_COMMIT = "after claim commit"
    """The rows are this worker's and nothing of them runs yet. The claims' connection is still lent."""
    BEFORE_SETTLE = "before settle"
    BEFORE_FIRE = "before fire"
    """A tick is decided by what was read, and not written yet."""
    BEAT = "beat"
    """In the side thread."""
    LISTEN = "listener"
    REAP = "reap"


_armed: dict[Point, Callable[[], Awaitable[None]]] = {}


def arm(point: Point, action: Callable[[], Awaitable[None]]) -> None:
    """Let *action* happen whenever *point* is reached; what it raises is raised there."""
    _armed[point] = action


async def reach(point: Point) -> None:
    """Let happen what a test has armed *point* with."""
    if _armed and (action := _armed.get(point)) is not None:
        await action()
