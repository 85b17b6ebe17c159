"""Where the value of an option comes from: the command line, the environment, the settings file, the default.

The first that states it wins. The order is click's own: each setting names its variable (`envvar=`), and what the file
states becomes the default map of every command. What is added here is the file, the name of each origin, and that a
value which cannot be used is a wrong configuration (78) unless it was typed (2).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from jobq.cli.settings_file import SettingsFile, find_settings_file
from jobq.cli.usage import UsageError
from jobq.errors import ConfigurationError

DEFAULT = "default"

AnyContext = Any
"""click's context: typer keeps a click of its own, under a private name."""


class Commands(TyperGroup):
    """The commands of jobq, whose options may be stated in the environment and in a file."""

    def resolve_command(self, ctx: AnyContext, args: list[str]) -> Any:
        """Find the command, and give it what the settings file states, unless only its help is wanted."""
        found = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and not set(ctx.help_option_names) & set(args):
            ctx.obj = find_settings_file(_working_directory())
            if ctx.obj is not None:
                ctx.default_map = _for_each(self.commands, ctx.obj.options)
        return found

    def invoke(self, ctx: AnyContext) -> Any:
        """Run the command. Raises `ConfigurationError` for a value that nobody has typed and that cannot be used."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if error.ctx is None or error.param is None or is_typed(error.ctx, error.param):
                raise
            place = place_of(error.ctx, error.param)
            if place == DEFAULT and variables_of(error.param):
                remedy = f"give it, or state {key_of(error.param)} where `jobq config -h` tells"
                raise UsageError(f"Missing {error.param.metavar}: {remedy}.", ctx=error.ctx) from None
            if place == DEFAULT:
                raise  # a missing one, too
            raise ConfigurationError(f"{place}: {_message(error)}") from None


def is_typed(ctx: AnyContext, param: Any) -> bool:
    """Say whether the value of *param* stands on the command line itself."""
    source = ctx.get_parameter_source(param.name)
    return source is not None and source.name == "COMMANDLINE"


def origin_of(ctx: AnyContext, param: Any) -> str:
    """Name where the value of *param* comes from: `--grace`, `JOBQ_GRACE`, `/srv/app/jobq.toml`, `default`."""
    source = ctx.get_parameter_source(param.name)
    match None if source is None else source.name:
        case "COMMANDLINE":
            option: str = param.opts[0]
            return option if option.startswith("-") else str(param.metavar)
        case "ENVIRONMENT":
            return next(name for name in variables_of(param) if os.environ.get(name))
        case "DEFAULT_MAP":
            file: SettingsFile = ctx.find_root().obj
            return str(file.path)
        case _:
            return DEFAULT


def place_of(ctx: AnyContext, param: Any) -> str:
    """Name the place to correct, for a message: the origin, and in a file the key."""
    origin = origin_of(ctx, param)
    from_file = ctx.get_parameter_source(param.name).name == "DEFAULT_MAP"
    return f"{origin}: {key_of(param)}" if from_file else origin


def variables_of(param: Any) -> list[str]:
    """Return the variables of the environment that may state *param*, the first first; none if it is no setting."""
    match param.envvar:
        case None:
            return []
        case str() as name:
            return [name]
        case names:
            return list(names)


def key_of(param: Any) -> str:
    """Return the key of a setting in the file: its variable without `JOBQ_`, in small letters."""
    return variables_of(param)[0].removeprefix("JOBQ_").lower()


def _for_each(commands: Mapping[str, Any], options: Mapping[str, object]) -> dict[str, object]:
    """Return the default map that gives *options* to each command; those that have no such option ignore it."""
    return {
        name: _for_each(command.commands, options) if isinstance(command, TyperGroup) else dict(options)
        for name, command in commands.items()
    }


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return None


def _message(error: typer.BadParameter) -> str:
    return error.message.removeprefix("Value error, ").rstrip(".")  # pydantic's prefix, of no use to anybody
