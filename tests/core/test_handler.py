"""A handler's signature decides what its payload may be, at enqueue and at the run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given

from jobq.core.handler import HandlerSignature, PayloadField, read_signature
from jobq.errors import PayloadError
from tests.core.strategies import FEW, TYPED, Colour, Line, Money, Typed

if TYPE_CHECKING:
    from nowhere import Gone  # type: ignore[import-not-found]


class Job:
    """Stands for the class that `read_signature` is given."""


class Opaque:
    """A class that has no JSON form."""


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("is odd - at `$.all`")


class Fragile(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        raise KeyError("not known here")


def read(function: Callable[..., object]) -> HandlerSignature:
    return read_signature(function, kind="send", job_type=Job)


def unfit(call: Callable[..., object], *args: object, **kwargs: object) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        call(*args, **kwargs)
    return caught.value


async def send_receipt(job: Job, order_id: int, note: str = "", *, lines: list[Line] | None = None) -> None: ...
async def pay(amounts: dict[str, Money], at: datetime) -> None: ...
def tidy() -> Gone: ...


# -- what a signature says ---------------------------------------------------------------------------


def test_parameters_after_the_job_are_payload() -> None:
    """The job is no payload, a default makes a field optional, and the annotation is shown as written."""
    signature = read(send_receipt)

    assert signature.takes_job
    assert signature.is_async
    assert signature.fields == (
        PayloadField("order_id", "int", required=True),
        PayloadField("note", "str", required=False),
        PayloadField("lines", "list[Line] | None", required=False),
    )
    assert str(signature) == (
        "'send' (tests.core.test_handler.send_receipt(order_id: int, note: str = ..., lines: list[Line] | None = ...))"
    ).replace("tests.core.test_handler", __name__)


def test_a_handler_may_take_nothing() -> None:
    """No job, no payload, a plain function, and a return type that only type checkers can resolve."""
    signature = read(tidy)

    assert (signature.takes_job, signature.is_async, signature.fields) == (False, False, ())
    assert signature.bind_payload() == b"{}"
    assert signature.decode("{}") == {}


def test_a_job_before_the_slash_is_fine() -> None:
    """The job is passed by position, so it may be positional-only; payload may not."""

    async def handler(job: Job, /, order_id: int) -> None: ...

    assert (read(handler).takes_job, read(handler).positional) == (True, ("order_id",))


def test_a_wrapper_shows_what_it_wraps() -> None:
    """The signature and the names of its annotations come from the innermost function, `async` from the outermost."""
    elsewhere: dict[str, Any] = {"Euro": Money}
    exec("def pay(amount: 'Euro') -> None: ...", elsewhere)

    @functools.wraps(elsewhere["pay"])
    async def wrapper(*args: object, **kwargs: object) -> None: ...

    signature = read(wrapper)

    assert signature.is_async
    assert signature.decode('{"amount": {"amount": "1.50"}}') == {"amount": Money(Decimal("1.50"))}


@given(TYPED)
@FEW
def test_values_come_back_as_annotated(typed: Typed) -> None:
    """F58: what a handler gets is what was bound, type and all, for every entry of the type table."""
    annotation, value = typed
    signature = read(with_annotation(annotation))

    got = signature.decode(signature.bind_payload(value))

    assert got == {"value": value}
    assert type(got["value"]) is type(value)


def with_annotation(annotation: Any) -> Callable[..., object]:
    def handler(value: object) -> None: ...

    handler.__annotations__["value"] = annotation
    return handler


# -- bound at enqueue --------------------------------------------------------------------------------


def test_bind_takes_what_the_call_takes() -> None:
    """By position or by name; what is not given stays out of the payload."""
    bind = read(send_receipt).bind_payload

    assert bind(7) == bind(order_id=7) == b'{"order_id":7}'
    assert bind(7, "hello") == b'{"order_id":7,"note":"hello"}'
    assert bind(7, lines=[]) == b'{"order_id":7,"lines":[]}'


@pytest.mark.parametrize(
    ("args", "kwargs", "field"),
    [
        ((), {}, "$.order_id"),
        ((7, "note", []), {}, "$"),
        ((7,), {"order_id": 7}, "$.order_id"),
        ((7,), {"oder_id": 7}, "$.oder_id"),
        (("7",), {}, "$.order_id"),
        ((7.0,), {}, "$.order_id"),
        ((True,), {}, "$.order_id"),
        ((7, None), {}, "$.note"),
        ((7,), {"lines": [Line(Money(Decimal(1)), Colour.RED), {"price": {"amount": 1, "currency": 2}}]}, ...),
        ((7,), {"lines": [Opaque()]}, "$.lines[0]"),
        ((2**63,), {}, "$.order_id"),
    ],
)
def test_a_call_that_the_handler_would_not_take_is_refused(
    args: tuple[object, ...], kwargs: dict[str, object], field: object
) -> None:
    """The error is about the path of the value, in the caller's own transaction, before any SQL."""
    error = unfit(read(send_receipt).bind_payload, *args, **kwargs)

    assert error.field == ("$.lines[1].price.currency" if field is ... else field)
    assert str(error).startswith("payload of 'send'")
    assert "; " in str(error)


