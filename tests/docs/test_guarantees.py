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
POINT = re.compile(r"^\| ([PCRSDM]\d+) \|", re.MULTILINE)
"""A line of a table: where something may die."""
SHOWN = re.compile(r"^- ([PCRSDM]\d+): .*$", re.MULTILINE)


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
