"""What `@queue.recurring` makes of a handler, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from jobq import PayloadError, Queue, RecurringError


def test_the_decorator_goes_above_the_task() -> None:
    """On a function that is no handler yet it would have no kind."""
    queue = Queue()

    with pytest.raises(RecurringError, match=r"write @queue.recurring\(...\) above @queue.task\(...\)"):

        @queue.recurring("@daily")  # type: ignore[type-var]  # what a type checker refuses, too
        async def tidy() -> None: ...


def test_a_name_is_declared_once() -> None:
    """The kind is the name, unless another is stated: a second entry of a kind needs one."""
    queue = Queue()

    @queue.recurring("0 6 * * *", name="early", payload={"region": "eu"})
    @queue.recurring("@daily")
    @queue.task(kind="report")
    async def report(region: str = "us") -> None: ...

    assert sorted(queue.recurring.declared) == ["early", "report"]
    assert queue.recurring.declared["early"].payload == '{"region":"eu"}'
    with pytest.raises(RecurringError, match="recurring 'early' is declared twice"):
        queue.recurring("@hourly", name="early")(report)


@pytest.mark.parametrize(
    ("stated", "error", "why"),
    [
        ({"expression": "0 0 30 2 *"}, RecurringError, "recurring 'report': expression '0 0 30 2 *' names a day"),
        ({"tz": "Mars/Olympus"}, RecurringError, "recurring 'report': time zone 'Mars/Olympus' is not known here"),
        ({"name": "a b"}, RecurringError, "recurring name 'a b' is not a name"),
        ({"queue": "a b"}, RecurringError, "recurring 'report': queue 'a b' is not a name"),
        ({"payload": {"regoin": "us"}}, PayloadError, "regoin"),
        ({"payload": {"region": 7}}, PayloadError, "region"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(
    stated: dict[str, Any], error: type[Exception], why: str
) -> None:
    """At the import of the module, and nothing of it is declared; the payload is checked as by `bind`."""
    queue = Queue()

    @queue.task(kind="report")
    async def report(region: str = "us") -> None: ...

    with pytest.raises(error, match=why.replace("*", r"\*")):
        queue.recurring(**{"expression": "@daily", **stated})(report)

    assert queue.recurring.declared == {}