def test_the_message_of_a_misfit_shows_signature_value_and_remedy() -> None:
    """The whole message, as a user reads it."""
    error = unfit(read(pay).bind_payload, {"net": {"amount": []}}, at=datetime(2026, 1, 31, tzinfo=UTC))

    assert str(error) == (
        f"payload of 'send' ({__name__}.pay(amounts: dict[str, Money], at: datetime)): $.amounts[...].amount"
        " = {'net': {'amount': []}} does not fit: Expected `decimal`, got `array`;"
        " pass what the annotation says, or change it"
    )
    assert error.value == {"net": {"amount": []}}


def test_a_raw_payload_is_checked_like_a_call() -> None:
    """`enqueue("send", {...})` of a kind that is known here may not misspell an optional field either."""
    encode = read(send_receipt).encode

    assert encode({"order_id": 7}) == b'{"order_id":7}'
    assert unfit(encode, {"order_id": 7, "nte": "hello"}).field == "$.nte"
    assert unfit(encode, [7]).field == "$"


def test_classes_may_refuse_values_themselves() -> None:
    """What `__post_init__` raises is a misfit at the path of the object, whatever it raises and says."""

    def handler(even: Even) -> None: ...
    def other(fragile: Fragile) -> None: ...

    error = unfit(read(handler).bind_payload, {"number": 1})

    assert (error.field, "is odd - at `$.all`" in str(error)) == ("$.even", True)
    assert "not known here" in str(unfit(read(other).bind_payload, {"number": 1}))


# -- decoded at the run ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "arguments"),
    [
        ('{"order_id": 7}', {"order_id": 7}),
        (b'{"order_id": 7}', {"order_id": 7}),
        ('{"order_id": 7, "removed": [1]}', {"order_id": 7}),
        ('{"note": "x", "order_id": 7, "lines": null}', {"order_id": 7, "note": "x", "lines": None}),
    ],
)
def test_a_stored_payload_becomes_arguments(payload: str | bytes, arguments: Mapping[str, object]) -> None:
    """F66: unknown fields are left over from other releases and ignored; missing ones take the function's default."""
    assert read(send_receipt).decode(payload) == arguments


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ("{}", "$.order_id"),
        ('{"order_id": "7"}', "$.order_id"),
        ('{"order_id": 7.5}', "$.order_id"),
        ('{"order_id": 7, "lines": [{"price": {"currency": "EUR"}}]}', "$.lines[0].price.amount"),
        ("[7]", "$"),
        ("", "$"),
        ('{"order_id": 7', "$"),
        (b"\xff", "$"),
        ("\ud800", "$"),
        ('{"order_id": 7, "lines": ' + "[" * 100_000, "$.lines[0]"),
        ('{"order_id": 7, "other": ' + "[" * 100_000, "$"),
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)
def test_a_stored_payload_that_does_not_fit_is_a_payload_error(payload: str | bytes, field: str) -> None:
    """F66: whatever stands in the row, the worker sees our error, with the path and what to do."""
    error = unfit(read(send_receipt).decode, payload)

    assert error.field == field
    assert len(str(error)) < 500


def test_mutable_defaults_are_pythons_business() -> None:
    """A default never becomes part of the payload type, so even one that msgspec would refuse works."""

    def handler(ids: list[int] = [1], day: date = date.max) -> None: ...  # noqa: B006

    assert read(handler).decode("{}") == {}
