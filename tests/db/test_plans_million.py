"""A million ready jobs change nothing in what a statement costs.

One test for each state of the statistics, because filling the tables takes longer than all that is asked of them.
"""

from __future__ import annotations

import pytest

from tests.db.plan_cases import bounds, cases
from tests.db.plans import FRESH, MODES, STALE, buffers, explain, filled, indexes, prepare, run, scanned
from tests.db.rows import Rows

SCRIPTS = {"stale": (STALE, filled(1_000_000)), "fresh": (filled(1_000_000), FRESH)}


@pytest.mark.parametrize("statistics", SCRIPTS)
async def test_a_million_ready_jobs_cost_no_more(rows: Rows, statistics: str) -> None:
    """Each statement uses its index, and touches no more pages than with ten thousand, generic or custom plan."""
    for script in SCRIPTS[statistics]:
        await rows.run(script)
    schema = rows.store.schema

    wrong_plans, wrong_costs = {}, {}
    for mode in MODES:
        for case in cases(500):
            plan = await explain(
                rows.conn, "costs off", await prepare(rows.conn, schema, mode, case.statement), case.arguments
            )
            if scanned(plan) or indexes(plan) != case.indexes:
                wrong_plans[case.statement, mode] = scanned(plan), indexes(plan)
        for name, bound in bounds(500).items():
            plan = await run(rows.conn, schema, mode, bound.statement, bound.arguments, before=bound.before)
            if plan["Actual Rows"] != bound.rows or buffers(plan) >= bound.pages:
                wrong_costs[name, mode] = plan["Actual Rows"], buffers(plan)

    assert wrong_plans == {}
    assert wrong_costs == {}
