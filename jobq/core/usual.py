"""What is usual for a kind, from how long its attempts took: when a running one is slow, and which time-out fits.

Durations are histograms of `core/histogram.py`, of all attempts of a kind whose handler ran, however they ended. From
fewer than `ENOUGH_RUNS` nothing is concluded: a 99th percentile would be the slowest of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jobq.core.histogram import percentile_ms

ENOUGH_RUNS = 100

LEAST_S = 10.0
"""What runs for less is not worth a line of the log, however fast its kind is."""

FAR = 5.0
"""Times the 99th percentile. A slow day of a database or a provider is two or three times, what hangs is any number."""

HALF = 0.5
"""Of its time-out: what is slow where nothing is known of the kind."""

NEARLY = 0.9
"""Of its time-out: what is about to be cut off is named, however usual. When most attempts hang until their time-out,
that becomes what they usually take, and five times that is never reached."""

MARGIN = 3.0
"""Times the slowest in a thousand: room for a bad day, and what hangs still gives its slot back soon."""

STEPS_S = (
    *(1, 2, 3, 5, 10, 15, 20, 30),
    *(60, 120, 180, 300, 600, 900, 1200, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400),
)
"""Time-outs that a person would write, up to the longest that `@queue.task` takes."""


class Usual(msgspec.Struct, frozen=True):
    """What 99 % of a kind's attempts do not exceed, None if too few are known, and after what time one is slow."""

    usual_s: float | None
    slow_after_s: float


def judge_durations(durations: Mapping[int, int], timeout_s: float) -> Usual:
    """Say when an attempt is slow whose kind took *durations* lately and has this time-out.

    After five times the 99th percentile, or nine tenths of the time-out if that is sooner; after half of the time-out
    if too few attempts are known; and never within ten seconds.
    """
    p99_ms = _percentile_of_enough(durations, 0.99)
    if p99_ms is None:
        return Usual(None, max(LEAST_S, HALF * timeout_s))
    usual_s = p99_ms / 1000
    return Usual(usual_s, max(LEAST_S, min(FAR * usual_s, NEARLY * timeout_s)))


def propose_timeout_s(durations: Mapping[int, int]) -> float | None:
    """Return the time-out that fits these *durations*, or None if they are too few.

    It is three times what 99.9 % of the attempts do not exceed, the next longer of `STEPS_S`. What was cut off at its
    time-out is known to have taken that long, so a proposal may grow with the time-out that is stated.
    """
    slowest_ms = _percentile_of_enough(durations, 0.999)
    if slowest_ms is None:
        return None
    wanted_s = MARGIN * slowest_ms / 1000
    return float(next((step for step in STEPS_S if step >= wanted_s), STEPS_S[-1]))


def _percentile_of_enough(durations: Mapping[int, int], share: float) -> float | None:
    if sum(durations.values()) < ENOUGH_RUNS:
        return None
    return percentile_ms(durations, share)
