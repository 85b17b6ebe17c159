"""Load what `jobq run` is given, `app:queue`, and say whose fault it is when that does not work.

Four failures are told apart: it is badly spelt, there is no such module, the module has no such attribute (or one
that is no queue), or the user's own code raised while it was loaded. The last one keeps its own traceback.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import traceback
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

import msgspec

from jobq.cli.output import inner_frames
from jobq.errors import ImportTargetError
from jobq.queue import Queue

_SPELLING = re.compile(r"(?P<module>\w+(?:\.\w+)*):(?P<path>\w+(?:\.\w+)*)(?P<call>\(\))?")


class Target(msgspec.Struct, frozen=True):
    """`module:path`, or `module:path()` for a function that makes the queue."""

    text: str
    module: str
    path: str
    is_factory: bool


class UserCodeError(Exception):
    """The user's own code raised while the target was loaded; the `__cause__` is what it raised."""

    def __init__(self, target: Target, error: BaseException) -> None:
        super().__init__(f"{target.text} cannot be loaded: {type(error).__name__} in your code, see above")
        self.error = error

    def user_traceback(self) -> str:
        """Return the traceback as Python prints it, from the user's outermost frame on."""
        return "".join(traceback.format_exception(type(self.error), self.error, inner_frames(self.error)))


def read_target(text: str) -> Target:
    """Take *text* apart. Raises `ImportTargetError` with the spelling that was probably meant."""
    if (match := _SPELLING.fullmatch(text)) and not match["module"].endswith(".py"):
        return Target(text, match["module"], match["path"], match["call"] is not None)
    meant = re.sub(r"\.py(?=:|$)", "", text).removeprefix("./").replace("/", ".")
    if ":" not in meant:
        module, _, name = meant.rpartition(".")
        meant = f"{module}:{name}" if module else f"{name}:queue"
    example = meant if _SPELLING.fullmatch(meant) else "app:queue"
    raise ImportTargetError(f"{text!r} is not module:attribute: write {example}")


def load(target: Target, *, directory: Path) -> object:
    """Import the module, find the attribute, and call it if it is a factory.

    *directory* is where `sys.path` begins, for the messages. Returns what was found, for `as_queue`: the queue, or what
    an async factory gave. Not to be called in an event loop, which imported modules may want for themselves.

    Raises `ImportTargetError`, or `UserCodeError` for what the user's code raises.
    """
    module = _import(target, directory)
    with _user_code(target):
        found = _find(target, module)
        return _call(target, found) if target.is_factory else found


async def as_queue(target: Target, found: object) -> Queue:
    """Return the queue that `load` found, awaited if an async factory makes it.

    Raises `ImportTargetError` if it is no queue, or `UserCodeError` for what the factory raises.
    """
    if inspect.isawaitable(found):
        with _user_code(target):
            found = await cast(Awaitable[object], found)
    if isinstance(found, Queue):
        return found
    if not target.is_factory and inspect.isroutine(found):
        raise ImportTargetError(f"{target.text} is a function: if it makes the queue, write {target.text}()")
    did = "returned" if target.is_factory else "is"
    raise ImportTargetError(f"{target.text} {did} an object of type {type(found).__name__}, and no jobq.Queue")


@contextmanager
def _user_code(target: Target) -> Iterator[None]:
    """Mark what is raised inside as the user's, `sys.exit()` included: a module is not to end the worker quietly."""
    try:
        yield
    except ImportTargetError:
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(target, error) from error


def _import(target: Target, directory: Path) -> ModuleType:
    with _user_code(target):
        try:
            return importlib.import_module(target.module)
        except ModuleNotFoundError as error:
            # The name tells the module that is missing from one that the user's own imports miss.
            if error.name is None or not f"{target.module}.".startswith(f"{error.name}."):
                raise
            raise ImportTargetError(_missing_module(error.name, directory)) from None


def _find(target: Target, module: ModuleType) -> object:
    found: object = module
    where = target.module
    for name in target.path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ImportTargetError(f"{where} has no {name!r}; {_queues_of(module)}") from None
        where = f"{where}.{name}" if ":" in where else f"{where}:{name}"
    return found


def _call(target: Target, found: object) -> object:
    if not callable(found):
        plain = target.text.removesuffix("()")
        raise ImportTargetError(f"{plain} is of type {type(found).__name__} and cannot be called: write {plain}")
    return found()


def _queues_of(module: ModuleType) -> str:
    names = ", ".join(f"{module.__name__}:{name}" for name in sorted(_queues(vars(module))))
    return f"{module.__name__} has these queues: {names}" if names else f"{module.__name__} has no jobq.Queue at all"


def _queues(names: dict[str, object]) -> Iterator[str]:
    """Yield where queues are: in the module itself, or one step down in an object that keeps its attributes plainly."""
    for name, value in names.items():
        if isinstance(value, Queue):
            yield name
        elif not name.startswith("_") and not inspect.ismodule(value):
            inside = getattr(value, "__dict__", {})
            yield from (f"{name}.{inner}" for inner, one in inside.items() if isinstance(one, Queue))


def _missing_module(missing: str, directory: Path) -> str:
    package, _, name = missing.rpartition(".")
    if package:
        return f"there is no module {name!r} in {package!r}"
    elsewhere = [directory / folder for folder in ("src", "app", "lib") if _holds(directory / folder, missing)]
    remedy = (
        f"add --app-dir {os.path.relpath(elsewhere[0])}" if elsewhere else "run it where your code is, or add --app-dir"
    )
    return f"there is no module {missing!r} in {directory} or installed: {remedy}"


def _holds(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()
