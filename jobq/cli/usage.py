"""How a command is used: its examples, and mistakes on the command line itself (a pointer to the help, code 2)."""

from __future__ import annotations

import typer


class UsageError(typer.BadParameter):
    """Options that are well-formed one by one, and make no sense together."""

    def format_message(self) -> str:
        """Return the message without the prefix of a single invalid value."""
        return self.message


def examples(text: str) -> str:
    """Return *text* for the end of a help page, its lines as they are: they are to be copied."""
    return "\n\n".join(f"\b\n{paragraph}" for paragraph in text.split("\n\n"))
