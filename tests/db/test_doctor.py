"""What `jobq doctor` finds in a schema: each rule on the real situation, and nothing where all is well."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq.core.histogram import bucket_of
from jobq.core.worker import WorkerRow
from jobq.db.blueprint import wanted_indexes
from jobq.db.migrate import newest_version
from jobq.db.roles import ROLES, roles_sql
from jobq.db.statements import quote_identifier
from jobq.db.store import KindCount
from jobq.doctor.finding import KindRules, Severity
from tests.db.checkup import durable_server, found, look, only
from tests.db.entries import NAME, add_entry, ago, due, entries, fire
from tests.db.rows import KIND, QUEUE, Rows, new_worker

if TYPE_CHECKING:
    from tests.conftest import Conn

OTHER_RULES = KindRules(KIND, 300.0, "harmless")


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A server of its own."""
    with durable_server() as dsn:
        yield dsn


# -- nothing ---------------------------------------------------------------------------------------------


async def test_a_healthy_system_gives_no_finding(rows: Rows) -> None:
    """Neither fresh nor with jobs in every place and a worker that is alive."""
    fresh = await found(rows, kinds=[OTHER_RULES])
    await rows.beat(new_worker())
    await rows.waiting()
    await rows.scheduled()
    await rows.running()
    await rows.dead()
    await rows.store.record_kind_stats(
        rows.conn, new_worker(), [KindCount(QUEUE, KIND, 90, 3, 1, {bucket_of(900): 94})]
    )

    assert fresh == []
    assert await found(rows, kinds=[OTHER_RULES]) == []
    assert (await look(rows)).unseen == []


async def test_the_worst_comes_first(rows: Rows) -> None:
    """Whoever is paged reads no further."""
    await rows.waiting()
    await rows.dead()
    await rows.run("update @schema@.dead_letter set died_at = now() - interval '3 days'")

    assert [one.severity for one in await found(rows)] == [Severity.HURTS, Severity.LOOK]


# -- the schema ------------------------------------------------------------------------------------------


async def test_the_indexes_of_a_fresh_schema_are_those_of_the_migrations(rows: Rows, schema: str) -> None:
    """What is read from the migrations' text is what the server has made of it."""
    assert {index.name for index in (await look(rows)).indexes} == wanted_indexes(schema).keys()


@pytest.mark.parametrize(
    ("drop", "name"),
    [
        ("drop index @schema@.job_waiting", "job_waiting"),
        ("drop index @schema@.done_id", "done_id"),
        ("alter table @schema@.dead_letter drop constraint dead_letter_pkey", "dead_letter_pkey"),
        ("alter table @schema@.sleeper drop constraint sleeper_pkey", "sleeper_pkey"),
    ],
)
async def test_a_missing_index_is_found_and_the_remedy_brings_it_back(rows: Rows, drop: str, name: str) -> None:
    """As it was."""
    definition = "select pg_get_indexdef(i.oid) from pg_catalog.pg_class i where i.relname = $1 and i.relnamespace = $2"
    namespace = await rows.value("select n.oid from pg_catalog.pg_namespace n where n.nspname = $1", rows.store.schema)
    before = await rows.value(definition, name, namespace)
    await rows.run(drop)

    finding = await only(rows, "index")
    await rows.run(finding.remedy)

    assert (finding.title, finding.severity) == (f"index {name} is missing", Severity.HURTS)
    assert await found(rows) == []
    assert await rows.value(definition, name, namespace) == before


async def test_an_invalid_index_is_found(rows: Rows) -> None:
    """As a concurrent build that failed leaves it."""
    worker_id = new_worker()
    for _ in range(2):
        await rows.running(worker_id)
    await rows.run("drop index @schema@.job_held")
    with pytest.raises(asyncpg.UniqueViolationError):
        await rows.run("create unique index concurrently job_held on @schema@.job (worker_id)")

    finding = await only(rows, "index")

    assert (finding.title, finding.severity) == ("index job_held is invalid", Severity.HURTS)
    assert "create index concurrently job_held on" in finding.remedy


async def test_an_older_schema_is_the_one_thing_to_mend(rows: Rows) -> None:
    """What its views would say is not asked."""
    await rows.waiting()
    await rows.run("delete from @schema@.migration where version = $1", newest_version())

    finding = await only(rows, "version")

    assert finding.severity is Severity.HURTS
    assert finding.remedy.startswith("jobq migrate --schema ")


