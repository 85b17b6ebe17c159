"""Shell completion, as the shell asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import REPOSITORY, Run


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [
        ("jobq de", 1, {"dead", "demo"}),
        ("jobq dead re", 2, {"redrive"}),
        ("jobq run --gr", 2, {"--grace"}),
        ("jobq run --log-level w", 3, {"warning"}),
    ],
)
async def test_it_offers_what_may_follow(words: str, position: int, expected: set[str], run: Run) -> None:
    """Commands, options and choices; a settings file that is wrong does not keep it from it."""
    ended = await run(_JOBQ_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(position))

    assert (ended.code, ended.err) == (0, "")
    assert set(ended.out.split()) == expected


async def test_a_wrong_settings_file_is_no_matter(tmp_path: Path, run: Run) -> None:
    """A shell would print the error in the middle of the line."""
    (tmp_path / "jobq.toml").write_text("grase = 1")

    ended = await run(_JOBQ_COMPLETE="complete_bash", COMP_WORDS="jobq dead re", COMP_CWORD="2")

    assert (ended.out, ended.err) == ("redrive\n", "")


def test_bash_completes_the_installed_command(tmp_path: Path) -> None:
    """With the line that docs/command-line.md tells to put into ~/.bashrc."""
    line = 'eval "$(_JOBQ_COMPLETE=source_bash jobq)"'
    assert line in (REPOSITORY / "docs" / "command-line.md").read_text()
    ask = 'COMP_WORDS=(jobq de) COMP_CWORD=1; _jobq_completion jobq; echo "${COMPREPLY[@]}"'
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"

    ended = subprocess.run(
        ["bash", "--norc", "-c", f"{line}; {ask}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path)},
    )

    assert (ended.stdout.split(), ended.stderr) == (["demo", "dead"], "")
