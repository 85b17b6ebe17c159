"""The same error at the same place has the same fingerprint, over releases, workers and values."""

from __future__ import annotations

from typing import Any

import pytest

from jobq.core.failure import describe, plain
from tests.core.test_failure import raised


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 not found", "order 1234567890 not found"),
        ("took 1.5 s at 10:31:02", "took 0.25 s at 09:00:00"),
        ("no file '/tmp/a b'", "no file '/var/c'"),
        ("can't open 'a'", "can't open 'b'"),
        ("bad \"x\" and `y` and b'z'", "bad \"1\" and `2` and b'3'"),
        ("job 7f3c9a1e-1111-4222-8333-9f8e7d6c5b4a", "job 00000000-0000-0000-0000-000000000000"),
        ("<C object at 0x7f01>", "<C object at 0xdeadbeef>"),
        ("commit 5d41402a", "commit 12345678"),
        ("bad value '" + "x" * 100_000, "bad value '" + "y" * 5_000),
    ],
)
def test_values_do_not_change_the_fingerprint(one: str, other: str) -> None:
    """The same error about another order is the same error."""
    assert describe(ValueError(one)).fingerprint == describe(ValueError(other)).fingerprint
    assert plain(one).fingerprint == plain(other).fingerprint


def test_what_went_wrong_changes_the_fingerprint() -> None:
    """Type, text and function each make another error."""

    def here() -> None:
        raise ValueError("no order")

    def there() -> None:
        raise ValueError("no order")

    errors = [ValueError("no order"), ValueError("no customer"), KeyError("no order"), raised(here), raised(there)]

    assert len({describe(error).fingerprint for error in errors}) == 5


def test_a_release_does_not_change_the_fingerprint() -> None:
    """Another folder and other line numbers are the same place."""

    def released(folder: str, lines_above: int) -> str:
        names: dict[str, Any] = {}
        code = "\n" * lines_above + "def handler():\n    raise ValueError('no order')"
        exec(compile(code, f"{folder}/mail.py", "exec"), names)
        return describe(raised(names["handler"])).fingerprint

    assert released("/srv/r1", 0) == released("/srv/r2/app", 40)


def test_order_and_number_of_leaves_do_not_change_the_fingerprint() -> None:
    """Which task of a group failed first, and how many did, is chance."""
    one, two = ValueError("1"), KeyError("2")

    fingerprints = {
        describe(ExceptionGroup("group", list(parts))).fingerprint
        for parts in [(one, two), (two, one), (one, two, ValueError("3"))]
    }

    assert len(fingerprints) == 1


def test_the_rule_of_the_fingerprint_is_fixed() -> None:
    """Fingerprints are stored: another rule would split the groups of dead letters that exist."""
    assert describe(ValueError("order 17 not found")).fingerprint == "e7e0836a413c"
    assert plain("timed out after 30 s", type="TimeoutError").fingerprint == "c60c71c963d8"
    assert describe(ExceptionGroup("g", [ValueError("a"), KeyError("b"), OSError("c")])).fingerprint == "7bf24c15d568"
