"""The indexes that the migrations make, as the migrations say, with the statement that brings one back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from jobq.db.migrate import migrations
from jobq.db.statements import render

_INDEX = re.compile(r"^create index (?P<name>\w+) on @schema@\.(?P<table>\w+)(?P<rest>[^;]*);", re.M)
_TABLE = re.compile(r"^create table (?:if not exists )?@schema@\.(?P<name>\w+) \((?P<columns>.*?)^\)", re.M | re.S)
_PARTITIONED = re.compile(r"^create table @schema@\.(?P<name>\w+) \([^;]*\) partition by", re.M)
_KEY_OF_TABLE = re.compile(r"^\s*primary key \(([^)]*)\)", re.M)
_KEY_OF_COLUMN = re.compile(r"^\s*(\w+) [^\n]*\bprimary key\b", re.M)


def wanted_indexes(schema: str) -> dict[str, str]:
    """Return the name of each index of *schema*, with the statement that makes it beside running workers.

    Those of partitions are not among them: they come and go with their parent's.
    """
    instance = files("jobq.db").joinpath("sql", "create_instance.sql").read_text("utf-8")
    texts = [instance, *(migration.text for migration in migrations())]
    return {name: render(statement, schema) for text in texts for name, statement in _indexes_in(text)}


def _indexes_in(text: str) -> Iterator[tuple[str, str]]:
    partitioned = {match["name"] for match in _PARTITIONED.finditer(text)}
    for match in _INDEX.finditer(text):
        concurrently = "" if match["table"] in partitioned else "concurrently "
        rest = " ".join(match["rest"].split())
        yield (
            match["name"],
            f"create index {concurrently}{match['name']} on @schema@.{match['table']} {rest};",
        )
    for match in _TABLE.finditer(text):
        table, columns = match["name"], match["columns"]
        if key := _KEY_OF_TABLE.search(columns) or _KEY_OF_COLUMN.search(columns):
            yield f"{table}_pkey", f"alter table @schema@.{table} add constraint {table}_pkey primary key ({key[1]});"
