"""Tidying gets through, however short the time that a statement may take."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from jobq.db.connect import Link
from jobq.db.store import Store
from jobq.errors import DatabaseUnavailableError
from jobq.worker.upkeep import ROWS_A_PAGE, Upkeep
from tests.worker.conftest import TIMEOUT_MS
from tests.worker.observe import Events, Jobs

ROWS = 600

TABLES = {
    "idempotency_key": "(kind, key, job_id, until)"
    " select 'mail', n::text, -n, now() - interval '1 h' - n * interval '1 s'",
    "sleeper": "(until, worker_id, queue, loop) select now() - interval '2 h', gen_random_uuid(), 'mail', n::text",
    "kind_stat": "(at, worker_id, done, retried, dead, queue, kind, buckets, counts)"
    " select now() - interval '2 days', gen_random_uuid(), 1, 0, 0, 'mail', 'mail', '{}', '{}'",
    "incident": "(since, seen_at, told_at, hook, what, subject, facts)"
    " select now() - interval '3 days', now() - interval '2 days', now(), 'hook', 'dead', n::text, '{}'",
}
"""What is purged, and how a row of it is made that is over: one that never was is not missed."""

SLOW = """
    create table @schema@.deleted (page bigint not null);
    create function @schema@.hold_up() returns trigger language plpgsql as $$
        begin
            perform pg_sleep(0.001 * {times});
            insert into @schema@.deleted values (pg_current_xact_id()::text::bigint);
            return old;
        end $$;
    create trigger slow before delete on @schema@.{table} for each row execute function @schema@.hold_up();
"""
"""Each row takes so many milliseconds at least: no page has more rows than the time-out has room for."""


@asynccontextmanager
async def upkeep_of(store: Store, dsn: str, *, deadline_s: float = 10.0) -> AsyncIterator[Upkeep]:
    """Give the upkeep of a worker, for one round after the other."""
    link = Link(dsn, role="upkeep", deadline_s=deadline_s)
    try:
        yield Upkeep(store=store, link=link, every_s=60.0, emit=Events().emit)
    finally:
        await link.close()


async def fill(jobs: Jobs, table: str, count: int = ROWS) -> None:
    """Let there be much to purge."""
    await jobs.script(f"insert into @schema@.{table} {TABLES[table]} from generate_series(1, {count}) n")


async def left(jobs: Jobs, table: str) -> int:
    """Return how many rows there are."""
    count: int = await jobs.run(f"select count(*) from @schema@.{table}")
    return count


@pytest.mark.parametrize("table", TABLES)
async def test_a_page_that_the_server_has_no_time_for_is_halved_until_it_is_done(
    jobs: Jobs, store: Store, hurried: str, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """F93: one round forgets everything, in pages, and each of them is a sign of life, however long the round is."""
    await fill(jobs, table)
    await jobs.script(SLOW.format(table=table, times=1))

    async with upkeep_of(store, hurried) as upkeep:
        turns: list[None] = []
        monkeypatch.setattr(upkeep.pulse, "worked", lambda: turns.append(None))
        await upkeep.tidy()

    pages = await jobs.run("select array(select count(*) from @schema@.deleted group by page)")
    assert await left(jobs, table) == 0
    assert sum(pages) == ROWS
    assert max(pages) <= TIMEOUT_MS
    assert len(turns) >= len(pages)


async def test_a_page_that_its_own_deadline_ends_is_halved_too(jobs: Jobs, store: Store, dsn: str) -> None:
    """F93: also where nobody has set a time-out but we; from round to round, because it looks like an outage."""
    await fill(jobs, "idempotency_key")
    await jobs.script(SLOW.format(table="idempotency_key", times=1))

    async with upkeep_of(store, dsn, deadline_s=TIMEOUT_MS / 1000) as upkeep:
        # A statement that was given up goes on for a while, and a round passes what it holds.
        while await left(jobs, "idempotency_key"):
            with suppress(DatabaseUnavailableError):
                await upkeep.tidy()

    assert max(await jobs.run("select array(select count(*) from @schema@.deleted group by page)")) <= TIMEOUT_MS


async def test_pages_grow_again_when_there_is_time(jobs: Jobs, store: Store, hurried: str) -> None:
    """A bad hour does not slow down the tidying for good."""
    await fill(jobs, "kind_stat")
    await jobs.script(SLOW.format(table="kind_stat", times=1))

    async with upkeep_of(store, hurried) as upkeep:
        await upkeep.tidy()
        shrunk = upkeep._pages.rows
        await jobs.script("drop trigger slow on @schema@.kind_stat")
        await fill(jobs, "kind_stat", ROWS * 20)
        await upkeep.tidy()
        grown = upkeep._pages.rows

    assert shrunk <= TIMEOUT_MS * 9 / 8
    assert 4 * shrunk < grown <= ROWS_A_PAGE


async def test_a_row_that_takes_too_long_by_itself_is_said_and_tried_again(
    jobs: Jobs, store: Store, hurried: str
) -> None:
    """A page has one row at least, and then it is for a person to raise the time-out."""
    await fill(jobs, "idempotency_key")
    await jobs.script(SLOW.format(table="idempotency_key", times=60_000))

    async with upkeep_of(store, hurried) as upkeep:
        with pytest.raises(DatabaseUnavailableError, match="statement timeout"):
            await upkeep.tidy()
        await jobs.script("drop trigger slow on @schema@.idempotency_key")
        await upkeep.tidy()

    assert await left(jobs, "idempotency_key") == 0
