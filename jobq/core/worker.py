"""What a worker says of itself: who it is, what it takes, and how much of it at once. Plain data."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobq.core.job import WorkerId


class Slots(msgspec.Struct, frozen=True):
    """The slots that some kinds share, by queue: those of the executors of one class.

    The worker's row has it as JSON, and `explain` reads it there: a field keeps its name and its meaning.
    """

    kinds: list[str]
    by_queue: dict[str, int]


class WorkerRow(msgspec.Struct, frozen=True):
    """What a worker says of itself with each beat."""

    worker_id: WorkerId
    pid: int
    host: str
    version: str
    queues: list[str]
    kinds: list[str]
    slots: Sequence[Slots] = ()
