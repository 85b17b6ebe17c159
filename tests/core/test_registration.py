"""What `@queue.task` refuses of a kind's rules: no handler starts with a rule that would lose jobs or never end."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from jobq import Backoff, HandlerError, Queue

REFUSED = [
    ("max_attempts", 0, "1 or more"),
    ("max_attempts", -1, "1 or more"),
    ("max_attempts", 2.0, "1 or more"),
    ("max_attempts", True, "1 or more"),
    ("max_crashes", 0, "1 or more"),
    ("timeout", 0, "more than 0 seconds, at most a day"),
    ("timeout", -1.0, "more than 0 seconds, at most a day"),
    ("timeout", math.inf, "more than 0 seconds, at most a day"),
    ("timeout", math.nan, "more than 0 seconds, at most a day"),
    ("timeout", timedelta(days=2), "more than 0 seconds, at most a day"),
    ("timeout", None, "more than 0 seconds, at most a day"),
    ("backoff", Backoff(base_s=0.0), "0 < base_s <= cap_s"),
    ("backoff", Backoff(base_s=2.0, cap_s=1.0), "0 < base_s <= cap_s"),
    ("backoff", Backoff(cap_s=math.inf), "0 < base_s <= cap_s"),
    ("backoff", Backoff(base_s=math.nan), "0 < base_s <= cap_s"),
    ("retry_on", (), "or leave it out"),
    ("retry_on", "TimeoutError", "or leave it out"),
    ("retry_on", (TimeoutError, 7), "or leave it out"),
    ("on_duplicate", " ", "say what a second run does"),
]


@pytest.mark.parametrize(("rule", "value", "remedy"), REFUSED, ids=lambda one: str(one)[:30])
def test_a_rule_that_cannot_be_is_refused_where_it_is_written(rule: str, value: object, remedy: str) -> None:
    """F39, F41: with the kind, the rule, the value and what it may be; max_attempts=1 is one start, 0 is none."""
    queue = Queue()
    stated: dict[str, Any] = {rule: value}

    with pytest.raises(HandlerError) as caught:

        @queue.task("pay", **stated)
        async def pay(order_id: int) -> None: ...

    message = str(caught.value)
    assert "kind 'pay'" in message
    assert remedy in message
    assert queue.handlers == {}


def test_a_strict_queue_wants_to_know_what_a_second_run_does() -> None:
    """Q9: the handler says it, or it is none."""
    queue = Queue(strict=True)

    with pytest.raises(HandlerError, match="on_duplicate"):

        @queue.task("pay")
        async def pay(order_id: int) -> None: ...

    assert queue.handlers == {}
