"""What a scrape reads from the worker's memory, from a thread beside the event loop whose structures it copies."""

from __future__ import annotations

import time

from jobq.telemetry.readings import SlotsNow, WorkerNow
from jobq.worker.assembly import Parts


def read_gauges(parts: Parts) -> WorkerNow:
    """Return how the worker of these *parts* stands now."""
    now = time.monotonic()
    oldest: dict[str, float] = {}
    for executor in parts.executors:
        for attempt in executor.attempts:
            kind = attempt.claimed.kind
            oldest[kind] = max(oldest.get(kind, 0.0), now - attempt.started)
    return WorkerNow(
        slots=[
            SlotsNow(claimer.queue, executor.name, executor.slots, executor.running)
            for claimer, executor in zip(parts.claimers, parts.executors, strict=True)
        ],
        oldest_running_s=oldest,
        unsettled=parts.settler.backlog,
        is_working=not parts.failing(),
        is_listening=parts.listener.is_up,
        loop_lag_s=parts.loop_watch.lag_s,
    )
