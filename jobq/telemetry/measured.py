"""The events that are only counted: hundreds a second, each for as many jobs as one round trip has moved."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from jobq.core.counts import CountsByKind


class WakeUp(StrEnum):
    """Why a claim loop looked: `again` follows a claim that took all it might, so it was none."""

    AGAIN = "again"
    NOTIFICATION = "notification"
    POLL = "poll"
    BUSY_POLL = "busy_poll"
    LOOK_BEHIND = "look_behind"
    REAP = "reap"
    RECONNECT = "reconnect"


class ClaimAnswered(msgspec.Struct, frozen=True):
    """A claim of *queue* brought so many *jobs*, after *took_s* seconds."""

    queue: str
    source: WakeUp
    jobs: int
    took_s: float


class AttemptsSettled(msgspec.Struct, frozen=True):
    """Outcomes are written: how many of each, by queue and kind, of those that matched.

    *took_s* is how long the statement took; None if the handler's own transaction wrote it.
    """

    counts: CountsByKind
    took_s: float | None


class LoopTurned(msgspec.Struct, frozen=True):
    """The event loop came to a timer *lag_s* seconds late."""

    lag_s: float


Measured = ClaimAnswered | AttemptsSettled | LoopTurned
