"""An environment for each system, built once and kept in the user's cache: a virtual environment, or a `node_modules`.

Its folder bears a digest of what it was built from, so a new version gets a new one. `XDG_CACHE_HOME` moves the cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks.rivals.systems import System

REPOSITORY = Path(__file__).parents[2]
INSTALL_LIMIT_S = 600


class LeftOutError(Exception):
    """A system cannot be measured here; the text says why."""


class Environment(msgspec.Struct, frozen=True):
    """How an adapter is started: *command* and what it is called with, in *variables*. *runtime* is for the report."""

    command: tuple[str, ...]
    variables: Mapping[str, str]
    runtime: str


def cache() -> Path:
    """Return the folder of all environments."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jobq-benchmarks"


def prepare(system: System) -> Environment:
    """Build the environment of *system*, if it is not there. Raises `LeftOutError` if that does not work."""
    if system.on_node:
        return _node(system)
    python = sys.executable if not system.dependencies else str(_python(system))
    # -P: the adapters are named after the systems, so their folder must not be where imports look.
    return Environment(
        (python, "-P", str(system.adapter)), {"PYTHONPATH": str(REPOSITORY)}, _answer(python, "--version")
    )


def _python(system: System) -> Path:
    folder = _folder(system, sys.version, system.requires_python)
    python = folder / "bin" / "python"
    if not _complete(folder):
        found = _run(
            *(sys.executable, "-m", "virtualenv", "--quiet", "--try-first-with", sys.executable),
            *("--python", system.requires_python, str(folder)),
        )
        if found.returncode:
            raise LeftOutError(f"no environment with Python {system.requires_python}: {_last_line(found)}")
        _install(folder, str(python), "-m", "pip", "install", "--quiet", *system.dependencies)
    return python


def _node(system: System) -> Environment:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise LeftOutError("node and npm are not on the PATH")
    runtime = f"Node {_answer(node, '--version')}"
    folder = _folder(system, runtime)
    if not _complete(folder):
        folder.mkdir(parents=True)
        _install(folder, npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *system.dependencies)
    return Environment((node, str(system.adapter)), {"NODE_PATH": str(folder / "node_modules")}, runtime)


def _folder(system: System, *built_with: str) -> Path:
    digest = hashlib.sha256("\n".join([*built_with, *system.dependencies]).encode()).hexdigest()[:12]
    return cache() / f"{system.name}-{digest}"


def _complete(folder: Path) -> bool:
    """Whether *folder* was built to its end; what an interrupted build left is removed."""
    if (folder / "complete").exists():
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _install(folder: Path, *command: str) -> None:
    done = _run(*command)
    if done.returncode:
        raise LeftOutError(f"not installed: {_last_line(done)}")
    (folder / "complete").touch()


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)


def _answer(*command: str) -> str:
    return _run(*command).stdout.strip()


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
