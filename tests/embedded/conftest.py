"""Directories for servers, which are removed with everything that root keeps elsewhere, and processes that use them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobq.embedded import start
from jobq.embedded.layout import Account, root_home
from tests.embedded.observe import is_gone, kill_all, mark_of

ACTOR = Path(__file__).with_name("actor.py")
REPOSITORY = Path(__file__).resolve().parents[2]


class Actor:
    """A running `actor.py`. *user* is whom to run it as (None: us), *python* the command that runs it."""

    def __init__(
        self,
        directory: Path,
        ending: str = "stop",
        *,
        python: tuple[str, ...] = (sys.executable,),
        script: Path = ACTOR,
        path: Path = REPOSITORY,
        user: Account | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [*python, str(script), str(directory), ending],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])},
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=[] if user else None,
        )

    def says(self) -> dict[str, Any]:
        """Return what it says once it has a server; fail if it ended without."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"ended with {self.process.wait()}"
        said: dict[str, Any] = json.loads(line)
        return said

    def kill(self) -> None:
        """End it as the kernel would for want of memory."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Let it come to its end, and return its exit code."""
        self.process.communicate(timeout=30)
        return self.process.returncode

    def discard(self) -> None:
        """Leave nothing of it."""
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def actor() -> Iterator[Callable[..., Actor]]:
    """Start actors, and kill those that a test leaves."""
    started: list[Actor] = []

    def start_actor(*arguments: Any, **options: Any) -> Actor:
        started.append(Actor(*arguments, **options))
        return started[-1]

    yield start_actor
    for each in started:
        each.discard()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Give a new directory without data."""
    yield tmp_path
    _remove(tmp_path)


@pytest.fixture(scope="session")
def _directory_with_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("with-data")
    start(directory).stop()
    yield directory
    _remove(directory)


@pytest.fixture
def used(_directory_with_data: Path) -> Iterator[Path]:
    """Give the directory with data that tests share, none running; a new one would cost each an initdb."""
    yield _directory_with_data
    left = not is_gone(_directory_with_data)
    kill_all(mark_of(_directory_with_data))
    assert not left, "the test left a server"


def _remove(directory: Path) -> None:
    """Remove what root keeps elsewhere; the rest is in pytest's own directory.

    The path is computed and checked, and never read from a file: a test may have written anything there.
    """
    if (directory / ".jobq" / "owner").exists():
        kill_all(mark_of(directory))
    home = root_home(directory.resolve())
    assert re.fullmatch(r"/var/lib/jobq/[0-9a-f]{16}", str(home))
    if os.geteuid() == 0 and home.exists():
        assert not home.is_symlink()
        shutil.rmtree(home)
