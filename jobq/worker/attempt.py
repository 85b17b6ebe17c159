"""One attempt while it runs, as its executor keeps it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import final

import msgspec

from jobq.core.job import ClaimedJob
from jobq.core.outcomes import Interrupted, RetryPolicy, TimedOut
from jobq.handle import Job
from jobq.registration import Handler
from jobq.worker.whereabouts import UNKNOWN, line_of_task, line_of_thread

Trace = Callable[[ClaimedJob, RetryPolicy, Callable[[], Awaitable[object]]], Awaitable[object]]
"""Awaits what the third makes, the run of an attempt, in a way that shows it to the outside."""


@final
class Lost(msgspec.Struct, frozen=True):
    """The attempt no longer owns its job: nothing is written about it, and it holds its slot until it ends."""


class Attempt:
    """One running attempt. *interruption* is set when it is cancelled and says what it then counts as.

    *thread_id* is that of the thread in which a `def` handler runs.
    """

    __slots__ = (
        "cancelled_at",
        "claimed",
        "deadline",
        "entered",
        "handler",
        "interruption",
        "job",
        "overran",
        "started",
        "task",
        "thread_id",
    )

    def __init__(self, claimed: ClaimedJob, handler: Handler[..., object], job: Job) -> None:
        self.claimed = claimed
        self.handler = handler
        self.job = job
        self.started = time.monotonic()
        self.deadline = self.started + handler.timeout_s
        self.task: asyncio.Task[None] | None = None
        self.interruption: TimedOut | Interrupted | Lost | None = None
        self.cancelled_at = 0.0
        self.entered = False
        self.overran = False
        self.thread_id: int | None = None

    def line(self) -> str:
        """Return the line of the application at which the handler stands. To be asked on the event loop."""
        module = self.handler.__module__
        if self.thread_id is not None:
            return line_of_thread(self.thread_id, module)
        return UNKNOWN if self.task is None else line_of_task(self.task, module)
