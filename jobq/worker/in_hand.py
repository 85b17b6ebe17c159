"""What a worker holds at a moment, as its heartbeat's thread sees it."""

from __future__ import annotations

import asyncio

import msgspec

from jobq.core.job import ClaimedJob
from jobq.core.outcomes import RetryPolicy


class InHand(msgspec.Struct, frozen=True):
    """One job that this worker holds: running, waiting to run alone, or finished and not settled yet.

    *policy*, *task* and the *module* of its handler are there while it runs; *overdue_at* is the monotonic time after
    which it is settled as timed out without waiting for it.
    """

    claimed: ClaimedJob
    policy: RetryPolicy | None = None
    timeout_s: float = 0.0
    overdue_at: float = float("inf")
    task: asyncio.Task[None] | None = None
    module: str = ""
