"""Each statement of the hot path has one sensible plan: with stale statistics, generic or custom, on an old server too.

The statistics are those of the empty tables, as after a quiet night, and autovacuum does not correct them. Required is
that no statement scans a whole table or index that may be long, and that a claim touches few pages.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import asyncpg
import pytest

from jobq.core.job import JobId, WorkerId
from jobq.db import migrate
from jobq.db.connect import Link
from jobq.db.statements import load_statements, quote_identifier, render
from jobq.dead_letters import PAGE
from tests.db.rows import KIND, LEASE_S, QUEUE, SETTLES, Attempt, Rows, new_worker, settle

if TYPE_CHECKING:
    from tests.conftest import Conn

WORKER = WorkerId(UUID("7b0c6f0e-1d1e-4c55-9d1a-0242ac120002"))
Connect = Callable[[], Awaitable["Conn"]]

LARGE = {"job", "dead_letter", "idempotency_key", *(f"done_{slot}" for slot in range(8))}
MODES = ["force_generic_plan", "force_custom_plan"]

_names = count(1)

STALE = """
    analyze @schema@.job, @schema@.done, @schema@.dead_letter, @schema@.idempotency_key, @schema@.worker;
    alter table @schema@.job set (autovacuum_enabled = off);
    alter table @schema@.dead_letter set (autovacuum_enabled = off);
    alter table @schema@.idempotency_key set (autovacuum_enabled = off);
"""
READY = """
    insert into @schema@.job (queue, kind, priority, run_at, enqueued_at, payload)
    select 'mail', 'send_receipt', n % 10, now() - interval '1 hour' + n * interval '1 ms', now(), '{"order_id": 7}'
    from generate_series(1, 100000) n
"""
SCHEDULED = """
    insert into @schema@.job (queue, kind, priority, run_at, enqueued_at, payload)
    select
        case when n % 3 = 0 then 'later' else 'mail' end, 'send_receipt', n % 5,
        now() + interval '1 day' + n * interval '1 ms', now(), '{"order_id": 7}'
    from generate_series(1, 30000) n
"""
HELD = f"""
    insert into @schema@.job (id, queue, kind, worker_id, fence, run_at, enqueued_at, lease_until, payload)
    select
        1000000 + n, 'mail', 'send_receipt', '{WORKER}', 1, now() - interval '1 hour', now(), now() + interval '1 min',
        '{{"order_id": 7}}'
    from generate_series(0, 4999) n
"""
LAPSED = f"""
    update @schema@.job set lease_until = now() - interval '1 s' where id between 1000000 and 1004999;
    insert into @schema@.worker (lease_until, started_at, worker_id, pid, host, version, queues, kinds)
    values (now() - interval '1 s', now(), '{WORKER}', 7, 'host', '0', '{{mail}}', '{{send_receipt}}')
"""
DEAD = """
    insert into @schema@.dead_letter (
        id, run_at, enqueued_at, first_failed_at, died_at, attempt, crashes, fence, redrives, priority, queue, kind,
        reason, error_type, error_message, fingerprint, payload, errors
    )
    select
        2000000 + n, now(), now(), now(), now() - n * interval '1 s', 10, 0, 10, 0, 5, 'mail', 'send_receipt',
        'attempts used up', 'E', 'no', '0123456789ab', '{}', '[]'
    from generate_series(1, 100000) n
"""
DONE = """
    insert into @schema@.done (
        id, enqueued_at, finished_at, run_ms, attempt, crashes, slot, priority, queue, kind, outcome, payload
    )
    select 3000000 + n, now(), now(), 1, 1, 0, n % 8, 5, 'mail', 'send_receipt', 'done', '{}'
    from generate_series(1, 8000) n
