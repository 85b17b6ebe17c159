"""`Job`: what a handler sees of the attempt it runs, and the one way to complete it in its own transaction."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from jobq.core.job import ClaimedJob, JobId, WorkerId
from jobq.core.recurring import tick_of
from jobq.db.store import Owned, Store
from jobq.errors import JobqError, LostLeaseError, ResourceError

if TYPE_CHECKING:
    from asyncpg import Pool, Record
    from asyncpg.pool import PoolConnectionProxy

T = TypeVar("T")

LAST_MOMENT_S = 5.0
"""For a transaction that is begun after the end of its attempt: it should hear of the lost lease, not be cut off."""


class Resources:
    """What `lifespan` yielded, found by type."""

    def __init__(self, opened: Sequence[object] = ()) -> None:
        self._opened = tuple(opened)

    def find(self, wanted: type[T]) -> T:
        """Return the one resource that is a *wanted*. Raises `ResourceError` if there is none, or several."""
        found = [resource for resource in self._opened if isinstance(resource, wanted)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(type(resource).__name__ for resource in self._opened) or "nothing"
        raise ResourceError(
            f"{len(found)} resources are a {wanted.__name__}: lifespan yielded {names};"
            " yield one of each type that a handler asks for"
        )


class Scope(msgspec.Struct, frozen=True):
    """What the attempts of one worker share. *pool* opens the handlers' pool at its first use.

    *cancel_grace_s* is how long an attempt may go on after its time-out.
    """

    store: Store
    worker_id: WorkerId
    resources: Resources
    pool: Callable[[], Awaitable[Pool[Record]]]
    cancel_grace_s: float


class Job:
    """One attempt of a job, as its handler sees it. A handler that wants it declares `job: Job` first."""

    __slots__ = ("_claimed", "_completed", "_over_at", "_scope", "_started")

    def __init__(self, claimed: ClaimedJob, scope: Scope, timeout_s: float) -> None:
        self._claimed = claimed
        self._scope = scope
        self._completed = False
        self._started = time.monotonic()
        self._over_at = self._started + timeout_s + scope.cancel_grace_s

    @property
    def id(self) -> JobId:
        """The job's id: the same in every attempt, so it names the effect (a `Message-Id`, say)."""
        return self._claimed.id

    @property
    def kind(self) -> str:
        """The name that joins this job and its handler."""
        return self._claimed.kind

    @property
    def queue(self) -> str:
        """The queue that the job was enqueued into."""
        return self._claimed.queue

    @property
    def attempt(self) -> int:
        """Which run this is; the first is 1. Crashed and timed-out runs count, released and snoozed ones do not."""
        return self._claimed.attempt

    @property
    def fence(self) -> int:
        """A number that only grows, from claim to claim: give it to whoever can refuse an older one."""
        return self._claimed.fence

    @property
    def enqueued_at(self) -> datetime:
        """When the job was enqueued, by the database's clock."""
        return self._claimed.enqueued_at

    @property
    def run_at(self) -> datetime:
        """The time that the job was due for this attempt, by the database's clock."""
        return self._claimed.run_at

    @property
    def tick(self) -> datetime | None:
        """The tick of the recurring entry that enqueued this job, whenever it runs; None of any other job."""
        return tick_of(self._claimed)

    @property
    def completed(self) -> bool:
        """Whether a `transaction()` of this attempt has committed: the job is done, whatever happens now."""
        return self._completed

    def resource(self, wanted: type[T]) -> T:
        """Return the resource of this type that `lifespan` opened. Raises `ResourceError` if it is not exactly one."""
        return self._scope.resources.find(wanted)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PoolConnectionProxy[Record]]:
        """Open a transaction in which the handler's writes and the job's completion commit together.

        What is written on the connection, jobs enqueued with `conn=` included, happens exactly once: either this
        attempt still owns the job at the end and all of it commits, or `LostLeaseError` is raised and nothing is
        written. An exception in the body rolls everything back, and the attempt ends as that exception says.
        READ COMMITTED, on a connection of the handlers' pool. If this process freezes or its machine is gone, the
        server rolls back when the kind's `timeout` and the cancel grace are over, so that nobody waits for the locks.

            async with job.transaction() as conn:
                await conn.execute("update account set balance = balance - $1 where id = $2", amount, source)
        """
        if self._completed:
            raise JobqError(f"{self.kind} {self.id} is completed already: one transaction() completes a job")
        pool = await self._scope.pool()
        async with pool.acquire() as conn:
            async with conn.transaction(isolation="read_committed"):
                left_s = max(self._over_at - time.monotonic(), LAST_MOMENT_S)
                await self._scope.store.limit_transaction(conn, left_s)
                yield conn
                await self._complete(conn)
            self._completed = True

    async def _complete(self, conn: PoolConnectionProxy[Record]) -> None:
        owned = Owned(self.id, self.fence)
        run_ms = round((time.monotonic() - self._started) * 1000)
        if not await self._scope.store.settle_done(conn, self._scope.worker_id, [owned], [run_ms]):
            raise LostLeaseError(
                f"{self.kind} {self.id} no longer belongs to attempt {self.attempt} (fence {self.fence}):"
                " another attempt has it, so nothing of this transaction was written"
            )

    def __repr__(self) -> str:
        return f"<Job {self.kind} {self.id} attempt {self.attempt}>"