async def test_a_newer_schema_is_worth_a_look(rows: Rows) -> None:
    """And everything else is looked at."""
    await rows.run("insert into @schema@.migration (version, name) values (99, 'later')")
    await rows.waiting()

    assert [(one.code, one.severity) for one in await found(rows)] == [
        ("unserved", Severity.HURTS),
        ("version", Severity.LOOK),
    ]


async def test_tables_of_several_owners_are_found(rows: Rows) -> None:
    """The next migration would fail at one of them."""
    await rows.run("create role somebody; alter table @schema@.sleeper owner to somebody")
    try:
        finding = await only(rows, "owners")
    finally:
        await rows.run("alter table @schema@.sleeper owner to current_user; drop role somebody")

    assert finding.title.startswith("the tables belong to 2 roles: ")


async def test_a_history_that_was_not_emptied_is_found(rows: Rows) -> None:
    """What stands in the current slot from its last round should be gone."""
    await rows.run(
        """
        insert into @schema@.done (
            id, enqueued_at, finished_at, run_ms, attempt, crashes, slot, priority, queue, kind, outcome, payload
        )
        select 1, now(), now() - interval '8 days', 1, 1, 0,
            (floor(extract(epoch from now()) / h.slot_s)::bigint % 8)::smallint, 5, 'mail', 'old', 'done', '{}'
        from @schema@.history h
        """
    )

    finding = await only(rows, "history")

    assert finding.title == "the current slot of the history holds rows that are 40 slots old"


# -- the work --------------------------------------------------------------------------------------------


async def test_kinds_that_nobody_takes_are_found(rows: Rows) -> None:
    """F65: they wait for ever."""
    await rows.waiting(kind="renamed")

    finding = await only(rows, "unserved")

    assert finding.title.endswith(": renamed in mail")
    assert finding.severity is Severity.HURTS


async def test_dead_letters_that_nobody_looked_at_are_found(rows: Rows) -> None:
    """For more than a day; one of an hour ago may still be on somebody's desk."""
    for _ in range(2):
        await rows.dead()
    await rows.run("update @schema@.dead_letter set died_at = now() - interval '1 hour'")
    recent = await found(rows)
    await rows.run("update @schema@.dead_letter set died_at = now() - interval '3 days'")

    assert recent == []
    assert (await only(rows, "dead-letters")).title == "2 dead letters, the oldest 3 days old"


@pytest.mark.parametrize(
    ("durations_ms", "severity"),
    [
        ({1_000: 100}, None),
        ({1_000: 90, 9_000: 10}, Severity.LOOK),
        ({9_000: 100}, Severity.HURTS),
    ],
)
async def test_kinds_near_their_time_out_are_found(
    rows: Rows, durations_ms: dict[float, int], severity: Severity | None
) -> None:
    """By their percentiles of the last hour; of kinds of which no time-out is known, nothing is said."""
    counts = {bucket_of(ms): count for ms, count in durations_ms.items()}
    await rows.store.record_kind_stats(rows.conn, new_worker(), [KindCount(QUEUE, KIND, 100, 0, 0, counts)])

    findings = await found(rows, kinds=[KindRules(KIND, 10.0, "harmless")])

    assert [one.severity for one in findings if one.code == "slow-kind"] == ([] if severity is None else [severity])
    assert await found(rows) == []


@pytest.mark.parametrize(
    ("runs", "took_s", "timeout_s", "remedy"),
    [
        (100, 9, 10.0, "raise timeout= in its @queue.task to 30, about three times the slowest in a thousand"),
        (99, 9, 10.0, "raise timeout= in its @queue.task"),  # too few
        (100, 80_000, 86_400.0, "raise timeout= in its @queue.task"),  # there is no longer one
    ],
)
async def test_a_time_out_is_proposed_to_who_has_to_raise_it(
    rows: Rows, runs: int, took_s: int, timeout_s: float, remedy: str
) -> None:
    """From what the kind's attempts took."""
    counts = KindCount(QUEUE, KIND, runs, 0, 0, {bucket_of(took_s * 1000): runs})
    await rows.store.record_kind_stats(rows.conn, new_worker(), [counts])

    findings = await found(rows, kinds=[KindRules(KIND, timeout_s, "harmless")])

    assert [one.remedy for one in findings] == [f"find what it waits for, split it, or {remedy}"]


async def test_kinds_that_do_not_say_what_a_second_run_does_are_found(rows: Rows) -> None:
    """They are named, five of them."""
    kinds = [KindRules(f"kind-{number}", 300.0, None) for number in range(7)]

    (finding,) = await found(rows, kinds=[OTHER_RULES, *kinds])

    assert finding.code == "on-duplicate"
    assert finding.title.endswith("kind-0, kind-1, kind-2, kind-3, kind-4 and 2 more")


