"""The snippets of a document: what stands between fences, and in which file it belongs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parents[2]

_FENCED = re.compile(
    r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


class Snippet(NamedTuple):
    """One snippet. *file* is what the line before it says that it is, or None."""

    language: str
    text: str
    file: str | None


def snippets(document: str, language: str) -> list[Snippet]:
    """Return the snippets of *language* in a document of the repository, in order."""
    found = _FENCED.finditer((REPOSITORY / document).read_text("utf-8"))
    return [Snippet(one["language"], one["text"], one["file"]) for one in found if one["language"] == language]


def commands(document: str) -> list[str]:
    """Return the lines of the shell snippets that call `jobq` or Python, without comments."""
    lines = [line for one in snippets(document, "sh") for line in one.text.splitlines()]
    return [line.partition(" #")[0].strip() for line in lines if line.startswith(("jobq ", "python "))]


async def run(snippet: Snippet, names: dict[str, Any]) -> None:
    """Run a snippet as if it stood in a function of its reader: *names* are what is there, and get what it makes."""
    code = compile(snippet.text, snippet.file or "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, names)
    if found is not None:
        await found
