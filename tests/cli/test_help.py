"""`jobq --help`, `--version`, and what a mistake on the command line looks like."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from jobq.cli import main
from jobq.cli.main import app
from tests.cli.conftest import REPOSITORY, Run


def commands(group: Any, *above: str) -> Iterator[tuple[str, Any]]:
    """Yield every command, with the words that name it."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, *above, name)
        else:
            yield " ".join((*above, name)), command


ROOT = get_command(app)
COMMANDS = dict(commands(ROOT))
EXAMPLES = [
    example
    for command in (ROOT, *COMMANDS.values())
    for example in re.findall(r"jobq (?!.*:$).+?(?=, or | > | && |$)", command.epilog, re.MULTILINE)
]


def parse(words: list[str]) -> Any:
    """Parse a command line as it would be parsed, and return the context of the command."""
    command: Any = ROOT
    context = command.make_context("jobq", list(words))
    while isinstance(command, TyperGroup):
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, words, parent=context)
    return context


def test_the_commands_are_found() -> None:
    """The rules below would hold for none, too."""
    assert {"run", "enqueue", "config", "dead list", "stats"} <= COMMANDS.keys()
    assert len(EXAMPLES) > len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does_and_shows_an_example(command: str) -> None:
    """What to type is what most people look for."""
    shown = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="jobq")

    assert shown.exit_code == 0
    assert shown.output.startswith(f"Usage: jobq {command}")
    assert re.match(r"  [A-Z].*\.$", shown.output.split("\n\n")[1], re.DOTALL)
    assert f"jobq {command}" in shown.output.rpartition("Example")[2]


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_command_line(example: str) -> None:
    """It is parsed by the parser that would parse it."""
    words = shlex.split(example)

    assert parse(words[1:]).command in COMMANDS.values()


@pytest.mark.parametrize("mistake", ["jobq run app:queue --grase 60s", "jobq run app:queue --grace soon", "jobq rnu"])
def test_a_wrong_example_would_be_found(mistake: str) -> None:
    """The test above would see one."""
    with pytest.raises(Exception, match=r"grase|soon|rnu"):
        parse(shlex.split(mistake)[1:])


def test_the_docs_tell_the_exit_codes() -> None:
    """Those of the module that makes them, with no other among them."""
    in_code = re.findall(r"^    (\d+) +", main.__doc__ or "", re.MULTILINE)
    in_docs = re.findall(r"^\| (\d+) \|", (REPOSITORY / "docs" / "command-line.md").read_text(), re.MULTILINE)

    assert in_docs == in_code == ["0", "1", "2", "3", "4", "5", "75", "78", "130"]


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
