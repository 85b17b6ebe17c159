"""The house rules of the source tree that no linter knows (CONTRIBUTING.md, "How it is written")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jobq"

FOLDERS = ("jobq", "tests", "benchmarks", "examples")
TREES = {
    path: ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}
STATEMENTS = sorted((PACKAGE / "db" / "sql").glob("*.sql"))

MAX_LINES = 400
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc", "types"}
NAME_THE_CONNECTION_TYPE = {PACKAGE / "queue.py", PACKAGE / "handle.py"}
HAVE_SQL = {PACKAGE / "db", PACKAGE / "demo"}
"""The second is an application of jobq, with a database of its own."""
# Each takes the cancellation of a task that it owns, in the last frame of that task: nobody's above it is lost.
MAY_KEEP_A_CANCELLATION = {"jobq/worker/executor.py: _run", "jobq/worker/hook_call.py: _run"}
CANCELLATIONS = {"CancelledError", "BaseException", "get_cancelled_exc_class"}
# The clock and chance, where an import cannot be forbidden because the module has an innocent use.
CLOCK_AND_CHANCE = {"now", "utcnow", "today", "uuid1", "uuid4"}
LOOPS_OF_THE_THREAD = {"get_event_loop", "set_event_loop", "get_event_loop_policy", "set_event_loop_policy"}
LOOKS_LIKE_SQL = re.compile(
    r"""
      ^\s*select\s+(\d|[\w.]+\() | \bselect\b.*\bfrom\b | \binsert\s+into\b | \bupdate\s+\S+\s+set\b
    | \bdelete\s+from\s+[\w."@]+\s+(where|using|returning)\b | \bwith\s+\w+\s+as\s*(not\s+)?(materialized\s*)?\(
    | \b(create|alter|drop|truncate|lock)\s+(table|schema|index|function|database|role|type)\b
    | ^\s*(begin|commit|rollback|listen|unlisten|notify|vacuum|analyze)\b[^.]*;?$ | ^\s*set\s+\w+\s*(=|to)\s
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


def under(folder: Path) -> dict[Path, ast.Module]:
    return {path: tree for path, tree in TREES.items() if folder in path.parents}


def name(path: Path) -> str:
    """Return *path* as a reader would type it."""
    return path.relative_to(ROOT).as_posix()


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings in *tree*, f-strings among them, but no docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def imported(tree: ast.Module) -> set[str]:
    """Return the top-level packages that *tree* imports, for type checkers only or not."""
    packages = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            packages.add((node.module or "").split(".")[0])
    return packages


def test_the_tree_is_found() -> None:
    """The rules below would hold for no files, too."""
    assert PACKAGE / "errors.py" in TREES
    assert Path(__file__) in TREES


def test_a_file_has_400_lines_at_most() -> None:
    """A longer one holds two things; migrations are exempt, because a frozen one cannot be split."""
    lines = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in [*TREES, *STATEMENTS]}

    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_a_module_is_named_after_its_purpose() -> None:
    """A bucket for leftovers has no purpose that a newcomer could look for."""
    parts = {path: {part.removesuffix(".py").strip("_") for part in path.relative_to(ROOT).parts} for path in TREES}

    assert [name(path) for path in TREES if parts[path] & VAGUE_NAMES] == []


def test_a_module_opens_with_a_docstring() -> None:
    """One sentence of purpose, then what the module promises; only an empty package marker of tests has none."""
    bare = [path for path, tree in TREES.items() if ast.get_docstring(tree) is None]

    assert [name(path) for path in bare if TREES[path].body or PACKAGE in path.parents] == []


def test_sql_stands_in_db_only() -> None:
    """Who looks for a statement has one place to look."""
    found = [
        f"{name(path)}:{line}: {text!r}"
        for path, tree in under(PACKAGE).items()
        if not HAVE_SQL & set(path.parents)
        for line, text in strings(tree)
        if LOOKS_LIKE_SQL.search(text)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('"select 1"', True),
        ('"update jobq.job set attempt = 1"', True),
        ('f"""\n with picked as materialized (\n select id from {table}"""', True),
        ('f"delete from {table} where id = 1"', True),
        ('"LISTEN jobq"', True),
        ('"set the DSN to a writable server"', False),
        ('"delete it from the dead letters"', False),
        ('"select the jobs to redrive with --kind or --id"', False),
        ('"update"', False),
    ],
)
def test_sql_is_told_from_prose(code: str, expected: bool) -> None:
    """The rule above stops statements, and no messages."""
    [(_, text), *_] = strings(ast.parse(f"x = {code}"))

    assert bool(LOOKS_LIKE_SQL.search(text)) is expected


