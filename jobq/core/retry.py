"""When a failed job is tried again: exponential backoff with full jitter, always finite and capped.

The formula is "full jitter" of Marc Brooker, *Exponential Backoff And Jitter* (AWS Architecture Blog,
2015): a uniform draw between nothing and the exponential bound spreads a crowd of retries best.
"""

from __future__ import annotations

import math
from datetime import timedelta

import msgspec

MAX_DELAY_S = 30 * 86_400.0
"""The longest delay that `RetryAfter` and `Snooze` may ask for; longer ones are cut to it."""

_LARGEST_EXPONENT = 30
"""2^30 times any base exceeds every cap in use; without a limit the power overflows at attempt 1,025."""


class Backoff(msgspec.Struct, frozen=True):
    """How the delay before attempt n+1 grows: at most `base_s * 2**(n-1)` seconds, never above *cap_s*."""

    base_s: float = 2.0
    cap_s: float = 3600.0

    def delay_s(self, attempt: int, *, draw: float) -> float:
        """Return the seconds to wait after the failure of *attempt* (1 is the first).

        *draw* is a uniform random number in [0, 1). The result lies in (0, cap_s]: full jitter, but
        never zero, so that a crash loop cannot become a spin.
        """
        exponent = min(max(attempt, 1) - 1, _LARGEST_EXPONENT)
        return min(self.cap_s, self.base_s * 2.0**exponent) * (1.0 - draw)


def asked_delay_s(delay: object) -> float | None:
    """Return the seconds that a handler asked for, at most 30 days, or None if that is no usable delay.

    Usable is a `timedelta` or a number of seconds, finite and not negative.
    """
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        return None
    try:
        seconds = float(delay)
    except OverflowError:
        return None
    if not math.isfinite(seconds) or seconds < 0:
        return None
    return min(seconds, MAX_DELAY_S)
