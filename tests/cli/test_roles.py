"""`jobq roles`: a script that changes nothing by itself, and the commands that each role can then run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from jobq import Backoff, Permanent, Queue
from jobq.db.migrate import migrate
from jobq.db.roles import ROLES, roles_sql
from jobq.db.statements import quote_identifier
from jobq.settings import WorkerSettings
from jobq.worker.supervisor import ExitCode, Worker
from tests.cli.conftest import Call, Run

if TYPE_CHECKING:
    from tests.conftest import Conn
    from tests.db.rows import Rows


@pytest.fixture
async def prefix(empty_conn: Conn, schema: str) -> AsyncIterator[str]:
    """What the names of this test's roles begin with; they are dropped after the test."""
    prefix = f"{schema[:40]} "
    await empty_conn.execute(roles_sql(schema, prefix=prefix))
    await migrate(empty_conn, schema)
    await empty_conn.execute(roles_sql(schema, prefix=prefix))
    yield prefix
    for role in ROLES:
        await empty_conn.execute(f"drop owned by {quote_identifier(prefix + role)} cascade")
        await empty_conn.execute(f"drop role {quote_identifier(prefix + role)}")


def as_role(dsn: str, role: str) -> str:
    """Return *dsn* for sessions in which *role* acts."""
    return f"{dsn}{'&' if '?' in dsn else '?'}role={quote(role)}"


async def test_it_prints_the_script_and_needs_no_database(schema: str, run: Run) -> None:
    """What a DBA gets is what the tests run."""
    ended = await run("roles", "--schema", schema, "--prefix", "shop_", JOBQ_DSN=None)

    assert ended == (0, roles_sql(schema, prefix="shop_"), "")


async def test_a_bad_prefix_is_wrong_configuration(call: Call) -> None:
    """With the value, and nothing on stdout that psql would run."""
    ended = await call("roles", "--prefix", "pg_")

    assert (ended.code, ended.out) == (78, "")
    assert "'pg_'" in ended.err


async def test_a_worker_of_the_role_worker_does_all_that_a_worker_does(
    prefix: str, dsn: str, schema: str, rows: Rows
) -> None:
    """Jobs finish, are retried, die and enqueue others; it beats, reaps and tidies up, and no loop crashes."""
    ran: list[str] = []

    async with Queue(as_role(dsn, prefix + "worker"), schema=schema) as queue:

        @queue.task(kind="flaky", backoff=Backoff(base_s=0.001, cap_s=0.001))
        async def flaky() -> None:
            ran.append("flaky")
            if ran.count("flaky") == 1:
                raise TimeoutError
            await queue.enqueue(hopeless.bind(), idempotency_key="once")

        @queue.task(kind="hopeless")
        async def hopeless() -> None:
            ran.append("hopeless")
            raise Permanent("no")

        await queue.enqueue(flaky.bind())
        worker = Worker(queue, WorkerSettings(poll_s=0.05, upkeep_s=0.05, tally_s=0.05, sweep_s=0.01))
        code = await worker.run(until_empty=True)

    assert code is ExitCode.DRAINED
    assert ran == ["flaky", "flaky", "hopeless"]
    assert (await rows.count("done"), await rows.count("dead_letter"), await rows.count("job")) == (1, 1, 0)


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("producer", {"enqueue"}),
        ("worker", {"enqueue"}),
        ("reader", {"stats", "explain", "jobs", "jobs ID", "dead list", "dead show"}),
        (
            "operator",
            {"enqueue", "stats", "explain", "jobs", "jobs ID", "dead list", "dead show", "dead redrive", "dead delete"},
        ),
    ],
)
async def test_a_role_can_run_its_commands_and_no_others(
    role: str, allowed: set[str], prefix: str, dsn: str, rows: Rows, call: Call
) -> None:
    """A command that the role may not run fails with 1, names the right that is missing, and changes nothing."""
    letters = [await rows.dead(), await rows.dead()]
    commands = {
        "enqueue": ("enqueue", "send_receipt", "{}"),
        "stats": ("stats",),
        "explain": ("explain", await rows.scheduled()),
        "jobs": ("jobs",),
        "jobs ID": ("jobs", await rows.waiting()),
        "dead list": ("dead", "list"),
        "dead show": ("dead", "show", letters[0]),
        "dead redrive": ("dead", "redrive", letters[0]),
        "dead delete": ("dead", "delete", letters[1]),
        "migrate --history": ("migrate", "--history", "7d"),
    }

    ended = {name: await call(*words, "--dsn", as_role(dsn, prefix + role)) for name, words in commands.items()}

    assert {name for name, one in ended.items() if one.code == 0} == allowed
    assert [one for one in ended.values() if one.code and not (one.code == 1 and "permission denied" in one.err)] == []
    assert await rows.count("dead_letter") == (0 if role == "operator" else 2)


async def test_the_owner_migrates(prefix: str, dsn: str, call: Call) -> None:
    """And sets how long the history is kept."""
    ended = await call("migrate", "--history", "7d", "--dsn", as_role(dsn, prefix + "owner"))

    assert ended.code == 0, ended.err
