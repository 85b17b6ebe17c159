"""The table in examples/README.md names each example, with a command that its head tells, too."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from jobq import Queue
from tests.docs.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
AROUND = {"__init__", "mail_server", "try_out", "webhook_receiver"}
"""What is no example of its own."""

ROWS = re.findall(
    r"^\| \[(\w+)\.py\]\(\1\.py\) \| .+ \| `(.+)` \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE
)


def test_the_table_names_each_example() -> None:
    """Who adds one adds a line."""
    assert {name for name, _ in ROWS} == {path.stem for path in EXAMPLES.glob("*.py")} - AROUND


@pytest.mark.parametrize(("name", "command"), ROWS)
def test_a_command_in_the_table_is_in_the_head(name: str, command: str) -> None:
    """One place could be changed and the other forgotten."""
    assert f"\n    {command}\n" in (import_module(f"examples.{name}").__doc__ or "")


@pytest.mark.parametrize("name", [name for name, _ in ROWS])
def test_each_handler_says_what_a_duplicate_run_does(name: str) -> None:
    """An example is copied with what it leaves out."""
    queue = import_module(f"examples.{name}").queue

    assert isinstance(queue, Queue)
    assert queue.handlers
    assert all(handler.on_duplicate for handler in queue.handlers.values())
