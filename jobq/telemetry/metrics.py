"""Counts events since the worker's start, for `/metrics`. No more labels than there are kinds and queues in the code.

It is told of each round trip, not of each job (`AttemptsSettled` stands for a batch), and a scrape only reads.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import get_args

from jobq.core.counts import EndCounts
from jobq.telemetry.events import Detailed, Event, JobDone, JobReleased, JobSlow, LeaseLost, Told
from jobq.telemetry.measured import AttemptsSettled, ClaimAnswered, LoopTurned, WakeUp

OTHER = "other"
"""The label of every kind that has no handler here, and of every queue that is not served here."""

ROUND_TRIP_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)


def can_be_shown() -> bool:
    """Say whether prometheus-client is installed, which `exposition.py` needs."""
    return find_spec("prometheus_client") is not None


class Times:
    """Durations, counted by the first of *bounds* (seconds) that they do not exceed; the last count is for the rest."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds


class Metrics:
    """An `Emit` that counts. *kinds* are those that have a handler here, *queues* those that are served here."""

    def __init__(self, kinds: Iterable[str], queues: Iterable[str]) -> None:
        self.kinds = sorted(kinds)
        self.queues = sorted(queues)
        self._turn = threading.Lock()
        # Every series is there from the start, so that a rate over its first event is no gap.
        self.events = {told.__name__: 0 for told in get_args(Told) if told not in get_args(Detailed)}
        self.ends = {kind: EndCounts() for kind in (*self.kinds, OTHER)}
        self.lost = dict.fromkeys((*self.kinds, OTHER), 0)
        self.slow = dict.fromkeys(self.kinds, 0)
        self.wakeups = {(queue, source): 0 for queue in self.queues for source in WakeUp if source is not WakeUp.AGAIN}
        self.claimed = dict.fromkeys(self.queues, 0)
        self.claim_times = {queue: Times(ROUND_TRIP_BOUNDS_S) for queue in self.queues}
        self.settle_times = Times(ROUND_TRIP_BOUNDS_S)
        self.lags = Times(LAG_BOUNDS_S)

    def __call__(self, event: Event) -> None:
        """Count *event*. From the event loop and from the side thread."""
        with self._turn:
            match event:
                case ClaimAnswered(queue, source, jobs, took_s):
                    if source is not WakeUp.AGAIN:
                        self.wakeups[queue, source] += 1
                    self.claimed[queue] += jobs
                    self.claim_times[queue].add(took_s)
                case AttemptsSettled(counts, took_s):
                    for (_, kind), more in counts.items():
                        self.ends[kind if kind in self.ends else OTHER].merge(more)
                    if took_s is not None:
                        self.settle_times.add(took_s)
                case LoopTurned(lag_s):
                    self.lags.add(lag_s)
                case JobDone() | JobReleased():
                    pass  # counted with their batch
                case _:
                    self.events[type(event).__name__] += 1
                    if isinstance(event, LeaseLost):
                        self.lost[event.kind if event.kind in self.lost else OTHER] += 1
                    if isinstance(event, JobSlow):
                        self.slow[event.kind] += 1
