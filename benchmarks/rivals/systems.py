"""The systems that are compared: one adapter each, whose head says what the adapter needs.

The head is inline script metadata as in PEP 723, in the adapters for Node after `//`: `dependencies` with pinned
versions, `requires-python`, and under `[tool.rivals]` the question `unfinished`, which is true until the database
says that all jobs are finished.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

ADAPTERS = Path(__file__).parent / "adapters"

_BLOCK = re.compile(r"^(#|//) /// script\n(?P<lines>(?:\1(?: .*)?\n)+?)\1 ///$", re.MULTILINE)
_PIN = re.compile(r"[^=@\[]+(?:\[.*])?(?:==|@)(.+)")

ANY_PYTHON = ">=3.11"

SUBJECT = "jobq"
"""The one that the others are compared with; it runs in the environment of the benchmark."""


class System(msgspec.Struct, frozen=True):
    """A system and how it is run. *dependencies* begin with the system itself, or are empty: nothing to install."""

    name: str
    adapter: Path
    dependencies: tuple[str, ...]
    unfinished: str
    requires_python: str = ANY_PYTHON

    @property
    def on_node(self) -> bool:
        """Whether it runs on Node, not in Python."""
        return self.adapter.suffix == ".cjs"

    @property
    def version(self) -> str:
        """The version that is pinned. Not for a system without dependencies."""
        found = _PIN.fullmatch(self.dependencies[0])
        if found is None:
            raise ValueError(f"{self.adapter}: {self.dependencies[0]!r} names no version; write NAME==VERSION")
        return found[1]


NAMES = {
    "jobq": "jobq.py",
    "graphile-worker": "graphile_worker.cjs",
    "pgqueuer": "pgqueuer.py",
    "pg-boss": "pg_boss.cjs",
    "awa-pg": "awa.py",
    "oban": "oban.py",
    "chancy": "chancy.py",
    "procrastinate": "procrastinate.py",
}
"""Each system's name in its registry, and its adapter."""


def read_systems() -> list[System]:
    """Read the heads of all adapters. Raises `ValueError` for one that lacks something."""
    return [read_system(name, ADAPTERS / adapter) for name, adapter in NAMES.items()]


def read_system(name: str, adapter: Path) -> System:
    """Read the head of one *adapter*."""
    block = _BLOCK.search(adapter.read_text(encoding="utf-8"))
    if block is None:
        raise ValueError(
            f"{adapter} has no head: it begins with `{'//' if adapter.suffix == '.cjs' else '#'} /// script`"
        )
    head = tomllib.loads("".join(line[len(block[1]) :].strip() + "\n" for line in block["lines"].splitlines()))
    return System(
        name,
        adapter,
        tuple(head["dependencies"]),
        head["tool"]["rivals"]["unfinished"],
        head.get("requires-python", ANY_PYTHON),
    )
