"""Add up the counts in the log of a nox run: `N passed, N failed` over all sessions.

A session's count is its last line that is one: pytest's closing line, or a plain `N passed, N failed`. Errors and
skipped tests count as failed (CI skips nothing), and so does a session that did not end well without counting a
failure. Exits with 1 if anything failed or nothing passed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
START = re.compile(r"nox > Running session (\S+)")
GOOD_END = re.compile(r"nox > Session (\S+) was successful\b")
# pytest's `3 passed, 1 warning in 0.52s`, `1 failed, 2 errors in 65.00s (0:01:05)`; or plainly `2 passed, 0 failed`
CLOSING = re.compile(
    r"(?P<counts>\d+ [a-z ]+(, \d+ [a-z ]+)*) in [\d.]+s( \([^)]*\))?|(?P<plain>\d+ passed, \d+ failed)"
)
BAD = ("failed", "error", "errors", "skipped")


def add_up(log: str) -> tuple[int, int]:
    """Return how many passed and how many failed in all sessions of *log*."""
    counts: dict[str, tuple[int, int]] = {}
    good: set[str] = set()
    session = None
    for raw in log.splitlines():
        line = COLOUR.sub("", raw).strip()
        if started := START.match(line):
            session = started[1]
            counts[session] = (0, 0)
        elif ended := GOOD_END.match(line):
            good.add(ended[1])
        elif session is not None and (found := count(line)):
            counts[session] = found
    passed = sum(p for p, _ in counts.values())
    failed = sum(f if name in good else max(f, 1) for name, (_, f) in counts.items())
    return passed, failed


def count(line: str) -> tuple[int, int] | None:
    """Return what *line* says has passed and failed, or None if it is not a closing line."""
    closing = CLOSING.fullmatch(line.strip("= "))
    if closing is None:
        return None
    numbers = {}
    for part in (closing["counts"] or closing["plain"]).split(", "):
        number, word = part.split(" ", maxsplit=1)
        numbers[word] = int(number)
    return numbers.get("passed", 0), sum(numbers.get(word, 0) for word in BAD)


if __name__ == "__main__":
    total_passed, total_failed = add_up(Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace"))
    print(f"{total_passed} passed, {total_failed} failed")
    sys.exit(1 if total_failed or not total_passed else 0)
