"""Tables of any length, and what the server says of a statement's plan on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobq.core.job import WorkerId
from jobq.db.statements import load_statements, render

if TYPE_CHECKING:
    from tests.conftest import Conn

WORKER = WorkerId(UUID("7b0c6f0e-1d1e-4c55-9d1a-0242ac120002"))
LARGE = {"job", "dead_letter", "idempotency_key", "kind_stat", *(f"done_{slot}" for slot in range(8))}
OF_FEW_ROWS = {"worker_pkey", "incident_pkey", "dead_watch_pkey", "recurring_pkey", "recurring_look"}
MODES = ["force_generic_plan", "force_custom_plan"]

_names = count(1)

# -- the tables --------------------------------------------------------------------------------------

FIRST_RUN_AT = "2020-01-01 00:00:00+00"
"""The jobs of `ready` are due from here on, one a millisecond, their priorities in turn."""

WATCHED = """
    insert into @schema@.dead_watch (hook, looked_at, read_to)
    values ('app.tell', now() - interval '1 min', now() - interval '{ago}')
"""
"""A hook for which somebody has read the dead letters up to some time ago."""

FIRST_HELD = 10_000_000
HELD_ROWS = 1_000

STALE = """
    analyze @schema@.job, @schema@.done, @schema@.dead_letter, @schema@.idempotency_key, @schema@.kind_stat;
    alter table @schema@.job set (autovacuum_enabled = off);
    alter table @schema@.dead_letter set (autovacuum_enabled = off);
    alter table @schema@.idempotency_key set (autovacuum_enabled = off);
    alter table @schema@.kind_stat set (autovacuum_enabled = off);
"""
FRESH = "analyze @schema@.job, @schema@.done, @schema@.dead_letter, @schema@.idempotency_key, @schema@.kind_stat"
UNLOGGED = "alter table @schema@.job set unlogged"
"""Three times as fast to fill, and all the same to the planner."""

LAPSED = f"""
    update @schema@.job set lease_until = now() - interval '1 s' where worker_id is not null;
    insert into @schema@.worker (lease_until, started_at, worker_id, pid, host, version, queues, kinds)
    values (now() - interval '1 s', now(), '{WORKER}', 7, 'host', '0', '{{mail}}', '{{send_receipt}}')
"""


def ready(rows: int) -> str:
    return f"""
        insert into @schema@.job (queue, kind, priority, run_at, enqueued_at, payload)
        select
            'mail', 'send_receipt', n % 10, timestamptz '{FIRST_RUN_AT}' + n * interval '1 ms', now(),
            '{{"order_id": 7}}'
        from generate_series(1, {rows}) n
    """


def scheduled(rows: int) -> str:
    return f"""
        insert into @schema@.job (queue, kind, priority, run_at, enqueued_at, payload)
        select
            case when n % 3 = 0 then 'later' else 'mail' end, 'send_receipt', n % 5,
            now() + interval '1 day' + n * interval '1 ms', now(), '{{"order_id": 7}}'
        from generate_series(1, {rows}) n
    """


def held(rows: int) -> str:
    return f"""
        insert into @schema@.job (id, queue, kind, worker_id, fence, run_at, enqueued_at, lease_until, payload)
        select
            {FIRST_HELD} + n, 'mail', 'send_receipt', '{WORKER}', 1, now() - interval '1 hour', now(),
            now() + interval '1 min', '{{"order_id": 7}}'
        from generate_series(0, {rows - 1}) n
    """


def dead(rows: int) -> str:
    return f"""
        insert into @schema@.dead_letter (
            id, run_at, enqueued_at, first_failed_at, died_at, attempt, crashes, fence, redrives, priority, queue, kind,
            reason, error_type, error_message, fingerprint, payload, errors
        )
        select
            2000000 + n, now(), now(), now(), now() - n * interval '1 s', 10, 0, 10, 0, 5, 'mail', 'send_receipt',
            'attempts used up', 'E', 'no', '0123456789ab', '{{}}', '[]'
        from generate_series(1, {rows}) n
    """


def done(rows: int) -> str:
    return f"""
        insert into @schema@.done (
            id, enqueued_at, finished_at, run_ms, attempt, crashes, slot, priority, queue, kind, outcome, payload
        )
        select 3000000 + n, now(), now(), 1, 1, 0, n % 8, 5, 'mail', 'send_receipt', 'done', '{{}}'
        from generate_series(1, {rows}) n
    """


def counted(rows: int) -> str:
    """What the workers counted, spread over the day for which it is kept."""
    return f"""
        insert into @schema@.kind_stat (at, worker_id, done, retried, dead, queue, kind, buckets, counts)
        select
            now() - n * interval '1 day' / {rows}, '{WORKER}', 9, 0, 0, 'mail', 'send_receipt', '{{3, 4}}', '{{4, 5}}'
        from generate_series(1, {rows}) n
    """


def filled(rows: int) -> str:
    """A script for a schema in which so many jobs are ready.

    What is held is bounded by the slots of the workers, and what is dead or counted has nothing to do with a backlog.
    """
    return ";".join([UNLOGGED, ready(rows), scheduled(rows * 3 // 10), held(HELD_ROWS), DEAD, DONE, counted(100_000)])


READY, SCHEDULED, HELD, DEAD, DONE = ready(100_000), scheduled(30_000), held(5_000), dead(100_000), done(8_000)

# -- the plans ---------------------------------------------------------------------------------------


async def prepare(conn: Conn, schema: str, mode: str, statement: str) -> str:
    """Prepare a statement, to be planned as *mode* says, and return the name that it bears on *conn*."""
    name = f"it_{next(_names)}"
    await conn.execute(f"set plan_cache_mode = {mode}; prepare {name} as {load_statements(schema)[statement]}")
    return name


async def explain(conn: Conn, options: str, prepared: str, arguments: str) -> dict[str, Any]:
    """Return the plan of a prepared statement."""
    call = f"{prepared} ({arguments})" if arguments else prepared
    plan: dict[str, Any] = json.loads(await conn.fetchval(f"explain (format json, {options}) execute {call}"))[0][
        "Plan"
    ]
    return plan


async def run(
    conn: Conn, schema: str, mode: str, statement: str, arguments: str, *, before: str | None = None
) -> dict[str, Any]:
    """Run a statement, after a script, and return its plan with what it touched; nothing of it stays."""
    prepared = await prepare(conn, schema, mode, statement)
    transaction = conn.transaction()
    await transaction.start()
    if before:
        await conn.execute(render(before, schema))
    plan = await explain(conn, "analyze, buffers", prepared, arguments)
    await transaction.rollback()
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def indexes(plan: dict[str, Any]) -> set[str]:
    """The indexes that a plan uses, without those of tables that have few rows, found in either way."""
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node} - OF_FEW_ROWS


def scanned(plan: dict[str, Any]) -> set[str]:
    """The tables that a plan reads from end to end, among those that may be long."""
    return {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"} & LARGE


def buffers(plan: dict[str, Any]) -> int:
    """How many pages a plan has touched."""
    touched: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return touched
