"""`jobq demo` where it cannot run; what it shows where it can is in tests/docs/test_examples.py."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import REPOSITORY, Run


async def test_without_a_checkout_it_says_where_the_demo_is(tmp_path: Path, run: Run) -> None:
    """The examples are not part of the installed package."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "jobq").symlink_to(REPOSITORY / "jobq")

    ended = await run("demo", PYTHONPATH=str(tmp_path / "site"))

    assert ended.code == 78
    assert "clone the repository, and run pip install -e '.[demo]' && jobq demo in it" in ended.err
