"""Timelines: which of two servers that both take writes was promoted last.

PostgreSQL begins a timeline of a higher number with each promotion, and an old primary that nobody has stopped stays on
its own. Any user may ask for it; a hosted service may refuse to tell, and then nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import asyncpg
import msgspec

from jobq.db.statements import load_statements

if TYPE_CHECKING:
    from asyncpg import Connection, Record

READ_S = 5.0


class Timeline(msgspec.Struct, frozen=True):
    """Which history a server writes: of a *system*, what `initdb` made and what was copied from it, the *number*th.

    An upgrade by `pg_upgrade` or to a copy by logical replication is another system, and begins at 1 again.
    """

    system: int
    number: int

    def is_after(self, other: Timeline | None) -> bool:
        """Say whether this one is known to have begun later than *other*: of different systems nothing is known."""
        return other is not None and self.system == other.system and self.number > other.number


def newest(timelines: Sequence[Timeline | None]) -> int:
    """Return the position of the latest; of those that are equal, or cannot be compared, the first."""
    found = 0
    for position, timeline in enumerate(timelines):
        if timeline is not None and timeline.is_after(timelines[found]):
            found = position
    return found


async def read_timeline(connection: Connection[Record]) -> Timeline | None:
    """Return which history the server writes, or None if it writes none or does not tell.

    The connection is as good as before. Raises the driver's errors if there is no answer.
    """
    try:
        row = await connection.fetchrow(load_statements("")["read_timeline"], timeout=READ_S)
    except asyncpg.PostgresError:
        if connection.is_closed():
            raise
        return None
    return None if row is None else Timeline(row[0], int(row[1], 16))
