"""A table that is empty, or was: what its statements cost, and what becomes of the plans that were made for it."""

from __future__ import annotations

import pytest

from jobq.core.job import JobId
from jobq.db.connect import Link
from jobq.db.statements import load_statements
from tests.db.plan_cases import cases
from tests.db.plans import FRESH, MODES, STALE, WORKER, buffers, explain, held, indexes, ready, run, scanned
from tests.db.rows import KIND, LEASE_S, QUEUE, SETTLES, Attempt, Rows, new_worker, settle

CASES = {case.statement: case for case in cases(50)}


@pytest.mark.parametrize("statistics", ["no", "true"])
@pytest.mark.parametrize("mode", MODES)
async def test_an_empty_table_is_asked_cheaply(rows: Rows, mode: str, statistics: str) -> None:
    """At 0 rows a statement reads at most three pages for each id that it is given, whatever plan the server has."""
    if statistics == "true":
        await rows.run(FRESH)

    # The second time: what stands in functions is planned while it runs, and the first plan reads the catalogue.
    plans = {
        case.statement: [
            await run(rows.conn, rows.store.schema, mode, case.statement, case.arguments) for _ in range(2)
        ][1]
        for case in CASES.values()
    }

    assert {name: buffers(plan) for name, plan in plans.items() if buffers(plan) > 150} == {}


async def test_a_link_that_saw_an_empty_queue_serves_a_full_one(
    rows: Rows, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plans that it has kept since then do not last, though nobody takes statistics (F73).

    On an empty table a scan costs nothing, and five runs later the server keeps it.
    """
    await rows.run(STALE)
    link = Link(dsn, role="claims", deadline_s=10.0)
    nobody = Attempt(JobId(1), 1, WORKER)
    for _ in range(10):
        async with link.lend() as conn:
            await rows.store.claim_jobs(
                conn, queue=QUEUE, kinds=[KIND], limit=10, worker_id=new_worker(), lease_s=LEASE_S
            )
            for statement in SETTLES:
                await settle(rows, statement, nobody, conn=conn)
    await rows.run(f"{ready(10_000)}; {held(1_000)}")

    monkeypatch.setattr("jobq.db.connect.PLAN_AGE_S", 0.0)
    plans = {}
    async with link.lend() as conn:
        for name in ("claim_jobs", *SETTLES):
            text = load_statements(rows.store.schema)[name]
            kept = await conn.fetchval("select name from pg_prepared_statements where statement = $1", text)
            plans[name] = await explain(conn, "costs off", kept, CASES[name].arguments)
    await link.close()

    assert {name: scanned(plan) for name, plan in plans.items()} == {name: set() for name in plans}
    assert {name: indexes(plan) for name, plan in plans.items()} == {name: CASES[name].indexes for name in plans}
