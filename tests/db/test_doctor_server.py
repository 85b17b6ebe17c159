"""What `jobq doctor` finds about the server: durability, room, clocks, and whatever holds back vacuum."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import pytest

from jobq.db.facts import FactReports
from jobq.db.statements import quote_identifier, render
from jobq.doctor import server, vacuum
from jobq.doctor.examination import examine
from jobq.doctor.finding import Finding, Severity, Surroundings
from jobq.embedded import temporary
from tests.db.checkup import durable_server, found, look, only
from tests.db.rows import Rows
from tests.faults.run import connected

if TYPE_CHECKING:
    from tests.conftest import Conn


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A server of its own."""
    with durable_server() as dsn:
        yield dsn


async def eventually(rows: Rows, code: str) -> Finding:
    """Wait for the finding of what the server comes to know a moment later."""
    async with asyncio.timeout(30):
        while True:
            for one in await found(rows):
                if one.code == code:
                    return one
            await asyncio.sleep(0.05)


@asynccontextmanager
async def server_setting(rows: Rows, name: str, value: str) -> AsyncIterator[None]:
    """Change a setting of the server, and put it back."""
    shown = await rows.value(f"show {name}")
    for wanted, text in ((value, f"alter system set {name} = '{value}'"), (shown, f"alter system reset {name}")):
        await rows.run(text)
        await rows.run("select pg_reload_conf()")
        async with asyncio.timeout(30):
            while await rows.value(f"show {name}") != wanted:
                await asyncio.sleep(0.01)
        if wanted == value:
            yield


# -- the server ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
async def test_a_server_that_forgets_is_found(rows: Rows, name: str) -> None:
    """A crash would take committed jobs along."""
    async with server_setting(rows, name, "off"):
        finding = await only(rows, "durability")

    assert (finding.severity, finding.title) == (Severity.HURTS, f"{name} is off")
    assert await found(rows) == []


