"""What a rule finds: how bad it is, what it is, why it matters, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

FIRST_FEW = 5
"""How many names one finding tells."""


class Severity(StrEnum):
    """How bad it is: something is lost, stops or grows without end, or it may come to that."""

    HURTS = "will hurt"
    LOOK = "worth a look"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. *code* names the rule, for programs; the other texts are sentences without a full stop."""

    severity: Severity
    code: str
    title: str
    detail: str
    remedy: str


class KindRules(msgspec.Struct, frozen=True):
    """What an application states about one of its kinds, as far as a rule asks for it."""

    kind: str
    timeout_s: float
    on_duplicate: str | None


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the database's facts.

    *hosts*: how many the DSN names. *hears*: whether notifications come through, None if nobody tried. *kinds*: those
    of the application, if it was given.
    """

    hosts: int = 1
    prepared_statements: bool = True
    hears: bool | None = None
    kinds: Sequence[KindRules] = ()


def counted(count: int, noun: str) -> str:
    """Return how many of what: `1 day`, `3 days`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def first_few(names: Iterable[str]) -> str:
    """Return the first few *names* for a sentence, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - FIRST_FEW} more" if len(listed) > FIRST_FEW else ""
    return ", ".join(listed[:FIRST_FEW]) + more
