"""`jobq run app:queue`: every layout that people have works, and every mistake is told apart from the others."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobq import ImportTargetError, Queue
from jobq.cli.target import UserCodeError, as_queue, load, read_target
from tests.cli.conftest import Run

if TYPE_CHECKING:
    from tests.conftest import Conn

QUEUE = """
import os
from jobq import Queue

queue = Queue(schema=os.environ["APP_SCHEMA"])
"""

HANDLER = """
@queue.task(kind="touch", on_duplicate="harmless")
async def touch() -> None:
    import asyncio
    import %s as late  # looked for when the job runs, as sys.path is then
    late.touched(type(asyncio.get_running_loop()).__module__)
"""

LATE = """
def touched(loop):
    print("touched on", loop)
"""

APP = QUEUE + HANDLER


def write(directory: Path, files: Mapping[str, str]) -> None:
    """Write files by their relative paths."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


LAYOUTS: dict[str, tuple[str, Mapping[str, str], list[str]]] = {
    "flat": ("app:queue", {"app.py": APP % "late", "late.py": LATE}, []),
    "src": (
        "shop.jobs:queue",
        {"src/shop/__init__.py": "", "src/shop/jobs.py": APP % "shop.late", "src/shop/late.py": LATE},
        ["--app-dir", "src"],
    ),
    "package": (
        "shop:queue",
        {
            "shop/__init__.py": "from .jobs import queue",
            "shop/jobs.py": APP % "shop.deep.late",
            "shop/deep/__init__.py": "",
            "shop/deep/late.py": LATE,
        },
        [],
    ),
    "namespace": ("shop.jobs:queue", {"shop/jobs.py": APP % "shop.late", "shop/late.py": LATE}, []),
}


@pytest.mark.parametrize("name", LAYOUTS)
async def test_a_layout_is_found_and_stays_importable(
    name: str, queue: Queue, conn: Conn, tmp_path: Path, run: Run
) -> None:
    """F102: the working directory, or --app-dir, is first on sys.path for as long as the process lives."""
    target, files, options = LAYOUTS[name]
    write(tmp_path, files)
    await queue.enqueue("touch", {}, queue="default")

    ended = await run("run", target, *options, "--until-empty")

    assert (ended.code, ended.out) == (0, "touched on uvloop\n"), ended.err


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("app", "app:queue"),
        ("app.queue", "app:queue"),
        ("shop.jobs.queue", "shop.jobs:queue"),
        ("app.py", "app:queue"),
        ("app.py:queue", "app:queue"),
        ("./shop/jobs.py:queue", "shop.jobs:queue"),
        ("shop/jobs:queue", "shop.jobs:queue"),
        ("app:", "app:queue"),
        (":queue", "app:queue"),
        ("", "app:queue"),
        ("app:queue:more", "app:queue"),
        ("app:make(1)", "app:queue"),
    ],
)
def test_a_misspelt_target_is_answered_with_a_good_one(text: str, meant: str) -> None:
    """The message repeats what was written and says what to write."""
    with pytest.raises(ImportTargetError) as raised:
        read_target(text)

    assert str(raised.value) == f"{text!r} is not module:attribute: write {meant}"


