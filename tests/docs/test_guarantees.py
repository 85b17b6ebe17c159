"""Each guarantee names the test that shows it, and the test is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.snippets import REPOSITORY

GUARANTEES = REPOSITORY / "docs" / "guarantees.md"
DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]

TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
POINT = re.compile(r"^\| ([PCRSTDM]\d+) \|", re.MULTILINE)
"""A line of a table: where something may die."""
SHOWN = re.compile(r"^- ([PCRSTDM]\d+): .*$", re.MULTILINE)

NEVER_GIVEN = {4, 9, 16, 25, 30, 33, 37, 47, 52, 57, 61, 70, 74, 83, 85, 87, 96, 97, 101, 103, 111, 112, 114, 116}
REPORTS = {f"F{number:02}" for number in range(1, 118) if number not in NEVER_GIVEN}
"""The reported faults of other queues that the tests answer, or the last table says why not."""
REPORT = re.compile(r"\b(F\d{2,3})(?: to (F\d{2,3}))?\b")


@cache
def functions(path: str) -> set[str]:
    """The functions of a file of the repository; none if it is not there."""
    file = REPOSITORY / path
    if not file.is_file():
        return set()
    tree = ast.parse(file.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_each_test_that_is_named_is_there(document: Path) -> None:
    """A test that was renamed or dropped takes the sentence that it shows along."""
    named = TEST.findall(document.read_text("utf-8"))

    assert [f"{path}::{name}" for path, name in named if name not in functions(path)] == []


def test_each_crash_point_names_its_test() -> None:
    """In the order of the table: what nothing shows is an opinion."""
    text = GUARANTEES.read_text("utf-8")
    shown = [line.group(1) for line in SHOWN.finditer(text) if TEST.search(line.group())]

    assert len(shown) > 20
    assert POINT.findall(text) == shown


def test_each_report_is_answered_by_a_test_or_by_a_line_that_says_why_not() -> None:
    """The map: whoever looks for a number finds it, and no number that nobody has given."""
    documented = [
        ast.get_docstring(node) or ""
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    _, table = GUARANTEES.read_text("utf-8").split("\n## What breaks other queues, and not this one\n")
    lines = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| F")]

    answered = set().union(*map(reports_in, documented))
    excused = set().union(*(reports_in(numbers) for numbers, _, here in lines if here.strip()))

    assert len(lines) > 5
    assert REPORTS - answered - excused == set()
    assert (answered | excused) - REPORTS == set()


def reports_in(text: str) -> set[str]:
    """The numbers in a text; "F48 to F54" are all those between that were given."""
    found: set[str] = set()
    for first, last in REPORT.findall(text):
        numbers = {f"F{number:02}" for number in range(int(first[1:]), int((last or first)[1:]) + 1)}
        found |= numbers & REPORTS if last else numbers
    return found
