"""What README and docs tell their readers to write and to type is run as written."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

from jobq import Queue
from jobq.db.roles import roles_sql
from jobq.telemetry.json_lines import JsonLines
from jobq.telemetry.tracing import Tracing
from tests.docs.conftest import PROCESSES, Told, Work, discard, line_with
from tests.docs.snippets import commands, run, snippets

if TYPE_CHECKING:
    from tests.conftest import Conn

TABLES = """
    create table product (id int primary key, stock int);
    create table item (product_id int);
    create table account (id int primary key, cents int not null);
    create table partner_told (order_id int primary key);
    create table page (id int primary key, published_at timestamptz, fence int not null default 0);
    insert into product values (1, 0);
    insert into item values (1), (1), (2);
    insert into account values (1, 500), (2, 0);
    insert into page select generate_series(1, 1500);
"""


class Provider:
    """The other side of the handlers in docs/handlers.md."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def charge(self, order_id: int, *, idempotency_key: str) -> None:
        """Remember the charge."""
        self.calls.append(("charge", order_id, idempotency_key))

    async def tell_partner(self, order_id: int) -> None:
        """Remember the call."""
        self.calls.append(("tell", order_id))


@PROCESSES
async def test_the_quick_start_leads_to_the_first_job(tmp_path: Path, told: Told) -> None:
    """Each command in its order; the worker is stopped when it has printed what the text says."""
    app, fails, tests = snippets("docs/quick-start.md", "python")
    assert app.file == "app.py"
    tmp_path.joinpath("app.py").write_text(app.text)
    typed = commands("docs/quick-start.md")
    assert typed[:3] == ["jobq migrate", "python app.py", "jobq run app:queue"]

    for command in typed[:2]:
        await told.run(command)
    worker = await told.start(typed[2])
    try:
        assert await line_with("receipt for", worker) == "attempt 1: receipt for order 1 to Ada\n"
        worker.send_signal(signal.SIGINT)
        await worker.communicate()
        assert worker.returncode == 0
    finally:
        await discard(worker)

    names: dict[str, Any] = {"queue": Queue()}
    await run(fails, names)
    await run(tests, names)
    await names["test_a_card_is_needed"]()
    said = {command: await told.run(command) for command in typed[3:] if "4711" not in command}
    assert "send_receipt" in said["jobq jobs"]
    assert "0 dead letters" in said["jobq dead redrive --kind charge_card --dry-run"]
    shown = await told.start("jobq dead show 4711")
    assert "4711" in (await shown.communicate())[0].decode()


@PROCESSES
async def test_the_readme_leads_to_a_job(tmp_path: Path, told: Told, database: str) -> None:
    """Its application enqueues and runs, and its commands do what they say."""
    (app,) = snippets("README.md", "python")
    assert app.file == "app.py"
    tmp_path.joinpath("app.py").write_text(app.text)
    typed = commands("README.md")
    assert typed == ["jobq migrate", "jobq run app:queue", "jobq stats", "jobq dead list"]

    await told.run("jobq migrate")
    names: dict[str, Any] = {}
    await run(app, names)
    names["queue"].use_dsn(database)
    async with asyncpg.create_pool(database) as pool, names["queue"]:
        await pool.execute("create table orders (id bigserial primary key, customer text not null)")
        await names["place_order"](pool, "Ada")
    assert "1 finished" in await told.run("jobq run app:queue --until-empty")
    assert "mail" in await told.run("jobq stats")
    await told.run("jobq dead list")


