"""Durations as a histogram that can be added up: buckets that grow by a fifth, so that is how far a percentile is off.

Bucket 0 holds what took less than a millisecond, bucket n what took up to 1 ms * 2^((n-1)/4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

BUCKETS_PER_DOUBLING = 4
LAST_BUCKET = 110
"""44 hours: above any time-out."""


def bucket_of(milliseconds: float) -> int:
    """Return the bucket that a duration falls into."""
    if milliseconds < 1:
        return 0
    return min(LAST_BUCKET, math.ceil(math.log2(milliseconds) * BUCKETS_PER_DOUBLING) + 1)


def upper_bound_ms(bucket: int) -> float:
    """Return the longest duration, in milliseconds, that falls into *bucket*."""
    return float(2 ** ((bucket - 1) / BUCKETS_PER_DOUBLING)) if bucket > 0 else 1.0


def percentile_ms(counts: Mapping[int, int], share: float) -> float | None:
    """Return the duration in milliseconds that the given *share* (0.95) of the attempts did not exceed.

    *counts* are attempts by bucket. It is the upper bound of its bucket; None if there are no attempts.
    """
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted and seen > 0:
            return upper_bound_ms(bucket)
    return None
