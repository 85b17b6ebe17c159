"""Load the SQL files and put the schema's name into them, once.

A file is plain SQL with `@schema@` where the quoted schema name goes; nothing else is ever substituted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

SCHEMA_TOKEN = "@schema@"


def quote_identifier(name: str) -> str:
    """Return *name* as a quoted SQL identifier, safe to stand in a statement."""
    return '"' + name.replace('"', '""') + '"'


def render(text: str, schema: str) -> str:
    """Return the SQL *text* with the quoted *schema* in place of the token."""
    return text.replace(SCHEMA_TOKEN, quote_identifier(schema))


@cache
def load_statements(schema: str) -> Mapping[str, str]:
    """Return every statement of `sql/` by its file's name, rendered for *schema*."""
    return MappingProxyType(
        {
            entry.name.removesuffix(".sql"): render(entry.read_text("utf-8"), schema)
            for entry in files("jobq.db").joinpath("sql").iterdir()
            if entry.name.endswith(".sql")
        }
    )
