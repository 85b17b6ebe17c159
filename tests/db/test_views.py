"""The stable views: their columns are a contract, they say what `jobq stats` says, and many jobs cost them nothing."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobq.core.histogram import bucket_of, percentile_ms
from jobq.core.worker import Slots, WorkerRow
from jobq.db.overview import COUNT_LIMIT, Overview
from jobq.db.statements import render
from jobq.db.store import KindCount
from tests.db.plans import DEAD, FRESH, HELD, READY, SCHEDULED, STALE, buffers, counted, indexes, scanned
from tests.db.rows import KIND, LEASE_S, QUEUE, new_worker

if TYPE_CHECKING:
    from tests.conftest import Conn
    from tests.db.rows import Rows

PAGE = Path(__file__).parents[2] / "docs" / "views.md"
TABLES_OF_PAGE = re.compile(r"^### `(v\d+_\w+)`\n(.*?)(?=^#|\Z)", re.M | re.S)
LINE_OF_TABLE = re.compile(r"^\| `(\w+)` \| `([^`]+)` \|", re.M)

COLUMNS = """
select c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
from pg_catalog.pg_class c
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0
where c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1) and c.relkind = 'v'
order by c.relname, a.attnum
"""

FUNCTIONS = ("v1_queue_depth", "v1_oldest_ready", "v1_unserved", "v1_rates", "v1_dead_by_kind")

MORE = {
    "v1_queue_depth": 3 * COUNT_LIMIT + 3_000,
    "v1_oldest_ready": 500,
    "v1_unserved": 10 * 1000 + 1_000,
    "v1_rates": 1_000,
    "v1_dead_by_kind": COUNT_LIMIT + 1_000,
    "v1_oldest_dead": 100,
    "v1_workers": 100,
    "v1_recurring": 100,
    "v1_table_sizes": 100,
}
"""How many more pages each may touch than in an empty schema: what it counts, and some, however many rows there are.

The rest is what the server's catalogs cost, which grow with all that was ever made on it.
"""


async def select(rows: Rows, view: str, order: str = "1") -> list[tuple[Any, ...]]:
    """Return all that a view says."""
    return [
        tuple(row)
        for row in await rows.conn.fetch(f"{render(f'table @schema@.{view}', rows.store.schema)} order by {order}")
    ]


async def pages_of(rows: Rows, view: str) -> int:
    """How many pages a look at a view touches, once the connection knows the catalogs."""
    text = render(f"explain (analyze, buffers, format json) table @schema@.{view}", rows.store.schema)
    await rows.conn.fetchval(text)
    return buffers(json.loads(await rows.conn.fetchval(text))[0]["Plan"])


# -- the contract ----------------------------------------------------------------------------------------


async def test_the_columns_are_those_that_are_documented(conn: Conn, schema: str) -> None:
    """Names, types and order: what dashboards and scalers ask for stays."""
    found: dict[str, list[tuple[str, str]]] = {}
    for view, column, kind in await conn.fetch(COLUMNS, schema):
        found.setdefault(view, []).append((column, kind))

    documented = {view: LINE_OF_TABLE.findall(text) for view, text in TABLES_OF_PAGE.findall(PAGE.read_text("utf-8"))}

    assert len(documented) > 5
    assert found == documented


async def test_the_queries_of_the_page_run(rows: Rows) -> None:
    """As they are written, but for the name of the schema."""
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.S)

    for query in queries:
        await rows.conn.execute(render(query.replace("jobq.", "@schema@."), rows.store.schema))

    assert len(queries) >= 3


# -- what they say ---------------------------------------------------------------------------------------


async def test_the_depth_is_told_by_queue_and_state(rows: Rows) -> None:
    """Each queue that anything is known of, and nobody's worker that has lapsed."""
    await rows.waiting()
    await rows.waiting(priority=0)
    await rows.scheduled(queue="later")
    await rows.running(new_worker())
    await rows.dead(queue="broken")
    await rows.store.beat(rows.conn, WorkerRow(new_worker(), 1, "a", "0", ["mail", "idle"], [KIND]), LEASE_S)
    await rows.store.beat(rows.conn, WorkerRow(new_worker(), 1, "a", "0", ["gone"], [KIND]), -1.0)

    assert await select(rows, "v1_queue_depth") == [
        ("broken", 0, 0, 0, 1, 0),
        ("idle", 0, 0, 0, 0, 1),
        ("later", 0, 1, 0, 0, 0),
        ("mail", 2, 0, 1, 0, 1),
    ]