async def test_the_handlers_bear_a_second_run(database: str, work: Work, db: Conn) -> None:
    """Each handler of docs/handlers.md runs twice, as two jobs or as one job again, with the effect of one run."""
    provider = Provider()
    queue = Queue(database)
    names: dict[str, Any] = {"queue": queue, "provider": provider}
    for snippet in snippets("docs/handlers.md", "python"):
        await run(snippet, names)
    await db.execute(TABLES)
    bound = {
        "refresh_stock": names["refresh_stock"].bind(product_id=1),
        "transfer": names["transfer"].bind(source=1, target=2, cents=120),
        "charge": names["charge"].bind(order_id=7),
        "notify_partner": names["notify_partner"].bind(order_id=7),
        "publish": names["publish"].bind(page_id=3),
        "rebuild_index": names["rebuild_index"].bind(after_id=0),
    }
    assert bound.keys() == queue.handlers.keys()

    async with queue:
        charged = await queue.enqueue(bound["charge"])
        await queue.enqueue_many([bound[kind] for kind in bound if kind != "charge"])
        await work(queue)
        await queue.enqueue_many([bound[kind] for kind in ("refresh_stock", "notify_partner", "publish")])
        await work(queue)

    async def value(text: str) -> Any:
        return await db.fetchval(text)

    assert await value("select count(*) from jobq.done where outcome <> 'done'") == 0
    assert await value("select count(*) from jobq.job") + await value("select count(*) from jobq.dead_letter") == 0
    assert await value("select stock from product where id = 1") == 2
    assert [row[0] for row in await db.fetch("select cents from account order by id")] == [380, 120]
    assert provider.calls.count(("tell", 7)) == 1
    assert ("charge", 7, f"charge-{charged.id}") in provider.calls
    assert await value("select published_at is not null and fence > 0 from page where id = 3")
    assert await value("select count(*) from jobq.done where kind = 'rebuild_index'") == 3  # two pages, and the end


async def test_the_security_page_gives_roles_to_users_and_redacts_fields(db: Conn) -> None:
    """Its SQL after that of `jobq roles`, all of it rolled back, and its handler."""
    (users,) = snippets("docs/security.md", "sql")
    (handler,) = snippets("docs/security.md", "python")
    names: dict[str, Any] = {}
    transaction = db.transaction()
    await transaction.start()
    try:
        await db.execute(roles_sql("jobq").replace("begin;", "", 1).replace("\ncommit;", "", 1))
        await db.execute(users.text)
        may_enqueue = await db.fetchval(
            "select has_function_privilege('shop_web', oid, 'execute') from pg_proc where proname = 'enqueue'"
        )
    finally:
        await transaction.rollback()

    await run(handler, names)

    assert may_enqueue is True
    assert names["queue"].handlers["charge_card"].signature.redact == ("buyer.token", "card_number")


async def test_the_telemetry_page_sets_up_logs_and_traces() -> None:
    """Its configuration of `logging` makes lines of JSON, and its queue is traced."""
    logs, traces = snippets("docs/telemetry.md", "python")
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        await run(logs, {})
        formatters = [type(handler.formatter) for handler in root.handlers]
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    names: dict[str, Any] = {}
    await run(traces, names)

    assert formatters == [JsonLines]
    assert isinstance(names["queue"].tracing, Tracing)


async def test_the_recurring_page_declares_adds_and_changes_entries(database: str, db: Conn) -> None:
    """Its decorators, its call at run time, and its SQL, in their order."""
    declares, adds = snippets("docs/recurring.md", "python")
    (changes,) = snippets("docs/recurring.md", "sql")
    names: dict[str, Any] = {}
    await run(declares, names)
    queue = names["queue"]
    queue.use_dsn(database)

    async with queue:
        await run(adds, names)
        await names["subscribe"](4, 7)
        insert, update, delete = changes.text.split(";\n")[:3]
        await db.execute(insert)
        await db.execute(update)
        added = {one.name: one.expression for one in await queue.recurring.list()}
        await db.execute(delete)
        left = [one.name for one in await queue.recurring.list()]

    assert sorted(queue.recurring.declared) == ["daily_report", "report_us"]
    assert added == {"digest-4": "0 7 * * *", "digest-7": "0 7 * * *"}
    assert left == ["digest-4"]
