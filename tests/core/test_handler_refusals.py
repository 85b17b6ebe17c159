"""What cannot work as a handler is refused when it is registered, with the remedy."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from jobq.core.handler import read_signature
from jobq.errors import HandlerError
from tests.core.strategies import Money

if TYPE_CHECKING:
    from nowhere import Gone  # type: ignore[import-not-found]


class Job:
    """Stands for the class that `read_signature` is given."""


class Opaque:
    """A class that has no JSON form."""


@dataclass
class Holder:
    opaque: Opaque


class Tree(msgspec.Struct):
    branches: list[Tree] = []


def refused(function: Callable[..., object]) -> str:
    with pytest.raises(HandlerError) as caught:
        read_signature(function, kind="send", job_type=Job)
    return str(caught.value)


async def star_args(*order_ids: int) -> None: ...
async def star_kwargs(**fields: int) -> None: ...
async def positional_only(order_id: int, /) -> None: ...
async def no_annotation(order_id) -> None: ...  # type: ignore[no-untyped-def]
async def job_without_annotation(job) -> None: ...  # type: ignore[no-untyped-def]
async def unresolvable(order: Gone) -> None: ...
async def job_second(order_id: int, job: Job) -> None: ...
async def job_by_name(*, job: Job) -> None: ...
async def optional_job(job: Job | None) -> None: ...
async def custom_class(order: Opaque) -> None: ...
async def custom_class_inside(orders: dict[str, list[Opaque | None]]) -> None: ...
async def custom_class_in_field(holder: Holder) -> None: ...
async def ambiguous_union(when: datetime | str) -> None: ...
async def two_objects(order: Money | dict[str, int]) -> None: ...
async def tuple_keys(prices: dict[tuple[int, int], Decimal]) -> None: ...
async def bool_keys(prices: dict[bool, Decimal]) -> None: ...
async def raw(order: msgspec.Raw) -> None: ...
async def nonsense(order_id: 5) -> None: ...  # type: ignore[valid-type]


@pytest.mark.parametrize(
    ("function", "parameter", "remedy"),
    [
        (star_args, "*order_ids", "name each one"),
        (star_kwargs, "**fields", "name each one"),
        (positional_only, "order_id", "after the `/`"),
        (no_annotation, "order_id", "`order_id: int`"),
        (job_without_annotation, "job", "`job: Job`"),
        (unresolvable, "order", "not under TYPE_CHECKING"),
        (job_second, "job", "must come first"),
        (job_by_name, "job", "must come first"),
        (optional_job, "job", "contains Job"),
        (custom_class, "order", "contains Opaque"),
        (custom_class_inside, "orders", "contains Opaque"),
        (custom_class_in_field, "holder", "contains Opaque"),
        (ambiguous_union, "when", "narrower annotation"),
        (two_objects, "order", "narrower annotation"),
        (tuple_keys, "prices", "list of pairs"),
        (bool_keys, "prices", "list of pairs"),
        (raw, "order", "annotate the value"),
        (nonsense, "order_id", "narrower annotation"),
    ],
)
def test_parameters_that_json_cannot_fill_are_refused(
    function: Callable[..., object], parameter: str, remedy: str
) -> None:
    """The message names kind, function, parameter and remedy."""
    message = refused(function)

    assert message.startswith(f"handler 'send' ({__name__}.{function.__name__}): parameter `{parameter}")
    assert remedy in message
    assert "; " in message


class Service:
    async def method(self, order_id: int) -> None: ...
    async def __call__(self, order_id: int) -> None: ...


@pytest.mark.parametrize("function", [functools.partial(tuple_keys, {}), Service().method, Service(), Service, print])
def test_only_functions_are_handlers(function: Callable[..., object]) -> None:
    """Partials, methods, classes and callable objects are refused: write a function."""
    assert "is no plain function but a " in refused(function)


async def async_generator(order_id: int) -> AsyncIterator[int]:
    yield order_id


def generator(order_id: int) -> Iterator[int]:
    yield order_id


@pytest.mark.parametrize("function", [async_generator, generator])
def test_generators_are_refused(function: Callable[..., object]) -> None:
    """Calling one runs nothing of it."""
    assert "is a generator" in refused(function)


def test_a_plain_wrapper_of_a_coroutine_function_is_refused() -> None:
    """It would be run in a thread and its coroutine be thrown away."""

    @functools.wraps(tuple_keys)
    def wrapper(*args: object, **kwargs: object) -> Coroutine[Any, Any, None]:
        raise NotImplementedError

    assert "make the wrapper an `async def` too" in refused(wrapper)


def test_recursive_types_are_walked_once() -> None:
    """A type that contains itself is accepted, and looking through it ends."""

    def handler(tree: Tree) -> None: ...

    signature = read_signature(handler, kind="send", job_type=Job)

    assert signature.decode('{"tree": {"branches": [{}]}}') == {"tree": Tree([Tree()])}