async def test_more_than_ten_thousand_are_10001(rows: Rows) -> None:
    """Exact up to 10,000, then one more that stands for all."""
    await rows.run(";".join([READY, SCHEDULED, DEAD]))
    await rows.many_waiting(COUNT_LIMIT, queue="full")

    depth = {row[0]: row[1:5] for row in await select(rows, "v1_queue_depth")}

    assert depth["full"] == (10_000, 0, 0, 0)
    assert depth["mail"] == (10_001, 10_001, 0, 10_001)
    assert await select(rows, "v1_dead_by_kind") == [("mail", KIND, 10_001)]


async def test_the_oldest_ready_job_is_the_one_that_could_have_run_longest(rows: Rows) -> None:
    """In any lane; a queue in which nothing is ready has the age 0, so that a graph has no gap."""
    late = await rows.waiting(priority=9)
    await rows.waiting(priority=0)
    await rows.run("update @schema@.job set run_at = now() - interval '3 hours' where id = $1", late)
    await rows.scheduled(queue="later")

    (later, never, zero), (mail, since, age_s) = await select(rows, "v1_oldest_ready")

    assert (later, never, zero) == ("later", None, 0.0)
    assert (mail, since) == ("mail", (await rows.job(late))["run_at"])
    assert 10_799 < age_s < 10_900


async def test_the_rates_are_those_of_five_minutes_and_of_an_hour(rows: Rows) -> None:
    """Of all workers together, with percentiles of all attempts as Python computes them."""
    fast = {bucket_of(10): 90, bucket_of(70): 5}
    slow = {bucket_of(4000): 4, bucket_of(0.5): 1}
    await rows.store.record_kind_stats(rows.conn, new_worker(), [KindCount(QUEUE, KIND, 95, 0, 0, fast)])
    await rows.run("update @schema@.kind_stat set at = now() - interval '20 min'")
    await rows.store.record_kind_stats(rows.conn, new_worker(), [KindCount(QUEUE, KIND, 0, 4, 1, slow)])
    await rows.store.record_kind_stats(rows.conn, new_worker(), [KindCount("idle", KIND, 0, 0, 0, {})])

    idle, idle_hour, five, hour = await select(rows, "v1_rates", "queue, kind, window_s")

    assert idle[2:] == (300, 0, 0, 0, None, None, None)
    assert idle_hour[2:] == (3600, 0, 0, 0, None, None, None)
    assert five[:7] == (QUEUE, KIND, 300, 0, 4, 1, 1.0)
    assert hour[:7] == (QUEUE, KIND, 3600, 95, 4, 1, 0.05)
    assert five[7:] == pytest.approx((percentile_ms(slow, 0.5), percentile_ms(slow, 0.95)))
    assert hour[7:] == pytest.approx((percentile_ms(fast | slow, 0.5), percentile_ms(fast | slow, 0.95)))


async def test_a_kind_that_nobody_takes_is_named(rows: Rows, schema: str) -> None:
    """F65: as stats names it."""
    await rows.waiting(kind="renamed")
    await rows.waiting()
    await rows.store.beat(rows.conn, WorkerRow(new_worker(), 1, "a", "0", ["mail"], [KIND]), LEASE_S)

    found = await select(rows, "v1_unserved")

    assert found == [("mail", "renamed")]
    assert [(one.queue, one.kind) for one in (await Overview(schema).look(rows.conn)).unserved] == found


