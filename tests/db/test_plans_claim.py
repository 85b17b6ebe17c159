"""A claim takes the right jobs and no more, however the server joins, and does not walk what was claimed before."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from jobq.core.job import ClaimedJob, JobId
from jobq.core.position import Position
from jobq.db.statements import load_statements
from tests.db.plan_cases import FRONT, claim, marks
from tests.db.plans import MODES, STALE, buffers, ready, run, scheduled
from tests.db.rows import KIND, LEASE_S, QUEUE, Rows, new_worker

if TYPE_CHECKING:
    from tests.conftest import Conn

JOINS = ["nestloop", "hashjoin", "mergejoin"]
SCANS = [
    [],
    ["seqscan"],
    ["indexscan"],
    ["indexscan", "bitmapscan"],
    # So that what is inside may be run once a row of what is outside.
    ["indexscan", "bitmapscan", "indexonlyscan", "material", "hashagg", "sort"],
]

WAYS = [
    [*(join for join, is_off in zip(JOINS, off, strict=True) if is_off), *scans]
    for off, scans in product(product([False, True], repeat=3), SCANS)
]
"""What the server is told to avoid: each set of joins, with each set of ways to read a table."""

LIMITS = [1, 7, 105]
"""The last goes on in the second lane: the first has a hundred jobs."""

SHUFFLE = "update @schema@.job set run_at = run_at + id * 7919 % 1000 * interval '1 ms' where run_at < now()"
"""So that the rows do not lie in the order in which they must be claimed."""

MIDDLE = "2020-01-01 00:00:00.5+00"


async def expected(rows: Rows, start: str, limit: int) -> list[JobId]:
    """The ids of the first ready jobs, without the plan that is tested."""
    found: list[JobId] = await rows.value(
        """
        select array(
            select id from @schema@.job
            where queue = 'mail' and run_at between $1::text::timestamptz and now()
            order by priority, run_at, id
            limit $2
        )
        """,
        start,
        limit,
    )
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", ["2000-01-01 00:00:00+00", MIDDLE])
async def test_a_claim_takes_its_limit_under_any_join_method(rows: Rows, start: str, mode: str) -> None:
    """F77: exactly the first jobs from the marks on: a plan that ran the `limit` once a row would take more."""
    # Without jit: what is avoided counts as dear, and a server that can would compile each of these plans.
    await rows.run(f"{STALE}; {ready(1_000)}; {SHUFFLE}; {scheduled(300)}; set plan_cache_mode = {mode}; set jit = off")
    first = {limit: await expected(rows, start, limit) for limit in LIMITS}
    await rows.run(f"prepare it as {load_statements(rows.store.schema)['claim_jobs']}")

    faults = {}
    for off, limit in product(WAYS, LIMITS):
        transaction = rows.conn.transaction()
        await transaction.start()
        # A plan that was kept knows nothing of a setting that came later.
        await rows.run("; ".join(["discard plans", *(f"set local enable_{way} = off" for way in off)]))
        taken = await rows.conn.fetch(f"execute it ({claim(limit, marks(start))})")
        await transaction.rollback()
        if sorted(row["id"] for row in taken) != sorted(first[limit]):
            faults[*off, limit] = [row["id"] for row in taken]

    assert [len(ids) for ids in first.values()] == LIMITS
    assert faults == {}


async def take(rows: Rows, position: Position) -> list[ClaimedJob]:
    """Claim a thousand jobs as a loop does, and move its position on."""
    claimed = await rows.store.claim_jobs(
        rows.conn,
        queue=QUEUE,
        kinds=[KIND],
        limit=1_000,
        worker_id=new_worker(),
        lease_s=LEASE_S,
        marks=position.before_claim(),
    )
    position.after_claim(claimed, limit=1_000, took_s=0.0)
    return claimed


@pytest.mark.parametrize("mode", MODES)
async def test_a_claim_from_its_position_walks_no_dead_entries(rows: Rows, other: Conn, mode: str) -> None:
    """F72: a held snapshot keeps the index entries of twenty thousand claimed jobs, and the next claim touches none."""
    await rows.run(f"{STALE}; {ready(25_000)}; {scheduled(1_000)}")
    position = Position()

    async with other.transaction(isolation="repeatable_read"):
        await other.execute("select")
        taken = [job.id for _ in range(20) for job in await take(rows, position)]
        run_ats, ids = zip(*position.marks, strict=True)
        there = f"array[{', '.join(f'{run_at.isoformat()!r}' for run_at in run_ats)}]::timestamptz[], array{list(ids)}"
        from_there = await run(rows.conn, rows.store.schema, mode, "claim_jobs", claim(1, there))
        from_the_front = await run(rows.conn, rows.store.schema, mode, "claim_jobs", claim(1, FRONT))

    assert len(set(taken)) == 20_000
    assert (from_there["Actual Rows"], from_the_front["Actual Rows"]) == (1, 1)
    assert buffers(from_there) < 200
    assert buffers(from_the_front) > 2_000
