"""What `.ci/sum.py` reads in the log of a nox run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "sum.py"

GREEN = """\
nox > Running session env
nox > Session env was successful in 21 seconds.
nox > Running session types
Success: no issues found in 60 source files
0 errors, 0 warnings, 0 notes
2 passed, 0 failed
nox > Session types was successful in 9 seconds.
nox > Running session tests
\x1b[32m== \x1b[32m\x1b[1m120 passed\x1b[0m, \x1b[33m1 warning\x1b[0m\x1b[32m in 61.20s (0:01:01)\x1b[0m ==
nox > Session tests was successful in a minute.
nox > Ran multiple sessions:
nox > * env: success
"""


def last_line_and_exit_code(log: str, tmp_path: Path) -> tuple[str, int]:
    (tmp_path / "log").write_text(log, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "log"], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stderr == ""
    return done.stdout.splitlines()[-1], done.returncode


def session(*lines: str, verdict: str = "failed") -> str:
    """Return the log of one session, between two good ones."""
    middle = "\n".join(["nox > Running session pg15", *lines, f"nox > Session pg15 {verdict}."])
    return (
        "nox > Running session lint\n2 passed, 0 failed\nnox > Session lint was successful.\n"
        f"{middle}\n"
        "nox > Running session docs\n4 passed in 0.01s\nnox > Session docs was successful.\n"
    )


def test_the_sum_is_over_all_sessions_whatever_their_colours(tmp_path: Path) -> None:
    """Checks and tests are added up, and a session that only prepares adds nothing."""
    assert last_line_and_exit_code(GREEN, tmp_path) == ("122 passed, 0 failed", 0)


@pytest.mark.parametrize(
    ("line", "total"),
    [
        pytest.param("== 1 failed, 7 passed in 0.52s ==", "13 passed, 1 failed", id="failed"),
        pytest.param("== 7 passed, 1 error in 0.52s ==", "13 passed, 1 failed", id="error"),
        pytest.param("== 1 failed, 7 passed, 2 errors in 0.52s ==", "13 passed, 3 failed", id="errors"),
        pytest.param("1 failed, 7 passed in 0.52s", "13 passed, 1 failed", id="quiet"),
        pytest.param("1 passed, 1 failed", "7 passed, 1 failed", id="plain"),
    ],
)
def test_failures_and_errors_are_counted(line: str, total: str, tmp_path: Path) -> None:
    """Whatever pytest calls it, what did not pass has failed."""
    assert last_line_and_exit_code(session(line), tmp_path) == (total, 1)


def test_a_skipped_test_has_failed(tmp_path: Path) -> None:
    """CI skips nothing, though pytest calls the run a success."""
    log = session("= 7 passed, 2 skipped, 1 deselected, 1 xfailed in 0.52s =", verdict="was successful")

    assert last_line_and_exit_code(log, tmp_path) == ("13 passed, 2 failed", 1)


@pytest.mark.parametrize("lines", [(), ("= no tests ran in 0.01s =",), ("= 7 passed in 0.50s =",)])
def test_a_session_that_ended_badly_has_failed(lines: tuple[str, ...], tmp_path: Path) -> None:
    """A crash, or a failed installation, does not go unseen because nothing was counted."""
    total, code = last_line_and_exit_code(session(*lines), tmp_path)

    assert total.endswith(" passed, 1 failed")
    assert code == 1


def test_a_log_that_breaks_off_has_failed(tmp_path: Path) -> None:
    """A session without a verdict was killed."""
    log = "nox > Running session tests\ntests/test_layout.py ...."

    assert last_line_and_exit_code(log, tmp_path) == ("0 passed, 1 failed", 1)


@pytest.mark.parametrize("log", ["", "nox > Running session env\nnox > Session env was successful.\n"])
def test_a_run_that_checked_nothing_has_failed(log: str, tmp_path: Path) -> None:
    """Nothing failed, but nothing passed either."""
    assert last_line_and_exit_code(log, tmp_path) == ("0 passed, 0 failed", 1)


def test_only_the_closing_line_of_a_session_counts(tmp_path: Path) -> None:
    """The captured output of a failing test may hold lines that look like counts."""
    log = session("----- Captured stdout call -----", "9 passed, 5 failed", "== 1 failed, 7 passed in 0.52s ==")

    assert last_line_and_exit_code(log, tmp_path) == ("13 passed, 1 failed", 1)
