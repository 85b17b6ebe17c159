"""The settings file: where it is looked for, what it may state, and how it is told what is wrong with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from jobq import ConfigurationError
from jobq.cli.settings_file import find_settings_file, read_settings
from tests.cli.conftest import REPOSITORY

FILE = Path("/srv/app/jobq.toml")


def write(path: Path, text: str) -> Path:
    """Write a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# -- which file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "winner"),
    [
        ({"jobq.toml": "schema = 'a'"}, "jobq.toml"),
        ({"a/jobq.toml": "schema = 'a'", "jobq.toml": "schema = 'b'"}, "a/jobq.toml"),
        ({"a/pyproject.toml": "[tool.jobq]\nschema = 'a'", "jobq.toml": "schema = 'b'"}, "a/pyproject.toml"),
        ({"jobq.toml": "schema = 'a'", "pyproject.toml": "[tool.jobq]\nschema = 'b'"}, "jobq.toml"),
        ({"a/pyproject.toml": "[tool.ruff]\nline-length = 120", "jobq.toml": "schema = 'b'"}, "jobq.toml"),
        ({"a/b/c/jobq.toml": "schema = 'a'"}, None),
        ({"a/jobq.toml/note": "a directory"}, None),
    ],
)
def test_the_nearest_file_holds(files: dict[str, str], winner: str | None, tmp_path: Path) -> None:
    """From the working directory upwards; a pyproject.toml that says nothing of jobq is passed over."""
    for name, text in files.items():
        write(tmp_path / name, text)
    working_directory = tmp_path / "a" / "b"
    working_directory.mkdir(parents=True, exist_ok=True)

    found = find_settings_file(working_directory)

    assert (None if found is None else found.path) == (None if winner is None else tmp_path / winner)


def test_what_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    """It is not passed over: it may be the one that names the database."""
    path = write(tmp_path / "jobq.toml", "schema = 'a'\ndsn = \n")

    with pytest.raises(ConfigurationError, match=r"jobq\.toml is not TOML: .*line 2.*; correct it") as caught:
        find_settings_file(tmp_path)

    assert str(path) in str(caught.value)


# -- what it states ----------------------------------------------------------------------------------------


def test_values_become_what_would_be_typed() -> None:
    """So that there is one check of a value, whoever states it."""
    stated = {
        "app": "app:queue",
        "schema": "shop",
        "grace": 60,
        "cancel_grace": 0.5,
        "start_limit": "10m",
        "concurrency": {"mail": 20, "*": 50},
        "app_dir": "src",
    }

    assert read_settings(stated, FILE) == {
        "target": "app:queue",
        "schema": "shop",
        "grace": "60",
        "cancel_grace": "0.5",
        "start_limit": "10m",
        "concurrency": ["mail=20", "50"],
        "app_dir": "/srv/app/src",
    }


def test_one_number_is_the_concurrency_of_every_queue() -> None:
    """As on the command line."""
    assert read_settings({"concurrency": 7}, FILE) == {"concurrency": ["7"]}


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("grase", "did you mean grace?"),
        ("cancel-grace", "did you mean cancel_grace?"),
        ("xyz", "there are app, app_dir, cancel_grace, concurrency, dsn,"),
        ("tool", "the keys stand at the top, without a heading"),
    ],
)
def test_an_unknown_key_is_refused_with_the_one_that_is_meant(key: str, remedy: str) -> None:
    """A misspelt limit would be no limit."""
    with pytest.raises(ConfigurationError) as caught:
        read_settings({key: "1s"}, FILE)

    assert str(caught.value).startswith(f"{FILE}: ")
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("grace", True, 'write "25s"'),
        ("grace", ["25s"], 'write "25s"'),
        ("schema", 7, 'such as "jobq"'),
        ("app", "", 'such as "app:queue"'),
        ("app_dir", 1, 'such as "src"'),
        ("concurrency", "20", "write 50, or { mail = 20"),
        ("concurrency", False, "write 50, or { mail = 20"),
        ("concurrency", {"mail": "20"}, "write 50, or { mail = 20"),
        ("concurrency", {"mail": True}, "write 50, or { mail = 20"),
    ],
)
def test_a_wrong_type_is_refused_with_a_right_one(key: str, value: object, remedy: str) -> None:
    """The message names the file, the key, the value and the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        read_settings({key: value}, FILE)

    assert str(caught.value).startswith(f"{FILE}: {key} = {value!r} is not ")
    assert remedy in str(caught.value)


def test_the_example_of_the_docs_can_be_read() -> None:
    """Whoever copies it has a file that works."""
    docs = (REPOSITORY / "docs" / "command-line.md").read_text()
    [example] = re.findall(r"```toml\n(.*?)```", docs, re.DOTALL)

    stated = read_settings(tomllib.loads(example), FILE)

    assert stated["concurrency"] == ["mail=20", "50"]
    assert stated["app_dir"] == "/srv/app/src"
