"""What `@queue.on_dead` and `@queue.on_backlog` take, and what they refuse where it is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobq import BacklogAlert, DeadAlert, HandlerError, Queue
from jobq.alerts import BacklogHook, DeadHook

NAME = "tests.core.test_hooks.tell"


async def tell(alert: DeadAlert | BacklogAlert) -> None:
    """Tell nobody."""


def plain(alert: object) -> None: ...
async def without_parameter() -> None: ...
async def with_two(alert: object, other: object) -> None: ...


def on_dead(**options: Any) -> Callable[[Queue], object]:
    return lambda queue: queue.on_dead(**options)(tell)


def on_backlog(**options: Any) -> Callable[[Queue], object]:
    return lambda queue: queue.on_backlog(**options)(tell)


def test_a_function_stays_what_it_is_and_is_known_by_its_name() -> None:
    """With options or without; durations are seconds or timedeltas."""
    queue = Queue()

    assert queue.on_dead(tell) is tell
    assert queue.on_backlog(age=timedelta(minutes=2), queue="mail", quiet=120)(tell) is tell

    assert queue.hooks == [
        DeadHook(name=NAME, tell=tell, kinds=None, quiet_s=600.0),
        BacklogHook(name=NAME, tell=tell, queue="mail", age_s=120.0, quiet_s=120.0),
    ]


def test_kinds_may_be_any_collection_of_names() -> None:
    """Also of kinds that other applications on the schema have."""
    queue = Queue()

    queue.on_dead(kinds={"b", "a"})(tell)

    assert [hook.kinds for hook in queue.hooks if isinstance(hook, DeadHook)] == [("a", "b")]


TIME = "pass seconds or a timedelta, more than 0 and at most a day"
QUIET = "pass seconds or a timedelta, two minutes at least and at most a day"

REFUSED: list[tuple[Callable[[Queue], object], list[str]]] = [
    (on_backlog(age=0), [f"on_backlog {NAME}: age is 0;", TIME]),
    (on_backlog(age=-1.0), ["age is -1.0", TIME]),
    (on_backlog(age=math.nan), ["age is nan", TIME]),
    (on_backlog(age=math.inf), ["age is inf", TIME]),
    (on_backlog(age=True), ["age is True", TIME]),
    (on_backlog(age="60"), ["age is '60'", TIME]),
    (on_backlog(age=timedelta(days=2)), ["age is datetime.timedelta(days=2)", TIME]),
    (on_backlog(age=60, quiet=0), ["quiet is 0", QUIET]),
    (on_backlog(age=60, queue="no name"), [f"on_backlog {NAME}", "no name"]),
    (on_dead(quiet=-1), [f"on_dead {NAME}: quiet is -1", QUIET]),
    (on_dead(quiet=timedelta(days=1, seconds=1)), ["quiet is", QUIET]),
    (on_backlog(age=60, quiet=119), ["quiet is 119", QUIET]),
    (on_dead(kinds="mail"), ["kinds is 'mail'", "pass a tuple of names"]),
    (on_dead(kinds=()), ["kinds is ()", "leave it out for all kinds"]),
    (on_dead(kinds=("no name",)), [f"on_dead {NAME}", "no name"]),
    (lambda queue: queue.on_dead(plain), ["plain", "is no `async def` function", "write `async def tell(alert: Dead"]),  # type: ignore[type-var]
    (lambda queue: queue.on_dead(7), ["on_dead 7 is no `async def`"]),  # type: ignore[call-overload]
    (lambda queue: queue.on_backlog(age=1)(plain), ["is no `async def`", "write `async def tell(alert: Backlog"]),  # type: ignore[type-var]
    (lambda queue: queue.on_dead(without_parameter), ["without_parameter cannot be called with one alert"]),  # type: ignore[type-var]
    (lambda queue: queue.on_dead(with_two), ["with_two cannot be called with one alert"]),  # type: ignore[type-var]
]


@pytest.mark.parametrize(
    ("register", "said"), REFUSED, ids=[f"{n} {said[0][:40]}" for n, (_, said) in enumerate(REFUSED)]
)
def test_what_cannot_be_is_refused_with_the_value_and_the_remedy(
    register: Callable[[Queue], object], said: list[str]
) -> None:
    """And nothing of it is registered."""
    queue = Queue()

    with pytest.raises(HandlerError) as caught:
        register(queue)

    assert [words for words in said if words not in str(caught.value)] == []
    assert queue.hooks == []


@pytest.mark.parametrize("options", [{"kind": "mail"}, {"every": 60}])
def test_an_unknown_option_is_refused(options: dict[str, Any]) -> None:
    """By Python itself, with the name."""
    with pytest.raises(TypeError, match=next(iter(options))):
        on_dead(**options)(Queue())


def test_two_hooks_of_one_name_are_refused() -> None:
    """The database would take them for one, and only the first would be told."""
    queue = Queue()
    queue.on_dead(tell)

    with pytest.raises(HandlerError, match=f"on_dead {NAME} is registered twice, .* give one of the functions another"):
        queue.on_dead(kinds=["mail"])(tell)

    queue.on_backlog(age=60)(tell)
    assert len(queue.hooks) == 2
