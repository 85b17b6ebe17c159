"""Names and keys are checked before any SQL, and each refusal says what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq.core.names import idempotency_key_fault, kind_fault, queue_fault, schema_fault, shown, text_fault
from tests.core.strategies import FEW

Check = Callable[[object], str | None]


class Garbled:
    def __repr__(self) -> str:
        return "\ud800"


@pytest.mark.parametrize("name", ["a", "send_receipt", "Mail:eu-1.x", "9", "a" * 60])
@pytest.mark.parametrize("check", [kind_fault, queue_fault])
def test_plain_names_are_accepted(check: Check, name: str) -> None:
    """Letters, digits and _ . : - after a letter or digit make a name."""
    assert check(name) is None


@pytest.mark.parametrize("name", ["", " a", "a b", "-a", ".a", "é", "a\n", "a\0", "a$", "a/b", "\ud800", None, 7, b"a"])
@pytest.mark.parametrize("check", [kind_fault, queue_fault])
def test_other_names_are_refused(check: Check, name: object) -> None:
    """Everything else is refused with the value and an example; a trailing newline is no exception."""
    fault = check(name)

    assert fault is not None
    assert shown(name) in fault
    assert "; use " in fault


@pytest.mark.parametrize(
    ("check", "limit"), [(kind_fault, 100), (queue_fault, 60), (schema_fault, 63), (idempotency_key_fault, 512)]
)
def test_names_have_a_longest_length(check: Check, limit: int) -> None:
    """The limit itself passes, one byte more does not."""
    assert check("a" * limit) is None
    assert check("a" * (limit + 1)) is not None


@pytest.mark.parametrize("check", [schema_fault, idempotency_key_fault])
def test_lengths_of_free_text_are_counted_in_bytes(check: Check) -> None:
    """A name of fewer characters than the limit is refused if PostgreSQL would see more bytes."""
    assert check("é" * 31) is None
    assert check("é" * 257) is not None


@pytest.mark.parametrize("name", ["jobq", "Jobq 2", 'we"ird', "tenant-ü", "a'b"])
def test_a_schema_may_be_anything_that_quoting_can_carry(name: str) -> None:
    """F98: spaces, quotes and other alphabets are fine, because the name is always quoted."""
    assert schema_fault(name) is None


@pytest.mark.parametrize("name", ["", "a\0", "a\n", "a\x7f", "a\x85", "a$b", "@schema@", "pg_jobq", "\ud800", None])
def test_a_schema_that_sql_or_postgres_cannot_carry_is_refused(name: object) -> None:
    """NUL, control characters, the marks of parameters and PostgreSQL's own prefix are refused."""
    assert schema_fault(name) is not None


@pytest.mark.parametrize("key", ["", "a\0", "a\tb", "\udfff", None, 7])
def test_an_idempotency_key_is_printable_text(key: object) -> None:
    """F55: empty keys, control characters and what is no text are refused."""
    assert idempotency_key_fault(key) is not None


@given(st.text(min_size=1, max_size=128))
@FEW
def test_accepted_keys_can_be_stored(key: str) -> None:
    """F55: what the check accepts is UTF-8 without NUL, and what it refuses has a reason in the message."""
    fault = idempotency_key_fault(key)

    if fault is None:
        assert "\0" not in key
        assert len(key.encode()) <= 512
    else:
        assert "control character" in fault or text_fault(key) is not None


@given(st.text() | st.binary() | st.floats() | st.integers() | st.lists(st.text()))
@FEW
def test_shown_is_short_and_printable(value: object) -> None:
    """Any value can be put into a message."""
    text = shown(value)

    assert len(text) < 500
    assert text.encode().decode() == text


@pytest.mark.parametrize(
    "value",
    [10**5000, "x" * 10**6, list(range(10**5)), "\ud800\0", Garbled(), object()],
    ids=lambda value: type(value).__name__,
)
def test_shown_copes_with_huge_and_odd_values(value: object) -> None:
    """An integer that Python refuses to print, long values and broken text are shown all the same."""
    assert 0 < len(shown(value).encode()) < 200