@pytest.mark.parametrize("mode", ["share", "access exclusive"])
async def test_whoever_has_locked_a_table_is_named(
    rows: Rows, dsn: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Also while nobody happens to wait; with our tables shut to readers too, nothing hangs."""
    monkeypatch.setattr(server, "BLOCKED_S", 0.0)
    async with connected(dsn) as holder, holder.transaction():
        await holder.execute(render(f"lock table @schema@.job in {mode} mode", rows.store.schema))
        finding = await only(rows, "blocked")
        pid = holder.get_server_pid()

    assert (finding.severity, finding.title) == (Severity.HURTS, f"session {pid} of postgres (test) has locked job")
    assert finding.detail.startswith("it is idle in transaction, and its transaction has been open for 0 s; ")
    assert finding.remedy.startswith(f"end it: select pg_terminate_backend({pid});")
    assert await found(rows) == []


async def test_whoever_holds_a_row_is_named_and_not_who_waits_in_between(
    rows: Rows, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that are jobq's, or want our tables."""
    monkeypatch.setattr(server, "BLOCKED_S", 0.01)
    job_id = await rows.waiting()
    change = render(f"update @schema@.job set kind = kind where id = {job_id}", rows.store.schema)
    async with connected(dsn) as holder, connected(dsn) as second, connected(dsn) as third:
        for one in (second, third):
            await one.execute("set application_name = 'jobq settling'")
        async with holder.transaction():
            await holder.execute(change)
            waiting = [asyncio.create_task(one.execute(change)) for one in (second, third)]
            finding = await eventually(rows, "blocked")
            assert [one.pid for one in (await look(rows)).blockers] == [holder.get_server_pid()]
        await asyncio.gather(*waiting)

    assert finding.title.endswith(" of postgres (test) holds a lock that others wait for")


@pytest.mark.parametrize(("limit", "severity"), [(18, Severity.LOOK), (4, Severity.HURTS)])
async def test_the_last_connections_are_counted(rows: Rows, limit: int, severity: Severity) -> None:
    """Those of the server, or of the database if it has a limit."""
    database = quote_identifier(await rows.value("select current_database()"))
    await rows.run(f"alter database {database} connection limit {limit}")
    try:
        finding = await only(rows, "connections")
    finally:
        await rows.run(f"alter database {database} connection limit -1")

    assert finding.severity is severity
    assert int(finding.title.split()[-1]) < limit


async def test_a_notification_queue_that_fills_up_is_found(schema: str) -> None:
    """A session that listens and never ends its transaction; on a server whose queue is small."""
    with temporary(settings={"max_notify_queue_pages": "64"}) as server:
        listening, conn = await asyncpg.connect(server.dsn), await asyncpg.connect(server.dsn)
        await listening.execute("listen elsewhere")
        await listening.execute("begin; select 1")
        for number in range(12):
            await conn.execute("select pg_notify('elsewhere', repeat('x', 7900) || $1)", str(number))
        facts = await FactReports(schema).gather(conn)
        await listening.close()
        await conn.close()

    findings = [one for one in examine(facts, Surroundings(), {}) if one.code == "notifications"]

    assert [one.severity for one in findings] == [Severity.LOOK]
    assert findings[0].title.startswith("the notification queue of the server is 1")


@pytest.mark.parametrize(("off_s", "where"), [(3600.0, "3,600 s ahead of"), (-90.0, "90 s behind")])
async def test_a_clock_that_is_off_is_found(rows: Rows, off_s: float, where: str) -> None:
    """F36: this machine's; nothing depends on it but what people read."""
    (finding,) = await found(rows, wall_clock=lambda: time.time() + off_s)

    assert (finding.code, finding.severity) == ("clock", Severity.LOOK)
    assert finding.title == f"the clock of this machine is {where} the database's"


# -- vacuum ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "holding", ["insert into @schema@.sleeper values (now(), gen_random_uuid(), 'q', 'l')", "read"]
)
async def test_a_session_in_an_open_transaction_is_found(
    rows: Rows, connect: Callable[[], Awaitable[Conn]], holding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written, or holds a snapshot; for five minutes it is nobody's business."""
    other = await connect()
    await other.execute("begin isolation level repeatable read; select 1")
    if holding != "read":
        await Rows(other, rows.store).run(holding)
    assert await found(rows) == []

    monkeypatch.setattr(vacuum, "LONG_S", 0.0)
    finding = await only(rows, "held-back")
    monkeypatch.setattr(vacuum, "VERY_LONG_S", 0.0)
    worse = await only(rows, "held-back")

    assert finding.title.startswith(f"session {other.get_server_pid()} of ")
    assert "(test) holds back vacuum for 0 s" in finding.title
    assert "idle in transaction" in finding.detail
    assert (finding.severity, worse.severity) == (Severity.LOOK, Severity.HURTS)
    await rows.run(finding.remedy.removeprefix("end it: ").partition(";")[0])
    async with asyncio.timeout(30):
        while await found(rows):
            await asyncio.sleep(0.05)


async def test_a_prepared_transaction_is_found(
    rows: Rows, connect: Callable[[], Awaitable[Conn]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's session any more, and it holds back vacuum for ever."""
    other = await connect()
    await Rows(other, rows.store).run("begin; delete from @schema@.sleeper; create table @schema@.mine (id int)")
    await other.execute("prepare transaction 'left'")
    monkeypatch.setattr(vacuum, "LONG_S", 0.0)
    try:
        finding = await only(rows, "held-back")
    finally:
        await other.execute("rollback prepared 'left'")

    assert finding.title.startswith("prepared transaction left of ")
    assert "rollback prepared 'left'" in finding.remedy
    assert await found(rows) == []


async def test_a_slot_that_nobody_reads_is_found(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the log until the disk is full."""
    await rows.run("select pg_create_physical_replication_slot('left', true)")
    try:
        finding = await only(rows, "slot")
        monkeypatch.setattr(vacuum, "MUCH_LOG", 0)
        worse = await only(rows, "slot")
    finally:
        await rows.run("select pg_drop_replication_slot('left')")

    assert (finding.severity, worse.severity) == (Severity.LOOK, Severity.HURTS)
    assert finding.title == "replication slot left has no reader"
    assert "pg_drop_replication_slot('left')" in finding.remedy


async def test_autovacuum_that_is_off_is_found(rows: Rows) -> None:
    """For one table, or for all."""
    await rows.run("alter table @schema@.job set (autovacuum_enabled = off)")
    one = await only(rows, "autovacuum")
    await rows.run("alter table @schema@.job reset (autovacuum_enabled)")
    async with server_setting(rows, "autovacuum", "off"):
        all_of_them = await only(rows, "autovacuum")

    assert (one.title, one.severity) == ("autovacuum is off for job", Severity.HURTS)
    assert (all_of_them.title, all_of_them.severity) == ("autovacuum is off", Severity.HURTS)


async def test_dead_rows_that_no_vacuum_removes_are_found(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than live ones, and nobody has come for ten minutes."""
    monkeypatch.setattr(vacuum, "DEAD_ROWS", 1_000)
    await rows.run("alter table @schema@.job set (autovacuum_enabled = off)")
    await rows.many_waiting(2_000)
    await rows.run("delete from @schema@.job")

    finding = await eventually(rows, "dead-rows")
    await rows.run("vacuum @schema@.job")

    assert finding.title.startswith("job has 2,000 dead rows and ")
    assert "the last vacuum ended never" in finding.detail
    async with asyncio.timeout(30):
        while "dead-rows" in [one.code for one in await found(rows)]:
            await asyncio.sleep(0.05)
