"""Queues whose hooks are told by workers that look often, and what a test of them waits for."""

from __future__ import annotations

from typing import Any

import msgspec

from jobq import Permanent, Queue
from tests.worker.observe import Jobs, eventually

OFTEN: dict[str, Any] = {"overview_s": 0.05}

QUIET_S = 1.0
"""A hundredth of the least that a user may state, and many looks of these workers."""


def add_kinds(queue: Queue) -> None:
    """Register the kind `fail`, which dies at once, and `work`, which is done."""

    @queue.task("fail", on_duplicate="harmless")
    async def fail() -> None:
        raise Permanent("no such\norder")

    @queue.task("work", on_duplicate="harmless")
    async def work() -> None: ...


def hurry_hooks(queue: Queue) -> None:
    """Shorten the quiet period of the hooks."""
    queue.hooks[:] = [msgspec.structs.replace(hook, quiet_s=QUIET_S) for hook in queue.hooks]


async def looks_pass(jobs: Jobs, count: int = 3) -> None:
    """Wait until some worker has begun and ended so many further looks at the dead letters."""
    for _ in range(count):
        at = await jobs.run("select max(looked_at) from @schema@.dead_watch")
        await eventually(lambda: jobs.run("select max(looked_at) from @schema@.dead_watch"), at.__ne__)


async def quiet_is_over(jobs: Jobs) -> None:
    """Wait until every incident has not been seen for the quiet period."""
    await eventually(
        lambda: jobs.run(
            "select bool_and(clock_timestamp() > seen_at + $1 * interval '1 s') from @schema@.incident", QUIET_S
        )
    )


async def hurry(jobs: Jobs) -> float:
    """Let whatever lease or pause there is be over. Returns the longest of them in seconds, as it was."""
    left_s: float = await jobs.run(
        """
        with hurried as (
            update @schema@.incident i set telling_until = clock_timestamp()
            from @schema@.incident before
            where (before.hook, before.what, before.subject) = (i.hook, i.what, i.subject)
            returning extract(epoch from before.telling_until - clock_timestamp())::float8 as left_s
        )
        select max(h.left_s) from hurried h
        """
    )
    return left_s
