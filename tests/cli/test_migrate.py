"""`jobq migrate`: installs, checks, prints, and says what it did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobq.db.migrate import migrations, newest_version
from tests.cli.conftest import Call, Run

if TYPE_CHECKING:
    from tests.conftest import Conn


async def test_it_installs_once_and_says_so(empty_conn: Conn, call: Call) -> None:
    """A line for each migration; the second time there is nothing to do."""
    before = await call("migrate", "--check")
    first = await call("migrate")
    second = await call("migrate")
    after = await call("migrate", "--check")

    assert before.code == 78
    assert "run `jobq migrate --schema" in before.err
    assert first.code == 0
    assert [line.split()[:2] for line in first.out.splitlines()] == [
        ["applied", f"{migration.version:04d}"] for migration in migrations()
    ]
    assert second.code == 0
    assert second.out.startswith("nothing to do: schema ")
    assert (after.code, after.err) == (0, "")
    assert f"up to date, at version {newest_version()}" in after.out


async def test_several_at_once_install_it_once(empty_conn: Conn, schema: str, run: Run) -> None:
    """F89: each of a deployment's processes may run it."""
    ended = await asyncio.gather(*(run("migrate", "--schema", schema, "--json") for _ in range(3)))

    assert {one.code for one in ended} == {0}
    applied = [json.loads(one.out)["applied"] for one in ended]
    assert sum(map(len, applied)) == len(migrations())


async def test_the_script_does_what_the_command_does(empty_conn: Conn, schema: str, run: Run, call: Call) -> None:
    """For those who review DDL, and apply it with psql. It is printed without a database."""
    script = await run("migrate", "--sql", "--schema", schema, JOBQ_DSN=None)
    await empty_conn.execute(script.out)

    checked = await call("migrate", "--check", "--json")

    assert (script.code, script.err) == (0, "")
    assert checked.code == 0
    assert json.loads(checked.out) == {
        "schema": schema,
        "version": newest_version(),
        "needed": newest_version(),
        "up_to_date": True,
    }


async def test_the_history_is_set_by_a_duration(conn: Conn, sql: Callable[[str], str], call: Call) -> None:
    """Five slots hold what is asked for; 0 keeps nothing."""
    week = await call("migrate", "--history", "7d")
    of_week = await conn.fetchval(sql("select slot_s from @schema@.history"))
    nothing = await call("migrate", "--history", "0")
    of_nothing = await conn.fetchval(sql("select slot_s from @schema@.history"))

    assert (week.code, of_week) == (0, 7 * 86_400 / 5)
    assert "kept for 7 d" in week.out
    assert (nothing.code, of_nothing) == (0, 0)


async def test_options_that_contradict_each_other_are_a_usage_error(call: Call) -> None:
    """Exit code 2, and where the help is."""
    ended = await call("migrate", "--check", "--sql")

    assert ended.code == 2
    assert "--check, --sql and --history exclude each other" in ended.err
    assert "Try 'jobq migrate" in ended.err
