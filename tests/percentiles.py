"""What the percentiles of a histogram have to be, said once more and without SQL."""

from __future__ import annotations

from collections.abc import Mapping

from jobq.core.histogram import upper_bound_ms


def percentile_ms(counts: Mapping[int, int], share: float) -> float | None:
    """Return the duration in milliseconds that the given *share* (0.95) of the attempts did not exceed.

    It is the upper bound of its bucket; None if there are no attempts.
    """
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted and seen > 0:
            return upper_bound_ms(bucket)
    return None
