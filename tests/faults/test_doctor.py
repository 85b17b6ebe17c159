"""What `jobq doctor` finds that needs more than one process: a pooler in front, and a replica behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobq.cli.main import run_command
from jobq.core.worker import WorkerRow
from jobq.db import migrate
from jobq.db.facts import FactReports
from jobq.db.store import Store
from jobq.doctor import vacuum
from jobq.doctor.examination import examine
from jobq.doctor.finding import Finding, Surroundings
from tests.db.rows import new_worker
from tests.faults.pooler import PgBouncer
from tests.faults.run import connected
from tests.faults.servers import Server, a_replica, a_server

if TYPE_CHECKING:
    from tests.conftest import Conn

DURABLE = {"durability"}
"""What is found on the server of the other tests, which is not."""


async def codes(capsys: pytest.CaptureFixture[str], *arguments: str) -> set[str]:
    """Run `jobq doctor` with these arguments, and return the codes of what it finds."""
    await asyncio.to_thread(run_command, ["doctor", "--json", *arguments])
    return {one["code"] for one in json.loads(capsys.readouterr().out)["findings"]} - DURABLE


async def test_a_pooler_in_transaction_mode_is_found_out(
    conn: Conn, dsn: str, schema: str, short_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F10, F12: it needs another way to listen, and no prepared statements; with both there is nothing to find."""
    async with PgBouncer(dsn, short_directory, size=2) as pooler:
        through = ("--dsn", pooler.dsn, "--schema", schema)
        bare = await codes(capsys, *through)
        around = await codes(capsys, *through, "--listen-dsn", dsn)
        unprepared = await codes(capsys, *through, "--prepared-statements", "off")

    assert bare == {"pooler-listen", "pooler-prepared"}
    assert around == set()
    assert unprepared == {"pooler-listen"}
    assert await codes(capsys, "--dsn", dsn, "--schema", schema) == set()


async def look(primary: Server) -> list[Finding]:
    """Examine the primary."""
    async with connected(primary.dsn) as conn:
        return examine(await FactReports("jobq").gather(conn), Surroundings(), {})


async def test_a_replica_makes_short_leases_and_its_readers_worth_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a replica there may be a failover; and what it reads is not vacuumed here, if it says so."""
    with a_server() as primary, a_replica(primary) as replica:
        async with connected(primary.dsn) as conn:
            await migrate.migrate(conn, "jobq")
            await Store("jobq").beat(conn, WorkerRow(new_worker(), 1, "a", "0", [], []), 20.0)
        async with asyncio.timeout(30):
            while [one.code for one in await look(primary)] != ["lease"]:
                await asyncio.sleep(0.05)

        monkeypatch.setattr(vacuum, "MANY_TRANSACTIONS", 0)
        async with connected(replica.dsn) as reader:
            await reader.execute("alter system set hot_standby_feedback = on")
            await reader.execute("alter system set wal_receiver_status_interval = '1s'")
            await reader.execute("select pg_reload_conf()")
            await reader.execute("begin isolation level repeatable read; select 1")
            async with asyncio.timeout(30):
                while "held-back" not in [one.code for one in await look(primary)]:
                    await asyncio.sleep(0.05)
        (held,) = [one for one in await look(primary) if one.code == "held-back"]

    assert held.title.startswith("replica ")
    assert "hot_standby_feedback" in held.remedy
