"""Durations as a histogram that can be added up: buckets that grow by a fifth, so that is how far a percentile is off.

Bucket 0 holds what took less than a millisecond, bucket n what took up to 1 ms * 2^((n-1)/4).
"""

from __future__ import annotations

import math

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