async def test_a_lease_that_a_failover_outlasts_is_found(rows: Rows) -> None:
    """Where there may be one: the DSN names several hosts."""
    await rows.store.beat(rows.conn, WorkerRow(new_worker(), 1, "a", "0", [], []), 20.0)
    alone = await found(rows)
    (finding,) = await found(rows, hosts=2)
    await rows.store.beat(rows.conn, WorkerRow(new_worker(), 1, "a", "0", [], []), 60.0)

    assert alone == []
    assert (finding.code, finding.severity) == ("lease", Severity.LOOK)
    assert await found(rows, hosts=2) == []


# -- rights ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "unseen"),
    [
        ("reader", ["what sessions of others hold (grant pg_read_all_stats)"]),
        (
            "producer",
            [
                "the state of the instance",
                "queues and kinds",
                "recurring entries",
                "what sessions of others hold (grant pg_read_all_stats)",
            ],
        ),
    ],
)
async def test_a_role_is_told_what_it_may_not_see(
    rows: Rows, connect: Callable[[], Awaitable[Conn]], role: str, unseen: list[str]
) -> None:
    """And sees the rest."""
    prefix = f"{rows.store.schema[:40]} "
    await rows.run(roles_sql(rows.store.schema, prefix=prefix))
    await rows.run("drop index @schema@.job_held")
    await rows.waiting()
    try:
        conn = await connect()
        await conn.execute(f"set role {quote_identifier(prefix + role)}")
        actor = Rows(conn, rows.store)

        facts = await look(actor)
        codes = [one.code for one in await found(actor)]
    finally:
        for name in ROLES:
            await rows.run(f"drop owned by {quote_identifier(prefix + name)} cascade")
            await rows.run(f"drop role {quote_identifier(prefix + name)}")

    assert facts.unseen == unseen
    assert codes == (["index", "unserved"] if role == "reader" else ["index"])


# -- recurring entries -------------------------------------------------------------------------------------


async def test_entries_that_are_well_are_no_finding(rows: Rows) -> None:
    """Nor is one that was paused a moment ago."""
    await add_entry(rows)
    await fire(rows)
    assert await found(rows) == []

    await entries(rows).pause_recurring(rows.conn, NAME, by="ann", why="x")

    assert await found(rows) == []


async def test_what_should_have_run_and_did_not_hurts(rows: Rows) -> None:
    """With its name, its tick and its state."""
    await add_entry(rows)
    await fire(rows)
    await ago(rows, timedelta(minutes=9))

    finding = await only(rows, "recurring-missed")

    assert finding.severity is Severity.HURTS
    assert re.search(r"should have run and did not: report at 20\S+ \d\d:\d\d UTC \(overdue\)$", finding.title)


async def test_an_entry_that_no_worker_has_looked_at_hurts(rows: Rows) -> None:
    """Added in SQL where no worker runs: nobody knows its ticks, so none of them can be missed by its time."""
    await add_entry(rows)
    await rows.run("update @schema@.recurring set look_at = now() - interval '3 min'")

    finding = await only(rows, "recurring-missed")

    assert finding.severity is Severity.HURTS
    assert finding.title.endswith("since they were added or changed: report")


async def test_an_entry_that_cannot_be_enqueued_hurts(rows: Rows) -> None:
    """Its row says why."""
    await add_entry(rows)
    await entries(rows).fault_recurring(rows.conn, await due(rows), "names a day that never comes", pause_s=60.0)

    finding = await only(rows, "recurring-faulty")

    assert (finding.severity, finding.detail) == (Severity.HURTS, "names a day that never comes")


async def test_an_entry_without_code_is_worth_a_look(rows: Rows) -> None:
    """While workers live whose code might declare it."""
    await add_entry(rows)
    await fire(rows)
    await rows.beat(new_worker())
    await rows.run("update @schema@.recurring set declared_at = now() - interval '1 hour'")

    finding = await only(rows, "recurring-forsaken")

    assert finding.severity is Severity.LOOK
    assert finding.title.endswith(": report")


async def test_a_pause_of_more_than_a_day_is_worth_a_look(rows: Rows) -> None:
    """With who and why."""
    await add_entry(rows)
    await entries(rows).pause_recurring(rows.conn, NAME, by="ann", why="the ledger is closed")
    await rows.run("update @schema@.recurring set paused_at = now() - interval '2 days'")

    finding = await only(rows, "recurring-paused")

    assert (finding.severity, finding.detail) == (Severity.LOOK, "by ann: the ledger is closed")
