"""Mistakes on the command line itself: one line, a pointer to the help, exit code 2."""

from __future__ import annotations

import typer


class UsageError(typer.BadParameter):
    """Options that are well-formed one by one, and make no sense together."""

    def format_message(self) -> str:
        """Return the message without the prefix of a single invalid value."""
        return self.message
