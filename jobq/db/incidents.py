"""What alerts are about: incidents, found and remembered in the database, so that one worker of all tells of each.

All times are the server's. As in `store.py`, a method runs its statement on the connection that it is given; none of
these moves a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from jobq.core.job import WorkerId
from jobq.db.connect import driver_errors
from jobq.db.statements import load_statements

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection


class Incident(msgspec.Struct, frozen=True):
    """An incident that this worker is to tell of, in its call number *tries*; *facts* are fields of the alert."""

    subject: str
    tries: int
    since: datetime
    seen_at: datetime
    facts: dict[str, object]


class Incidents:
    """The incidents of one schema. *hook* is the name of a function, *what* is `dead` or `backlog`."""

    def __init__(self, schema: str) -> None:
        self._sql = load_statements(schema)

    async def watch_dead(self, conn: AnyConnection, hook: str) -> None:
        """Begin to watch the dead letters for a hook, unless that has begun."""
        with driver_errors():
            await conn.execute(self._sql["watch_dead"], hook)

    async def note_dead(
        self,
        conn: AnyConnection,
        hook: str,
        *,
        kinds: Sequence[str] | None,
        quiet_s: float,
        lately_s: float,
        limit: int,
    ) -> bool:
        """Note what has died since the last look, unless that was less than *lately_s* ago.

        Returns whether there was a page of *limit* letters, so that the next should be read at once.
        """
        with driver_errors():
            goes_on: bool = await conn.fetchval(self._sql["note_dead"], hook, kinds, quiet_s, lately_s, limit)
        return goes_on

    async def note_backlog(
        self, conn: AnyConnection, hook: str, behind: Mapping[str, Mapping[str, object]], *, quiet_s: float
    ) -> None:
        """Note the queues that are behind, by name, with the facts of each."""
        facts = [msgspec.json.encode(one).decode() for one in behind.values()]
        with driver_errors():
            await conn.execute(self._sql["note_backlog"], hook, list(behind), facts, quiet_s)

    async def take_incidents(
        self, conn: AnyConnection, hook: str, what: str, *, worker_id: WorkerId, lease_s: float, limit: int
    ) -> list[Incident]:
        """Take what is to be told for *lease_s* seconds, the oldest first, at most *limit*."""
        with driver_errors():
            rows = await conn.fetch(self._sql["take_incidents"], hook, what, worker_id, lease_s, limit)
        taken = [
            Incident(subject, tries, since, seen_at, msgspec.json.decode(facts))
            for subject, tries, since, seen_at, facts in rows
        ]
        return sorted(taken, key=lambda one: (one.since, one.subject))

    async def close_incidents(
        self, conn: AnyConnection, hook: str, what: str, told: Sequence[Incident], *, worker_id: WorkerId
    ) -> int:
        """Write down that the hook was told of these. Returns how many of them were still this worker's."""
        with driver_errors():
            closed: int = await conn.fetchval(self._sql["close_incidents"], hook, what, *_proof(told), worker_id)
        return closed

    async def postpone_incidents(
        self,
        conn: AnyConnection,
        hook: str,
        what: str,
        failed: Sequence[Incident],
        *,
        worker_id: WorkerId,
        pause_s: float,
    ) -> int:
        """Let any worker tell of these after a pause. Returns how many of them were still this worker's."""
        with driver_errors():
            postponed: int = await conn.fetchval(
                self._sql["postpone_incidents"], hook, what, *_proof(failed), worker_id, pause_s
            )
        return postponed

    async def purge_incidents(self, conn: AnyConnection, limit: int) -> int:
        """Forget incidents that are long over, at most *limit*. Returns how many."""
        with driver_errors():
            purged: int = await conn.fetchval(self._sql["purge_incidents"], limit)
        return purged


def _proof(incidents: Sequence[Incident]) -> tuple[list[str], list[int]]:
    """Return subjects and tries, by position."""
    return [one.subject for one in incidents], [one.tries for one in incidents]