"""


class Case(NamedTuple):
    """A statement, its arguments as literals, and the indexes that it may use, in any number."""

    statement: str
    arguments: str
    indexes: set[str]


def array(*values: object) -> str:
    """An array as a literal; EXECUTE takes no subquery."""
    return "'{" + ",".join(map(str, values)) + "}'"


HELD_IDS = range(1_000_000, 1_003_500, 7)
PROOF = f"{array(*HELD_IDS)}, {array(*[1] * 500)}, '{WORKER}'"
FRESH = "analyze @schema@.job, @schema@.done, @schema@.dead_letter, @schema@.idempotency_key"
DEAD_IDS = array(*range(2_000_000, 2_000_000 + PAGE * 7, 7))
EACH_1, EACH_EMPTY = array(*[1] * 500), array(*['"{}"'] * 500)
CASES = [
    Case("claim_jobs", f"'mail', '{{send_receipt}}', 100, '{WORKER}', 60", {"job_waiting", "job_pkey"}),
    Case("has_ready", "'{mail}', '{send_receipt}'", {"job_waiting"}),
    Case("settle_done", f"{PROOF}, {EACH_1}", {"job_pkey"}),
    Case("settle_retry", f"{PROOF}, {EACH_1}, {EACH_EMPTY}", {"job_pkey"}),
    Case("settle_released", f"{PROOF}, {EACH_1}", {"job_pkey"}),
    Case("settle_dead", f"{PROOF}, {array(*['t'] * 500)}, {EACH_EMPTY}, {EACH_EMPTY}", {"job_pkey"}),
    Case("renew_jobs", f"{PROOF}, 60", {"job_pkey"}),
    Case("isolate_job", f"1000007, 1, '{WORKER}'", {"job_pkey"}),
    Case("release_strays", f"'{WORKER}', {array(*HELD_IDS)}", {"job_held", "job_pkey"}),
    Case("reap_worker", f"'{WORKER}', 2, 500", {"job_held", "job_pkey"}),
    Case("reap_orphans", f"{array(*HELD_IDS)}, {EACH_1}, 2", {"job_pkey"}),
    Case("list_orphans", "500", {"job_held"}),
    Case("forget_worker", f"'{WORKER}'", {"job_held"}),
    Case("redrive_jobs", DEAD_IDS, {"dead_letter_pkey"}),
    Case("delete_dead_letters", DEAD_IDS, {"dead_letter_pkey"}),
    Case("show_dead", "2000007", {"dead_letter_pkey"}),
    Case("list_dead", "100", {"dead_letter_died"}),
    Case("page_dead_ids", f"2010000, 2040000, {PAGE}", {"dead_letter_pkey"}),
]


@pytest.fixture(scope="module")
def full(dsn: str) -> Iterator[dict[str, str]]:
    """Two schemas with long tables, by what their statistics are: those of empty tables, or true."""
    scripts = {
        "stale": (STALE, READY, SCHEDULED, HELD, DEAD, DONE),
        "fresh": (READY, SCHEDULED, HELD, DEAD, DONE, FRESH),
    }
    schemas = {statistics: f'Plans "{statistics} {os.getpid()}' for statistics in scripts}

    async def fill() -> None:
        conn = await asyncpg.connect(dsn)
        for statistics, schema in schemas.items():
            await migrate.migrate(conn, schema)
            for script in scripts[statistics]:
                await conn.execute(render(script, schema))
        await conn.close()

    async def drop() -> None:
        conn = await asyncpg.connect(dsn)
        for schema in schemas.values():
            await conn.execute(f"drop schema {quote_identifier(schema)} cascade")
        await conn.close()

    asyncio.run(fill())
    yield schemas
    asyncio.run(drop())


async def explain(conn: Conn, options: str, prepared: str, arguments: str) -> dict[str, Any]:
    """Return the plan of a prepared statement."""
    text = await conn.fetchval(f"explain (format json, {options}) execute {prepared} ({arguments})")
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def indexes(plan: dict[str, Any]) -> set[str]:
    """The indexes that a plan uses, without that of the workers: there are few of them, found in either way."""
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node} - {"worker_pkey"}


def scanned(plan: dict[str, Any]) -> set[str]:
    """The tables that a plan reads from end to end, among those that may be long."""
    return {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"} & LARGE


def buffers(plan: dict[str, Any]) -> int:
    """How many pages a plan has touched."""
    touched: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return touched


# -- long tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("statistics", ["stale", "fresh"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=[case.statement for case in CASES])
async def test_a_statement_uses_its_index(
    connect: Connect, full: dict[str, str], case: Case, mode: str, statistics: str
) -> None:
    """No scan of a table from end to end, and no other index, which would be walked in the same way (F73)."""
    conn = await connect()
    text = load_statements(full[statistics])[case.statement]

    await conn.execute(f"set plan_cache_mode = {mode}; prepare it as {text}")
    plan = await explain(conn, "costs off", "it", case.arguments)

    assert scanned(plan) == set()
    assert indexes(plan) == case.indexes


CLAIM = f"'{{}}', '{{{{send_receipt}}}}', {{}}, '{WORKER}', 60"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("statement", "arguments", "rows_back", "most"),
    [
        ("claim_jobs", CLAIM.format("mail", 1), 1, 200),
        ("claim_jobs", CLAIM.format("mail", 100), 100, 3_000),
        ("claim_jobs", CLAIM.format("later", 100), 0, 200),
        ("has_ready", "'{mail}', '{send_receipt}'", 1, 200),
        ("has_ready", "'{later}', '{send_receipt}'", 1, 200),
        ("settle_done", f"{PROOF}, {EACH_1}", 500, 10_000),
        ("list_dead", "100", 100, 200),
    ],
    ids=["claim 1", "claim 100", "claim none", "ready", "none ready", "settle 500", "list 100"],
)
async def test_a_statement_touches_few_pages(
    connect: Connect, full: dict[str, str], mode: str, statement: str, arguments: str, rows_back: int, most: int
) -> None:
    """A few for each lane and some twenty for each job, however many wait, are scheduled or are dead (F73)."""
    conn = await connect()
    await conn.execute(f"set plan_cache_mode = {mode}; prepare it as {load_statements(full['stale'])[statement]}")

    transaction = conn.transaction()
    await transaction.start()
    plan = await explain(conn, "analyze, buffers", "it", arguments)
    await transaction.rollback()

    assert plan["Actual Rows"] == rows_back
    assert buffers(plan) < most


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statement", ["renew_jobs", "reap_worker", "release_strays", "list_orphans"])
async def test_what_keeps_leases_touches_few_pages(
    connect: Connect, full: dict[str, str], mode: str, statement: str
) -> None:
    """Of five thousand held jobs some ten pages for each that is named, and none of the hundred thousand that wait."""
    conn = await connect()
    (case,) = [case for case in CASES if case.statement == statement]
    await conn.execute(f"set plan_cache_mode = {mode}; prepare it as {load_statements(full['stale'])[statement]}")

    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(render(LAPSED, full["stale"]))
    plan = await explain(conn, "analyze, buffers", "it", case.arguments)
    await transaction.rollback()

    assert plan["Actual Rows"] == {"release_strays": 4500}.get(statement, 500)
    assert buffers(plan) < plan["Actual Rows"] * 20 + 5000


# -- a table that was empty --------------------------------------------------------------------------


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
    await rows.run(f"{READY}; {HELD}")

    monkeypatch.setattr("jobq.db.connect.PLAN_AGE_S", 0.0)
    plans = {}
    async with link.lend() as conn:
        for case in CASES:
            if case.statement in ("claim_jobs", *SETTLES):
                text = load_statements(rows.store.schema)[case.statement]
                kept = await conn.fetchval("select name from pg_prepared_statements where statement = $1", text)
                plans[case.statement] = await explain(conn, "costs off", kept, case.arguments)
    await link.close()

    assert {name: scanned(plan) for name, plan in plans.items()} == {name: set() for name in plans}
    assert {name: indexes(plan) for name, plan in plans.items()} == {
        case.statement: case.indexes for case in CASES if case.statement in plans
    }


async def test_an_empty_queue_is_asked_cheaply(rows: Rows) -> None:
    """At 0 rows a claim reads next to nothing, whatever plan the server has for it."""
    for statistics in ("none", "analyze @schema@.job"):
        if statistics != "none":
            await rows.run(statistics)
        for mode in MODES:
            name = f"it_{next(_names)}"
            await rows.run(
                f"set plan_cache_mode = {mode}; prepare {name} as {load_statements(rows.store.schema)['claim_jobs']}"
            )
            plan = await explain(rows.conn, "analyze, buffers", name, CASES[0].arguments)

            assert (plan["Actual Rows"], buffers(plan) < 50) == (0, True)
