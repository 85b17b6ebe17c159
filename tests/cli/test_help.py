"""`jobq --help`, `--version`, and what a mistake on the command line looks like."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from jobq.cli.main import app
from tests.cli.conftest import Run

COMMANDS = [
    "run",
    "systemd",
    "migrate",
    "demo",
    "stats",
    "jobs",
    "kinds",
    "dead list",
    "dead show",
    "dead redrive",
    "dead delete",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(command: str) -> None:
    """What to type is what most people look for."""
    shown = CliRunner().invoke(app, [*command.split(), "--help"])

    assert shown.exit_code == 0
    assert f"jobq {command}" in shown.output.rpartition("Example: ")[2]


async def test_the_version_is_that_of_the_package(run: Run) -> None:
    """For bug reports."""
    ended = await run("--version")

    assert (ended.code, ended.out) == (0, f"jobq {version('jobq')}\n")


@pytest.mark.parametrize(
    "arguments",
    [["rnu"], ["run"], ["run", "app:queue", "--grace", "soon"], ["run", "app:queue", "--concurrency", "mail"]],
)
def test_a_mistake_is_a_usage_error(arguments: list[str]) -> None:
    """Exit code 2, where the help is, and nothing was done."""
    ended = CliRunner().invoke(app, arguments, prog_name="jobq")

    assert ended.exit_code == 2
    assert ended.output.startswith("Usage: jobq ")
