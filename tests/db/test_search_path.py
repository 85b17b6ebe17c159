"""The functions of the schema run what they were written with, whatever the caller's search path leads to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from jobq.db.statements import quote_identifier
from tests.db.rows import Rows

LOOKALIKES = """
create schema {evil};
create table {evil}.job (id bigint);
create table {evil}.sleeper (queue text, until timestamptz);
create table {evil}.idempotency_key (kind text, key text, job_id bigint, until timestamptz);
create table {evil}.history (slot_s int);
create function {evil}.nextval(text) returns bigint language plpgsql as $$ begin raise 'hijacked'; end $$;
create function {evil}.clock_timestamp() returns timestamptz language plpgsql as $$ begin raise 'hijacked'; end $$;
create function {evil}.pg_notify(text, text) returns void language plpgsql as $$ begin raise 'hijacked'; end $$;
create function {evil}.parse_ident(text) returns text[] language plpgsql as $$ begin raise 'hijacked'; end $$;
create function {evil}.jsonb_array_length(jsonb) returns int language plpgsql as $$ begin raise 'hijacked'; end $$;
create function {evil}.pg_relation_size(regclass) returns bigint language plpgsql as $$ begin raise 'hijacked'; end $$;
create function {evil}.texts(text, text) returns boolean language plpgsql as $$ begin raise 'hijacked'; end $$;
create function {evil}.numbers(bigint, bigint) returns boolean language plpgsql as $$ begin raise 'hijacked'; end $$;
create function {evil}.times(timestamptz, timestamptz) returns boolean language plpgsql as
    $$ begin raise 'hijacked'; end $$;
create function {evil}.joined(jsonb, jsonb) returns jsonb language plpgsql as $$ begin raise 'hijacked'; end $$;
create operator {evil}.= (leftarg = text, rightarg = text, function = {evil}.texts);
create operator {evil}.!~ (leftarg = text, rightarg = text, function = {evil}.texts);
create operator {evil}.= (leftarg = bigint, rightarg = bigint, function = {evil}.numbers);
create operator {evil}.<> (leftarg = bigint, rightarg = bigint, function = {evil}.numbers);
create operator {evil}.> (leftarg = timestamptz, rightarg = timestamptz, function = {evil}.times);
create operator {evil}.<= (leftarg = timestamptz, rightarg = timestamptz, function = {evil}.times);
create operator {evil}.|| (leftarg = jsonb, rightarg = jsonb, function = {evil}.joined);
"""


@pytest.fixture
async def evil(rows: Rows, schema: str) -> AsyncIterator[str]:
    """The quoted name of a schema of look-alikes, which is in front of the caller's search path."""
    evil = quote_identifier(f"{schema} evil")
    await rows.conn.execute(LOOKALIKES.format(evil=evil))
    await rows.conn.execute(f"set search_path = {evil}, pg_catalog")
    yield evil
    await rows.conn.execute("reset search_path")
    await rows.conn.execute(f"drop schema {evil} cascade")


async def test_every_function_pins_its_search_path(rows: Rows, schema: str) -> None:
    """To the server's own schema, and the temporary one last, where nobody else can put anything."""
    settings: dict[str, list[str]] = {
        row[0]: row[1] or []
        for row in await rows.conn.fetch(
            """
            select p.proname, p.proconfig
            from pg_catalog.pg_proc p
            join pg_catalog.pg_namespace n on n.oid = p.pronamespace
            where n.nspname = $1
            """,
            schema,
        )
    }

    assert "enqueue" in settings
    assert [name for name, stated in settings.items() if "search_path=pg_catalog, pg_temp" not in stated] == []


async def test_no_function_runs_with_the_rights_of_its_owner(rows: Rows, schema: str) -> None:
    """So a right that a role was not given cannot be had by a function."""
    definers = await rows.conn.fetchval(
        """
        select array(
            select p.proname::text
            from pg_catalog.pg_proc p
            join pg_catalog.pg_namespace n on n.oid = p.pronamespace
            where n.nspname = $1 and p.prosecdef
        )
        """,
        schema,
    )

    assert definers == []


async def test_lookalikes_are_not_taken_for_the_servers(rows: Rows, evil: str) -> None:
    """Each function does its work between hostile tables, functions and operators."""
    await rows.run("insert into @schema@.sleeper values ('infinity', gen_random_uuid(), 'mail', 'async')")

    first = await rows.row("select id, created from @schema@.enqueue('k', queue => 'mail', idempotency_key => 'a')")
    again = await rows.row("select id, created from @schema@.enqueue('k', queue => 'mail', idempotency_key => 'a')")
    owner = await rows.value("select @schema@.take_key('k', 'a', 99, interval '1 day')")
    await rows.run("select @schema@.notify_sleepers(array['mail'])")
    errors = await rows.value("select @schema@.with_error('[1]', '2')")
    emptied = await rows.value("select @schema@.empty_oldest_slot()")

    assert (first["created"], again["created"]) == (True, False)
    assert again["id"] == owner == first["id"]
    assert errors == "[1, 2]"
    assert emptied == 0
