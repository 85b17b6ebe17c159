"""Cover what nobody should read in logs, errors and dead letters: passwords in addresses, values of redacted fields.

A *redacted field* is named by its path in the payload: `card_number`, or `card.number` for a part of it; a list on the
way stands for each of its items. The payload itself stays whole; what is covered is text about it.

Limits, stated in docs/security.md: a value is found in a text as it stands in the payload, as Python or JSON quotes it,
or percent-encoded; not what a handler made of it (a hash, its last four digits), and not one shorter than
`MIN_CHARACTERS`, which would be found everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

COVER = "***"

MIN_CHARACTERS = 4
"""Shorter values are in any text by chance: covering each 7 would make it unreadable, and tell that it is a 7."""

# Each part is bounded, so that a text of megabytes that is made for it costs no more than any other.
_PASSWORD = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s:/?#@'\"]{0,200}):[^\s'\"]{0,500}@")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

Cover = Callable[[str], str]
"""Returns a text in which something is covered."""


def cover_passwords(text: str) -> str:
    """Cover the password in each address that stands in *text*, `scheme://user:password@host`."""
    return _PASSWORD.sub(rf"\1:{COVER}@", text) if "://" in text else text


def cover_fields(document: Any, paths: Sequence[str]) -> Any:
    """Return a copy of *document*, plain JSON values, with what stands at each of *paths* covered."""
    for path in paths:
        document = _covered(document, path.split("."))
    return document


def cover_values(payload: str | bytes, paths: Sequence[str]) -> Cover:
    """Return a function that covers, in any text, the values that stand at *paths* of the *payload*, which is JSON."""
    if not paths:
        return cover_passwords
    try:
        document = json.loads(payload)
    except ValueError:
        return cover_passwords  # nothing was decoded from it, so nothing can have got into a text
    spellings = {
        spelling
        for path in paths
        for value in _at(document, path.split("."))
        for text in _texts(value)
        for spelling in _spellings(text)
    }
    if not spellings:
        return cover_passwords
    # The longest first: one value may be a part of another.
    found = re.compile("|".join(map(re.escape, sorted(spellings, key=len, reverse=True))))
    return lambda text: cover_passwords(found.sub(COVER, text))


def _covered(value: Any, steps: list[str]) -> Any:
    if not steps:
        return COVER
    match value:
        case list():
            return [_covered(item, steps) for item in value]
        case Mapping() if steps[0] in value:
            return {**value, steps[0]: _covered(value[steps[0]], steps[1:])}
        case _:
            return value


def _at(value: Any, steps: list[str]) -> Iterator[Any]:
    """Yield what stands at the path of these *steps*."""
    if isinstance(value, list) and steps:
        for item in value:
            yield from _at(item, steps)
    elif not steps:
        yield value
    elif isinstance(value, dict) and steps[0] in value:
        yield from _at(value[steps[0]], steps[1:])


def _texts(value: Any) -> Iterator[str]:
    """Yield the text of a value, or of each value within it; of a text with several lines each one, too."""
    match value:
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)
        case bool() | None:
            pass  # there are too few of them to be a secret
        case str():
            yield value
            if "\n" in value:
                yield from (line.strip() for line in value.splitlines())
        case _:
            yield json.dumps(value)


def _spellings(text: str) -> Iterator[str]:
    """Yield how *text* may stand in a message: plainly, quoted by Python or JSON, or percent-encoded."""
    if len(text) < MIN_CHARACTERS:
        return
    yield text
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    try:
        encoded = text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which no payload that was stored has
        return
    yield "".join(chr(byte) if chr(byte) in _UNRESERVED else f"%{byte:02X}" for byte in encoded)
