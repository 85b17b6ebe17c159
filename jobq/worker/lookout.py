"""Reads now and then how the whole queue stands, for `/metrics`, whose scrapes never wait for a query, and for alerts.

It takes part in neither health: a worker works without knowing how many jobs wait. What it reads costs the same for any
number of waiting jobs, and it reads the seldomer the longer that takes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import anyio

from jobq.db.connect import Link
from jobq.db.overview import Glance, Overview, QueueStats
from jobq.errors import DatabaseError, SchemaError
from jobq.telemetry.events import Emit, OverviewFailed
from jobq.telemetry.metrics import OTHER
from jobq.telemetry.readings import OverviewNow, QueueNow

DEADLINE_S = 3.0
"""For one reading. It shares its connection with the reaper, which must not wait long."""

MOST_OF_THE_TIME = 0.05
"""What fails at its deadline is tried again in a minute."""


class Lookout:
    """The last reading of one worker. *queues* are those that have a label of their own."""

    def __init__(self, *, overview: Overview, link: Link, queues: Sequence[str], every_s: float, emit: Emit) -> None:
        self._overview = overview
        self._link = link
        self._queues = queues
        self._every_s = every_s
        self._emit = emit
        self._read: Glance | None = None
        self._read_at = 0.0
        self._took_s = 0.0
        self._news = anyio.Event()

    async def next_glance(self) -> Glance:
        """Wait for the reading that comes next, and return it as it was read."""
        await self._news.wait()
        assert self._read is not None
        return self._read

    @property
    def last(self) -> OverviewNow | None:
        """The last reading, None before the first. May be asked from another thread."""
        if self._read is None:
            return None
        return OverviewNow(
            queues=by_served(self._read, self._queues),
            workers=self._read.workers,
            oldest_dead_s=self._read.oldest_dead_s or 0.0,
            entries=self._read.entries,
            took_s=self._took_s,
            age_s=time.monotonic() - self._read_at,
        )

    async def run(self) -> None:
        """Read at once and then once a period, until cancelled."""
        is_failing = False
        while True:
            asked_at = time.monotonic()
            try:
                read = await self._look()
            except (DatabaseError, SchemaError) as error:
                if not is_failing:
                    self._emit(OverviewFailed(str(error)))
                is_failing = True
            else:
                is_failing = False
                self._read, self._read_at = read, time.monotonic()
                self._took_s = self._read_at - asked_at
                self._news.set()
                self._news = anyio.Event()
            pause_s = max(self._every_s, (time.monotonic() - asked_at) / MOST_OF_THE_TIME)
            await anyio.sleep(pause_s * random.uniform(0.9, 1.1))

    async def _look(self) -> Glance:
        async with self._link.lend() as conn:
            with anyio.fail_after(DEADLINE_S):
                return await self._overview.glance(conn)


def by_served(read: Glance, served: Sequence[str]) -> list[QueueNow]:
    """Return how each queue of *served* stands, and all others together under one name."""
    of_each: dict[str, list[QueueStats]] = {name: [] for name in (*served, OTHER)}
    unserved = dict.fromkeys(of_each, 0)
    for queue in read.queues:
        of_each[queue.queue if queue.queue in of_each else OTHER].append(queue)
    for kind in read.unserved:
        unserved[kind.queue if kind.queue in of_each else OTHER] += 1
    return [
        QueueNow(
            queue=name,
            oldest_ready_s=max((one.oldest_ready_s or 0.0 for one in ones), default=0.0),
            ready=sum(one.ready.count for one in ones),
            scheduled=sum(one.scheduled.count for one in ones),
            running=sum(one.running.count for one in ones),
            dead=sum(one.dead.count for one in ones),
            workers=max((one.workers for one in ones), default=0),
            unserved_kinds=unserved[name],
        )
        for name, ones in of_each.items()
    ]