MODULES = {
    "app.py": QUEUE + "class State: pass\nstate = State()\nstate.queue = queue\ncount = 3\ndef make(): return 3\n",
    "making.py": "from jobq import Queue\ndef make(): return Queue()\nasync def amake(): return Queue()\n",
    "broken.py": "from jobq import Queue\nqueue = Queue(\n",
    "importing.py": "import inner\nqueue = 1\n",
    "inner.py": "import a_package_that_is_missing\n",
    "leaving.py": "import sys\nsys.exit(0)\n",
    "refused.py": "from jobq import Queue\nqueue = Queue()\n@queue.task(kind='no name')\nasync def f() -> None: ...\n",
    "factory.py": "def make():\n    raise LookupError('nothing')\nasync def amake():\n    raise LookupError('none')\n",
    "src/elsewhere/__init__.py": "",
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of modules, most with a mistake, first on sys.path; what is imported from it is forgotten again."""
    write(tmp_path, MODULES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("APP_SCHEMA", "jobq")
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name.removesuffix(".py"), None)


def found(text: str, directory: Path) -> Queue:
    """Do what `jobq run` does with its argument."""
    target = read_target(text)
    return asyncio.run(as_queue(target, load(target, directory=directory)))


@pytest.mark.parametrize("target", ["app:queue", "app:state.queue", "making:make()", "making:amake()"])
def test_a_queue_is_an_attribute_or_made_by_a_function(target: str, modules: Path) -> None:
    """F102: nested attributes, factories and async factories are as good as a name in a module."""
    assert isinstance(found(target, modules), Queue)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("elsewhere:queue", "there is no module 'elsewhere' in {directory} or installed: add --app-dir {src}"),
        (
            "nowhere:queue",
            "there is no module 'nowhere' in {directory} or installed: run it where your code is, or add --app-dir",
        ),
        ("app.sub:queue", "there is no module 'sub' in 'app'"),
        ("app:queu", "app has no 'queu'; app has these queues: app:queue, app:state.queue"),
        ("app:state.queu", "app:state has no 'queu'; app has these queues: app:queue, app:state.queue"),
        ("json:queue", "json has no 'queue'; json has no jobq.Queue at all"),
        ("app:count", "app:count is an object of type int, and no jobq.Queue"),
        ("app:make", "app:make is a function: if it makes the queue, write app:make()"),
        ("app:make()", "app:make() returned an object of type int, and no jobq.Queue"),
        ("app:count()", "app:count is of type int and cannot be called: write app:count"),
    ],
)
def test_a_target_that_is_not_there_is_named_with_what_is(target: str, message: str, modules: Path) -> None:
    """F102: each mistake has a message of its own, which says what to write instead."""
    with pytest.raises(ImportTargetError) as raised:
        found(target, modules)

    assert str(raised.value).startswith(message.format(directory=modules, src=os.path.relpath(modules / "src")))


@pytest.mark.parametrize(
    ("target", "first", "last"),
    [
        ("broken:queue", "broken.py", "SyntaxError: '(' was never closed"),
        ("importing:queue", "importing.py", "ModuleNotFoundError: No module named 'a_package_that_is_missing'"),
        ("leaving:queue", "leaving.py", "SystemExit: 0"),
        ("factory:make()", "factory.py", "LookupError: nothing"),
        ("factory:amake()", "factory.py", "LookupError: none"),
        ("refused:queue", "refused.py", "jobq.errors.HandlerError: kind 'no name' is not a name"),
    ],
)
def test_an_error_in_the_users_code_keeps_its_traceback(target: str, first: str, last: str, modules: Path) -> None:
    """F102: it begins in the user's file, not in ours."""
    with pytest.raises(UserCodeError) as raised:
        found(target, modules)

    files = [line for line in raised.value.user_traceback().splitlines() if line.startswith("  File ")]
    assert str(modules / first) in files[0]
    assert raised.value.user_traceback().splitlines()[-1].startswith(last)


async def test_a_wrong_target_is_one_line_and_78(run: Run) -> None:
    """The command is wrong, and no traceback leads away from that."""
    ended = await run("run", "nowhere:queue")

    assert (ended.code, len(ended.err.splitlines())) == (78, 1)
    assert ended.err.startswith("jobq: there is no module 'nowhere' in ")


@pytest.mark.parametrize(("target", "code"), [("importing:queue", 1), ("refused:queue", 78)])
async def test_an_error_in_the_users_code_is_printed(target: str, code: int, tmp_path: Path, run: Run) -> None:
    """The code is 1, as only the user knows whether another start would help; a refused registration is 78 for sure."""
    write(tmp_path, MODULES)

    ended = await run("run", target)

    assert ended.code == code
    assert ended.err.startswith("Traceback (most recent call last):\n")
    assert ended.err.splitlines()[-1].startswith(f"jobq: {target} cannot be loaded: ")
