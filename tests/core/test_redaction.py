"""What is covered in texts and documents, however it is spelled, and what is left alone."""

from __future__ import annotations

import json
import traceback
from typing import Any, TypedDict

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobq import HandlerError, PayloadError, Queue
from jobq.core.failure import describe
from jobq.core.redaction import MIN_CHARACTERS, cover_fields, cover_passwords, cover_values

CARD = "4111 1111-1111/1111"


class Card(msgspec.Struct, rename="camel"):
    """A part of a payload, whose JSON has other names than its attributes."""

    card_number: str
    holder: str = ""


class Owner(TypedDict):
    """Another part."""

    pin: int


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("postgresql://me:secret@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql+asyncpg://me:se@cret@db/shop is away", "postgresql+asyncpg://me:***@db/shop is away"),
        ("redis://:secret@cache", "redis://:***@cache"),
        ("two: 'amqp://a:b@c' and \"amqp://d:e@f\"", "two: 'amqp://a:***@c' and \"amqp://d:***@f\""),
        ("https://example.org:8080/a@b", "https://example.org:***@b"),
        ("https://me@example.org/", "https://me@example.org/"),
        ("no address: me:secret@db", "no address: me:secret@db"),
    ],
)
def test_the_password_of_an_address_is_covered(text: str, covered: str) -> None:
    """Rather too much than too little."""
    assert cover_passwords(text) == covered


@pytest.mark.parametrize("text", ["a." * 500_000, "a://" * 250_000, "a://b:" * 170_000, "a://b:" + "c" * 1_000_000])
def test_a_text_made_for_it_is_covered_like_any_other(text: str) -> None:
    """It ends; the time-out of the test is the limit."""
    assert cover_passwords(text)


@given(st.text(min_size=MIN_CHARACTERS))
@example("a://b:c@d")
def test_a_value_is_found_however_it_is_quoted(secret: str) -> None:
    """Plainly, as Python shows it, and as JSON does."""
    cover = cover_values(json.dumps({"token": secret}), ["token"])

    for spelling in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]):
        assert cover(f"<{spelling}>") == "<***>"


def test_parts_of_documents_are_covered_by_their_path() -> None:
    """Lists on the way stand for each of their items; what is not there is no error."""
    document = {"cards": [{"number": 1, "name": "a"}, {"number": 2}], "token": {"deep": ["x"]}, "id": 7}

    covered = cover_fields(document, ["cards.number", "token", "nowhere.at.all"])

    assert covered == {"cards": [{"number": "***", "name": "a"}, {"number": "***"}], "token": "***", "id": 7}
    assert document["id"] == 7
    assert document["token"] == {"deep": ["x"]}


def test_numbers_lines_and_parts_are_covered_and_short_values_are_not() -> None:
    """A group of exceptions indents each line; and what has three characters is in any text."""
    payload = json.dumps(
        {"pin": 483920, "key": "-----BEGIN-----\nMIIEvQ", "cvv": "123", "ok": True, "all": {"a": ["abcd"]}}
    )
    cover = cover_values(payload, ["pin", "key", "cvv", "ok", "all"])

    covered = cover("pin 483920, |  MIIEvQ, cvv 123, True, q=abcd")

    assert covered == "pin ***, |  ***, cvv 123, True, q=***"


def test_a_percent_encoded_value_is_covered() -> None:
    """As in the address of a request that failed."""
    assert cover_values(json.dumps({"card": CARD}), ["card"])("GET /?c=4111%201111-1111%2F1111") == "GET /?c=***"


def test_nothing_of_a_secret_survives_a_cut() -> None:
    """F107: it is covered before the message is shortened, in a group and in what caused it, too."""
    secret = "s3cr3t" * 200
    cover = cover_values(json.dumps({"token": secret}), ["token"])
    try:
        try:
            raise ValueError("x" * 150 + secret)
        except ValueError as error:
            raise ExceptionGroup("two", [OSError("y" * 190 + secret), KeyError(secret)]) from error
    except ExceptionGroup as group:
        failure = describe(group, cover=cover)

    assert "***" in failure.message
    assert "s3cr3t" not in failure.message + failure.traceback


def test_a_fingerprint_does_not_depend_on_a_secret() -> None:
    """The same error of two jobs is one line in the list, and its hash tells nothing."""
    prints = {
        describe(
            ValueError(f"no {token} here"), cover=cover_values(json.dumps({"token": token}), ["token"])
        ).fingerprint
        for token in ("abcdefgh", "ijklmnop")
    }

    assert len(prints) == 1


# -- registration ------------------------------------------------------------------------------------


def register(*redact: Any) -> Any:
    """Register a handler with several fields that redacts these."""

    async def charge(
        order_id: int, card: Card, cards: list[Card], owner: Owner, extra: dict[str, int], rest: Any
    ) -> None:
        """Do nothing."""

    return Queue("postgresql://db/shop").task(kind="charge", redact=redact)(charge)


def test_fields_and_their_parts_can_be_redacted() -> None:
    """By the names that they have in JSON."""
    handler = register("order_id", "card.cardNumber", "cards.holder", "owner.pin", "extra.any", "rest.what.ever")

    assert "card.cardNumber" in handler.signature.redact


@pytest.mark.parametrize(
    "path", ["card_number", "card.card_number", "order_id.x", "cards.0", "owner.pni", "", "card.", ".card", 7]
)
def test_a_field_that_is_not_there_is_refused(path: object) -> None:
    """With the list of those that are; a slip would cover nothing, silently."""
    with pytest.raises(HandlerError, match="redact=") as caught:
        register(path)

    if isinstance(path, str):
        assert "order_id, card, cards, owner, extra, rest" in str(caught.value)


def test_a_name_alone_is_refused() -> None:
    """It would be taken for its letters."""
    with pytest.raises(HandlerError, match="pass a tuple"):
        Queue("postgresql://db/shop").task(kind="charge", redact="token")(lambda: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"order_id": "s3cr3t-s3cr3t"},
        {"card": {"cardNumber": ["s3cr3t"]}},
        {"rest": {1, "s3cr3t\0"}},
        {"card": "s3cr3t"},
    ],
)
def test_a_payload_that_does_not_fit_is_told_without_a_value(wrong: dict[str, object]) -> None:
    """Neither by the message nor by what caused it."""
    handler = register("card.cardNumber")
    good = {"order_id": 1, "card": {"cardNumber": "x"}, "cards": [], "owner": {"pin": 1}, "extra": {}, "rest": None}

    with pytest.raises(PayloadError) as caught:
        handler.signature.encode(good | wrong)
    told = "".join(traceback.format_exception(caught.value))

    assert "s3cr3t" not in told
    assert "no value is shown" in told
