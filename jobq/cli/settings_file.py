"""`jobq.toml`, or `[tool.jobq]` of pyproject.toml: found, read, and turned into what options are given.

Looked for in the working directory and its parents; the nearest wins, and in one directory `jobq.toml`. Checked here
are the keys and their types. Whether a value is possible, the option that it is for decides, as if it were typed.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from jobq.core.names import shown
from jobq.errors import ConfigurationError

OWN_FILE = "jobq.toml"
SHARED_FILE = "pyproject.toml"

OTHERS = "*"
"""In the table of concurrency: every queue that is not named."""

Given = str | list[str]
"""What an option is given: the text that would be typed, or several if it is repeatable."""


class SettingsFile(msgspec.Struct, frozen=True):
    """What a file states: *options* by the names of their parameters."""

    path: Path
    options: Mapping[str, Given]


class _WrongTypeError(Exception):
    """A value is not *expected*, a noun with an example."""


def find_settings_file(directory: Path | None) -> SettingsFile | None:
    """Return the file that holds in *directory*, or None. Raises `ConfigurationError` if it cannot be used."""
    if directory is None:
        return None
    for folder in (directory, *directory.parents):
        if (own := _load(folder / OWN_FILE)) is not None:
            return SettingsFile(folder / OWN_FILE, read_settings(own, folder / OWN_FILE))
        if (shared := _load(folder / SHARED_FILE)) is not None:
            tool = shared.get("tool")
            if isinstance(tool, dict) and isinstance(mine := tool.get("jobq"), dict):
                return SettingsFile(folder / SHARED_FILE, read_settings(mine, folder / SHARED_FILE))
    return None


def read_settings(table: Mapping[str, object], path: Path) -> dict[str, Given]:
    """Return the options that *table*, read from *path*, states. Raises `ConfigurationError` with key and remedy."""
    options: dict[str, Given] = {}
    for key, value in table.items():
        read = _READERS.get(key)
        if read is None:
            raise ConfigurationError(_unknown(key, path))
        try:
            options[_PARAMETERS.get(key, key)] = read(value, path.parent)
        except _WrongTypeError as error:
            said = "the value" if key == "dsn" else shown(value)  # which may hold a password
            raise ConfigurationError(f"{path}: {key} = {said} is not {error}") from None
    return options


def _load(path: Path) -> dict[str, object] | None:
    """Return what *path* holds, or None if there is no such file or nobody may know."""
    if not _is_file(path):
        return None
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}; correct it, or move it away") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}): make it readable, or move it") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a directory on the way that this user may not search
        return False


def _unknown(key: str, path: Path) -> str:
    if key == "tool" and path.name == OWN_FILE:
        return f"{path}: [tool.jobq] is for {SHARED_FILE}; in {OWN_FILE} the keys stand at the top, without a heading"
    spelled = key.replace("-", "_").lower()
    meant = difflib.get_close_matches(spelled, _READERS, n=1)
    remedy = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(sorted(_READERS))}"
    return f"{path}: there is no setting {shown(key)}: {remedy}"


def _text(example: str) -> Callable[[object, Path], Given]:
    def read(value: object, folder: Path) -> Given:
        if isinstance(value, str) and value:
            return value
        raise _WrongTypeError(f'a text: write one such as "{example}"')

    return read


def _directory(value: object, folder: Path) -> Given:
    """Take a directory as seen from the file, wherever the command is run."""
    if isinstance(value, str) and value:
        return str(folder / value)
    raise _WrongTypeError('a directory: write one such as "src", as seen from this file')


def _duration(value: object, folder: Path) -> Given:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise _WrongTypeError('a duration: write "25s", "10m" or a number of seconds')


def _switch(value: object, folder: Path) -> Given:
    if isinstance(value, bool):
        return "on" if value else "off"
    raise _WrongTypeError("true or false: write one of them")


def _concurrency(value: object, folder: Path) -> Given:
    match value:
        case bool():
            pass
        case int():
            return [str(value)]
        case dict() if all(isinstance(slots, int) and not isinstance(slots, bool) for slots in value.values()):
            return [str(slots) if queue == OTHERS else f"{queue}={slots}" for queue, slots in value.items()]
    raise _WrongTypeError(f'a number or a table of numbers: write 50, or {{ mail = 20, "{OTHERS}" = 50 }}')


_READERS: Mapping[str, Callable[[object, Path], Given]] = {
    "dsn": _text("postgresql://user@host/database"),
    "listen_dsn": _text("postgresql://user@host/database"),
    "prepared_statements": _switch,
    "schema": _text("jobq"),
    "app": _text("app:queue"),
    "app_dir": _directory,
    "concurrency": _concurrency,
    "grace": _duration,
    "cancel_grace": _duration,
    "start_limit": _duration,
    "worker_lease": _duration,
    "http": _text("127.0.0.1:8080"),
    "log_level": _text("info"),
    "log_format": _text("json"),
}
_PARAMETERS = {"app": "target"}
"""The parameters of commands that are not called like their setting."""
