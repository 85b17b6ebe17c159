"""What a scrape reads that is no event: how the worker stands now, and how the whole queue stood when it was asked."""

from __future__ import annotations

import msgspec


class SlotsNow(msgspec.Struct, frozen=True):
    """The slots of one queue and class of executor."""

    queue: str
    executor: str
    slots: int
    busy: int


class WorkerNow(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as its memory has it. *oldest_running_s* is by kind, *loop_lag_s* that of its event loop."""

    slots: list[SlotsNow]
    oldest_running_s: dict[str, float]
    unsettled: int
    is_working: bool
    is_listening: bool
    loop_lag_s: float


class QueueNow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue, or all those that this worker does not serve. Counts stop at a limit (`db/overview.py`)."""

    queue: str
    oldest_ready_s: float = 0.0
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    dead: int = 0
    workers: int = 0
    unserved_kinds: int = 0


class OverviewNow(msgspec.Struct, frozen=True, kw_only=True):
    """The last reading of the whole queue; *took_s* is how long it took, *age_s* how long ago it was.

    *entries*: how many recurring entries are in each state.
    """

    queues: list[QueueNow]
    workers: int
    oldest_dead_s: float
    entries: dict[str, int]
    took_s: float
    age_s: float
