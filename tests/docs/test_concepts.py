"""What the docs say about states is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from jobq.core.states import TRANSITIONS

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts.md"


def test_the_table_of_transitions_is_the_one_in_the_code() -> None:
    """Each line of the table in docs/concepts.md is a transition, and each transition is a line."""
    section = re.search(r"<!-- transitions.*?-->\n(.*?)<!-- /transitions -->", CONCEPTS.read_text("utf-8"), re.DOTALL)
    assert section is not None

    lines = section[1].splitlines()[2:]

    assert lines == [f"| {one.source} | {one.event} | {one.target} | `{one.statement}` |" for one in TRANSITIONS]