def test_a_statement_says_its_name_first() -> None:
    """The file, the method and the head comment bear one name."""
    first_lines = {path: path.read_text(encoding="utf-8").partition("\n")[0] for path in STATEMENTS}

    assert [name(path) for path, first in first_lines.items() if not first.startswith(f"-- {path.stem}: ")] == []


def test_the_driver_is_named_where_the_users_connection_is() -> None:
    """asyncpg is spoken in db; queue and handle name its connection type, and nobody else knows it."""
    knows = {path for path, tree in under(PACKAGE).items() if "asyncpg" in imported(tree)}

    assert [name(path) for path in knows - NAME_THE_CONNECTION_TYPE if not HAVE_SQL & set(path.parents)] == []


def test_the_core_is_given_time_and_chance() -> None:
    """A rule that reads the clock or draws a number cannot be tested by its arguments."""
    calls = [
        f"{name(path)}:{node.lineno}: {node.func.attr}()"
        for path, tree in under(PACKAGE / "core").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_AND_CHANCE
    ]

    assert calls == []


def test_nobody_asks_for_an_event_loop_that_may_not_run() -> None:
    """F110: outside of a loop `get_event_loop` warns, and from Python 3.14 on it raises."""
    asks = [name(path) for path, tree in under(PACKAGE).items() if names_in(tree) & LOOPS_OF_THE_THREAD]

    assert asks == []


def keeps_a_cancellation(function: ast.AsyncFunctionDef) -> bool:
    """Say whether *function* itself catches a cancellation and neither passes it on nor counts whose it was."""
    for node in own_nodes(function):
        match node:
            case ast.ExceptHandler(type=caught) if caught is None or names_in(caught) & CANCELLATIONS:
                inside = {type(inner) for statement in node.body for inner in ast.walk(statement)}
                asks = {name for statement in node.body for name in names_in(statement)} & {"uncancel", "cancelling"}
                if ast.Raise not in inside and not asks:
                    return True
            case ast.Call(func=called) if "suppress" in names_in(called):
                if any(names_in(argument) & CANCELLATIONS for argument in node.args):
                    return True
    return False


def own_nodes(function: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield what stands in *function*, but not in the functions inside it, which run by themselves."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            todo += ast.iter_child_nodes(node)


def names_in(node: ast.AST) -> set[str]:
    """Return the names and attributes that *node* speaks of."""
    return {
        inner.attr if isinstance(inner, ast.Attribute) else inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute | ast.Name)
    }


def test_a_cancellation_passes_through() -> None:
    """F24: who awaits a task that was cancelled and swallows the error swallows its own cancellation, and lives on.

    Only in coroutines: what is caught elsewhere, as around `asyncio.run` in a thread, was nobody's who awaits.
    """
    found = [
        f"{name(path)}: {node.name}"
        for path, tree in under(PACKAGE).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef) and keeps_a_cancellation(node)
    ]

    assert [one for one in found if one not in MAY_KEEP_A_CANCELLATION] == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("try: await task\nexcept asyncio.CancelledError: pass", True),
        ("try: await task\nexcept (ValueError, CancelledError): log()", True),
        ("try: await task\nexcept BaseException: pass", True),
        ("try: await task\nexcept: return", True),
        ("with contextlib.suppress(asyncio.CancelledError): await task", True),
        ("try: await task\nexcept anyio.get_cancelled_exc_class(): pass", True),
        ("try: await task\nexcept asyncio.CancelledError:\n if own.cancelling(): raise", False),
        ("try: await task\nexcept asyncio.CancelledError: own.uncancel()", False),
        ("try: await task\nexcept Exception: pass", False),
        ("def run():\n try: work()\n except BaseException: pass", False),
    ],
)
def test_a_cancellation_that_is_kept_is_told_from_one_that_passes(code: str, expected: bool) -> None:
    """The rule above finds the ways in which one is swallowed, and no others."""
    [function] = ast.parse("async def f():\n" + "\n".join(f"  {line}" for line in code.splitlines())).body

    assert isinstance(function, ast.AsyncFunctionDef)
    assert keeps_a_cancellation(function) is expected