async def test_dead_letters_are_told_without_their_payload(rows: Rows) -> None:
    """What an alert or a table of a dashboard wants to show, and the oldest of them."""
    old = await rows.dead(kind="resize")
    await rows.run("update @schema@.dead_letter set died_at = now() - interval '1 day'")
    new = await rows.dead()

    letters = await select(rows, "v1_dead_letters")
    ((_, age_s),) = await select(rows, "v1_oldest_dead")

    assert [letter[:5] for letter in letters] == [
        (old, "mail", "resize", "permanent failure", "TimeoutError"),
        (new, "mail", KIND, "permanent failure", "TimeoutError"),
    ]
    assert await select(rows, "v1_dead_by_kind", "kind") == [("mail", "resize", 1), ("mail", KIND, 1)]
    assert 86_399 < age_s < 86_500


async def test_workers_say_whether_they_are_alive(rows: Rows) -> None:
    """Those that have lapsed are there until they are reaped; one of an older version does not tell its slots."""
    slots = [Slots([KIND], {"mail": 20, "default": 100}), Slots(["resize"], {"mail": 20, "default": 100})]
    one = WorkerRow(new_worker(), 1, "a", "0", ["default", "mail"], ["resize", KIND], slots)
    await rows.store.beat(rows.conn, one, LEASE_S)
    await rows.store.beat(rows.conn, WorkerRow(new_worker(), 2, "b", "0", ["mail"], [KIND]), -1.0)
    await rows.run("update @schema@.worker set slots = null where host = 'b'")

    found = await select(rows, "v1_workers", "host")

    assert [(row[1], row[2], row[6], row[-1]) for row in found] == [("a", 1, 240, True), ("b", 2, None, False)]


async def test_the_sizes_are_those_of_the_tables(rows: Rows) -> None:
    """With the partitions of the history as one; the estimate is the server's, so seven million cost nothing."""
    await rows.run(";".join([STALE, READY]))

    # The server learns of rows a moment after their transaction.
    async with asyncio.timeout(30):
        while True:
            found = {name: (estimate, size) for name, estimate, size in await select(rows, "v1_table_sizes")}
            if found["job"][0] == 100_000:
                break
            await asyncio.sleep(0.05)

    assert found.keys() == {"job", "done", "dead_letter", "idempotency_key", "kind_stat"}
    assert found["job"][1] > 10_000_000


# -- what they cost --------------------------------------------------------------------------------------


@pytest.mark.parametrize("statistics", ["stale", "fresh"])
async def test_many_jobs_cost_a_view_no_more(rows: Rows, statistics: str) -> None:
    """100,000 are ready and as many are dead: each walks its own index, and touches what it counts on top."""
    empty = {name: await pages_of(rows, name) for name in MORE}
    filling = [READY, SCHEDULED, HELD, DEAD, counted(100_000)]
    await rows.run(";".join([STALE, *filling] if statistics == "stale" else [*filling, FRESH]))
    await rows.run("vacuum @schema@.job, @schema@.dead_letter, @schema@.kind_stat") if statistics == "fresh" else None

    scans = {}
    for name in (*FUNCTIONS, "waiting_queues"):
        body = await rows.value(
            "select p.prosrc from pg_catalog.pg_proc p where p.oid = to_regprocedure($1)",
            render(f"@schema@.{name}()", rows.store.schema),
        )
        plan = json.loads(await rows.conn.fetchval(f"explain (format json, costs off) {body}"))[0]["Plan"]
        if scanned(plan):
            scans[name] = scanned(plan), indexes(plan)
    more = {name: await pages_of(rows, name) - empty[name] for name in MORE}

    assert scans == {}
    assert {name: touched for name, touched in more.items() if touched > MORE[name]} == {}


async def test_nothing_is_compiled(rows: Rows) -> None:
    """What is planned as long and runs short would wait half a second for the compiler of PostgreSQL 15."""
    settings = await rows.value(
        "select array(select p.proname::text from pg_catalog.pg_proc p where p.pronamespace = to_regnamespace($1)"
        " and 'jit=off' = any(p.proconfig) order by 1)",
        f'"{rows.store.schema.replace(chr(34), chr(34) * 2)}"',
    )

    assert settings == sorted(["explain", "waiting_queues", *FUNCTIONS])
