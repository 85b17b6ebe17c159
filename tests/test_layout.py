"""The house rules of the source tree that no linter knows (CONTRIBUTING.md, "How it is written")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jobq"
SQL = PACKAGE / "db" / "sql"

FOLDERS = ("jobq", "tests", "benchmarks", "examples")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
MODULES = sorted(PACKAGE.rglob("*.py"))
STATEMENTS = sorted(SQL.glob("*.sql"))

MAX_LINES = 400
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc", "types"}
LOOKS_LIKE_SQL = re.compile(
    r"""
      ^\s*select\s+(\d|[\w.]+\() | \bselect\b.*\bfrom\b | \binsert\s+into\b | \bupdate\s+\S+\s+set\b | \bdelete\s+from\b
    | \bwith\s+\w+\s+as\s*(not\s+)?(materialized\s*)?\(
    | \b(create|alter|drop|truncate|lock)\s+(table|schema|index|function|database|role|type)\b
    | ^\s*(begin|commit|rollback|listen|unlisten|notify|vacuum|analyze)\b[^.]*;?$ | ^\s*set\s+\w+\s*(=|to)\s
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# The clock and chance, where an import cannot be forbidden because the module has an innocent use.
CLOCK_AND_CHANCE = {"now", "utcnow", "today", "uuid1", "uuid4"}


def name(path: Path) -> str:
    """Return *path* as a reader would type it, for the ids of the tests."""
    return path.relative_to(ROOT).as_posix()


def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings in *tree*, f-strings among them, but no docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", [*SOURCES, *STATEMENTS], ids=name)
def test_a_file_has_400_lines_at_most(path: Path) -> None:
    """Longer ones hold two things; migrations are exempt, because a frozen one cannot be split."""
    lines = len(path.read_text(encoding="utf-8").splitlines())

    assert lines <= MAX_LINES, f"{name(path)} has {lines} lines: split it by purpose"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_is_named_after_its_purpose(path: Path) -> None:
    """A bucket for leftovers has no purpose that a newcomer could look for."""
    parts = {part.removesuffix(".py").strip("_") for part in path.relative_to(ROOT).parts}

    assert not parts & VAGUE_NAMES


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_opens_with_a_docstring(path: Path) -> None:
    """One sentence of purpose, then what the module promises or leaves to others."""
    tree = syntax(path)

    assert ast.get_docstring(tree) or (not tree.body and PACKAGE not in path.parents)


@pytest.mark.parametrize("path", [path for path in MODULES if PACKAGE / "db" not in path.parents], ids=name)
def test_sql_stands_in_db_only(path: Path) -> None:
    """Who looks for a statement has one place to look."""
    found = [f"line {line}: {text!r}" for line, text in strings(syntax(path)) if LOOKS_LIKE_SQL.search(text)]

    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1", True),
        ("update jobq.job set attempt = 1", True),
        ("with picked as materialized (select id", True),
        ("LISTEN jobq", True),
        ("set the DSN to a writable server", False),
        ("delete it from the dead letters", False),
        ("select the jobs to redrive with --kind or --id", False),
        ("update", False),
    ],
)
def test_sql_is_told_from_prose(text: str, expected: bool) -> None:
    """The check above stops statements, and no messages."""
    assert bool(LOOKS_LIKE_SQL.search(text)) is expected


@pytest.mark.parametrize("path", STATEMENTS, ids=name)
def test_a_statement_says_its_name_first(path: Path) -> None:
    """The file, the method and the head comment bear one name."""
    first = path.read_text(encoding="utf-8").splitlines()[0]

    assert first.startswith(f"-- {path.stem}: ")


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_the_driver_is_named_where_the_users_connection_is(path: Path) -> None:
    """asyncpg is spoken in db; queue and handle name its connection type, and nobody else knows it."""
    if PACKAGE / "db" in path.parents or path in (PACKAGE / "queue.py", PACKAGE / "handle.py"):
        return
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }

    assert not {module for module in imported if module.split(".")[0] == "asyncpg"}


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").rglob("*.py")), ids=name)
def test_the_core_is_given_time_and_chance(path: Path) -> None:
    """A rule that reads the clock or draws a number cannot be tested by its arguments."""
    calls = {
        node.func.attr
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }

    assert not calls & CLOCK_AND_CHANCE
