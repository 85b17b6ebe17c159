"""A long change in pages, which gets through however short the time that a statement may take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import asyncpg

from jobq.db.connect import Link
from jobq.errors import DatabaseUnavailableError

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection


class Pages:
    """Pages of *most* rows on *link*: half as many after one that took too long, then more again."""

    def __init__(self, link: Link, most: int) -> None:
        self._link = link
        self._most = most
        self.rows = most
        """How many the next page may have."""

    async def each(self, change: Callable[[AnyConnection, int], Awaitable[int]]) -> AsyncIterator[int | None]:
        """Let *change* do page after page, until one is not full.

        It gets the limit and returns how many rows there were, which is given here; None is given for a page that the
        server's `statement_timeout` has cancelled. Raises what `Link.lend` does: also at the link's own deadline, when
        nobody knows whether the database is slow or away, and if a single row takes too long.
        """
        while True:
            limit = self.rows
            try:
                async with self._link.lend() as conn:
                    found = await change(conn, limit)
            except DatabaseUnavailableError as error:
                was_cancelled = isinstance(error.__cause__, asyncpg.QueryCanceledError)
                if was_cancelled or isinstance(error.__cause__, TimeoutError):
                    self.rows = max(1, limit // 2)
                if limit == 1 or not was_cancelled:
                    raise
                yield None
                continue
            yield found
            if found < limit:
                return
            # Slowly: a page that is too large costs all the time that it was allowed.
            self.rows = min(self._most, limit + max(1, limit // 8))
