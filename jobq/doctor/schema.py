"""Rules about the schema: is it this code's, whole, and one owner's, and does its history come round?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from jobq.db.facts import Facts, IndexFacts, InstanceFacts, TableFacts
from jobq.doctor.finding import Finding, Severity, first_few
from jobq.settings import DEFAULT_SCHEMA

MISSED_SLOTS = 2.0
"""What stands in the current slot is one slot old at most; what is older should have been emptied before its turn."""


def check_version(facts: Facts) -> Iterator[Finding]:
    """Code does not work with an older schema, and soon may not with a newer one."""
    option = "" if facts.schema == DEFAULT_SCHEMA else f" --schema {shlex.quote(facts.schema)}"
    if facts.version < facts.needed:
        yield Finding(
            severity=Severity.HURTS,
            code="version",
            title=f"the schema is at version {facts.version}, and this code needs {facts.needed}",
            detail="workers and commands of this release do not start, and nothing in the schema was looked at here",
            remedy=f"jobq migrate{option}",
        )
    if facts.version > facts.needed:
        yield Finding(
            severity=Severity.LOOK,
            code="version",
            title=f"the schema is at version {facts.version}, newer than this code's {facts.needed}",
            detail="older code goes on working for a while",
            remedy="upgrade jobq here",
        )


def check_indexes(indexes: Sequence[IndexFacts], wanted: Mapping[str, str]) -> Iterator[Finding]:
    """Without its index a statement that runs a thousand times a second scans a table. *wanted*: name to statement."""
    there = {index.name: index for index in indexes}
    for name, statement in wanted.items():
        if name not in there:
            yield Finding(
                severity=Severity.HURTS,
                code="index",
                title=f"index {name} is missing",
                detail="what looked up a few rows in it scans the whole table now",
                remedy=statement,
            )
        elif not there[name].valid:
            yield Finding(
                severity=Severity.HURTS,
                code="index",
                title=f"index {name} is invalid",
                detail="it costs each write and serves nobody: it was left by a create or reindex that failed",
                remedy=f"drop it, concurrently, and make it anew: {statement}",
            )


def check_owners(tables: Sequence[TableFacts]) -> Iterator[Finding]:
    """A migration runs as one role, and may change only what that role owns."""
    owners = sorted({table.owner for table in tables})
    if len(owners) > 1:
        yield Finding(
            severity=Severity.LOOK,
            code="owners",
            title=f"the tables belong to {len(owners)} roles: {first_few(owners)}",
            detail="the next migration may not change those of the others",
            remedy="run the SQL that `jobq roles` prints: it gives them to one owner",
        )


def check_history(instance: InstanceFacts) -> Iterator[Finding]:
    """A slot that was not emptied before its turn is kept for another round."""
    age = instance.history_age_slots
    if age is not None and age > MISSED_SLOTS:
        yield Finding(
            severity=Severity.LOOK,
            code="history",
            title=f"the current slot of the history holds rows that are {age:.0f} slots old",
            detail="no worker emptied it before its turn, so it is kept for another round of eight, and grows",
            remedy="keep a worker alive, which does it; a reader that holds a lock on `done` for long is in its way",
        )
