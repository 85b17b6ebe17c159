"""What the tests of the embedded server look at from outside: processes, SQL, and conditions that come true."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg


def wait_until(condition: Callable[[], bool], *, limit_s: float = 20.0) -> None:
    """Wait until *condition* is true; fail after *limit_s*."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not true after {limit_s} s"
        time.sleep(0.005)


async def ask(dsn: str, sql: str) -> object:
    """Run one statement on a connection of its own and return its value."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def answer(dsn: str, sql: str) -> object:
    """Do what `ask` does, outside an event loop."""
    return asyncio.run(ask(dsn, sql))


def mark_of(directory: Path) -> str:
    """Return the mark of the last server of *directory*."""
    mark = str(json.loads((directory / ".jobq" / "owner").read_text())["mark"])
    assert re.fullmatch(r"jobq-[0-9a-f]{16}", mark)  # it chooses what is killed
    return mark


def processes(mark: str) -> list[int]:
    """Return every process that has the mark in its command line: the guardian, the postmaster and its children."""
    return [pid for pid, command_line in _command_lines() if mark.encode() in command_line]


def guardian_of(directory: Path) -> int:
    """Return the pid of the guardian of the server that runs for *directory*."""
    mark = mark_of(directory).encode()
    [pid] = [pid for pid, line in _command_lines() if mark in line and b"guardian.py" in line]
    return pid


def postmaster_of(directory: Path) -> int:
    """Return the pid of the postmaster that runs for *directory*."""
    return int((home_of(directory) / "data" / "postmaster.pid").read_text().split()[0])


def open_files(pid: int) -> list[str]:
    """Return what the files of a process are, as far as we may know."""
    try:
        return [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def home_of(directory: Path) -> Path:
    """Return where the data are: what `.jobq/location` names under root, else `.jobq/`."""
    location = directory / ".jobq" / "location"
    return Path(location.read_text().strip()) if location.exists() else directory / ".jobq"


def mode_of(path: Path) -> str:
    """Return the kind and mode of a file as `ls -l` shows them."""
    return stat.filemode(path.lstat().st_mode)


def server_account(directory: Path) -> tuple[int, int]:
    """Return the uid and gid that the server of *directory* runs as."""
    owner = home_of(directory).stat()
    return owner.st_uid, owner.st_gid


def is_gone(directory: Path) -> bool:
    """Whether no process of the last server of *directory* is left, its guardian included."""
    return not processes(mark_of(directory))


def kill_and_wait(pid: int) -> None:
    """Kill a process and wait until it has let go of what it had, if not until its parent has noticed."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in {other for other, command_line in _command_lines() if command_line})


def kill_all(mark: str) -> None:
    """Kill what a failed test left."""
    for pid in processes(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _command_lines() -> Iterator[tuple[int, bytes]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                yield int(entry), Path("/proc", entry, "cmdline").read_bytes()
