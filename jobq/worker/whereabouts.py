"""Says at which line a handler stands: of a task that waits, of a thread, or of whatever runs on an event loop.

A line is a file, a number and a function's name; nothing is read of the frame but its code. Meant is the innermost line
of the application: neither of Python, nor of an installed package, nor of jobq. An application that is itself installed
is known by the package of its handler.
"""

from __future__ import annotations

import asyncio
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

UNKNOWN = "unknown"

_NOT_THE_APPLICATIONS = tuple(
    f"{folder}/"
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        str(Path(__file__).parents[1]),
    }
)

_FRAME_AND_NEXT = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))
"""What holds its frame and what it waits for: coroutines, generators, asynchronous generators."""


def line_of_task(task: asyncio.Task[None], module: str) -> str:
    """Return where a *task* waits that does not run at this moment; its handler is of *module*.

    What it waits for in tasks of its own, by `gather` for one, is not followed: named is the line that waits for them.
    """
    return _innermost(reversed([*_chain(task.get_coro())]), module)


def line_of_thread(thread_id: int, module: str = "") -> str:
    """Return where a thread stands; what it runs is of *module*, if that is known."""
    frame = sys._current_frames().get(thread_id)
    return _innermost(_stack(frame), module)


def _chain(awaited: object) -> Iterator[FrameType]:
    """Yield the frames of what waits for each other, from the task's own coroutine inwards."""
    while awaited is not None:
        kind = next((kind for kind in _FRAME_AND_NEXT if hasattr(awaited, kind[0])), None)
        if kind is None:
            return
        frame, inner = (getattr(awaited, name) for name in kind)
        if frame is not None:
            yield frame
        awaited = inner


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _innermost(frames: Iterable[FrameType], module: str) -> str:
    """Return the first of *frames* that is the application's, else the first that has a file."""
    files = [frame for frame in frames if not frame.f_code.co_filename.startswith("<")]
    package = module.partition(".")[0]
    for frame in files:
        name = str(frame.f_globals.get("__name__", ""))
        if not frame.f_code.co_filename.startswith(_NOT_THE_APPLICATIONS) or name.partition(".")[0] == package:
            return _line(frame)
    return _line(files[0]) if files else UNKNOWN


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
