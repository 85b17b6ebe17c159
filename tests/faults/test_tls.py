"""TLS as the DSN demands it, on every connection, or no connection; with the cause, and not a word in clear text."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from jobq import AccessRefusedError, Queue
from jobq.db.connect import Ear
from jobq.db.migrate import migrate
from jobq.db.statements import load_statements
from jobq.settings import WorkerSettings
from jobq.telemetry.events import DatabaseAway, DatabaseBack, WorkerStarted
from jobq.worker.supervisor import ExitCode, Worker
from tests.faults.tls import PASSWORD, REQUEST_FOR_TLS, Authority, Eavesdropper, TlsServer, tls_server
from tests.worker.observe import Events, eventually

REPOSITORY = Path(__file__).parents[2]
SERVER = "hostssl all all all scram-sha-256 clientcert=verify-full"
ROLES = ("claims", "settling", "upkeep", "listener", "heartbeat", "handlers")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of the server's certificate."""
    return Authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another authority."""
    return Authority(tmp_path_factory.mktemp("tls"), "another")


@pytest.fixture(scope="module")
def client(authority: Authority) -> dict[str, Path]:
    """The certificate of the user `app`."""
    certificate, key = authority.issue("app@example.org", common_name="app")
    return {"sslcert": certificate, "sslkey": key}


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[TlsServer]:
    """A server that wants TLS, a password and a certificate of its client."""
    with tls_server(authority, access=SERVER) as server:
        yield server


@pytest.fixture(scope="module")
def without_tls() -> Iterator[TlsServer]:
    """A server that has no TLS."""
    with tls_server(None, access="host all all all scram-sha-256") as server:
        yield server


@pytest.fixture
def seen() -> Events:
    """What the test's workers say."""
    return Events()


@pytest.fixture
def good(server: TlsServer, authority: Authority, client: dict[str, Path]) -> str:
    """The DSN that the server is content with, and is content with the server."""
    return server.dsn(sslmode="verify-full", sslrootcert=authority.root, **client)


@pytest.fixture
async def installed(good: str) -> str:
    """The same, with jobq installed."""
    conn = await asyncpg.connect(good)
    await migrate(conn, "jobq")
    await conn.close()
    return good


@pytest.fixture
def refused(
    server: TlsServer, without_tls: TlsServer, authority: Authority, stranger: Authority, client: dict[str, Path]
) -> dict[str, tuple[str, str]]:
    """DSNs that must not lead to a connection, each with the words that name its cause."""
    root = authority.root
    not_ours = dict(zip(("sslcert", "sslkey"), stranger.issue("x@example.org", common_name="app"), strict=True))
    # From 1.3 on the refusal comes when the connection is made, and may be lost with it: then it looks like an outage.
    not_ours_said: dict[str, str | Path] = {**not_ours, "ssl_max_protocol_version": "TLSv1.2"}
    no_file = {**client, "sslkey": root.with_name("no.key")}
    return {
        "a server without TLS": (without_tls.dsn(sslmode="require"), "rejected SSL upgrade"),
        "verified, without TLS": (without_tls.dsn(sslmode="verify-full", sslrootcert=root), "rejected SSL upgrade"),
        "another authority": (
            server.dsn(sslmode="verify-full", sslrootcert=stranger.root, **client),
            "certificate verify failed",
        ),
        "another authority, any host": (
            server.dsn(sslmode="verify-ca", sslrootcert=stranger.root, **client),
            "certificate verify failed",
        ),
        "another host": (server.dsn("127.0.0.1", sslmode="verify-full", sslrootcert=root, **client), "127.0.0.1"),
        "no such file": (server.dsn(sslmode="verify-full", sslrootcert=root.with_name("no.crt")), "sslrootcert="),
        "no such key": (server.dsn(sslmode="verify-full", sslrootcert=root, **no_file), "sslkey="),
        "a file of something else": (server.dsn(sslmode="verify-full", sslrootcert=Path(__file__)), "certificate"),
        "no certificate of ours": (server.dsn(sslmode="verify-full", sslrootcert=root), "certificate"),
        "a certificate of nobody's": (server.dsn(sslmode="verify-full", sslrootcert=root, **not_ours_said), "alert"),
        "an impossible mode": (server.dsn(sslmode="strict"), "verify-full"),
        "no TLS where it is demanded": (server.dsn(sslmode="disable"), "no encryption"),
    }


async def noop() -> None:
    """Do nothing."""


def jobq(dsn: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "jobq.cli.main", *words],
        env={**os.environ, "JOBQ_DSN": dsn, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=50,
    )


ACTIVITY = """
select a.application_name, s.ssl, s.client_dn
from pg_stat_activity a
join pg_stat_ssl s using (pid)
where a.application_name like 'jobq %'
"""


async def test_every_connection_of_a_worker_is_encrypted(installed: str, seen: Events) -> None:
    """Its own five, the listener's among them, and the handlers' pool; and the command line connects as well."""
    admin: Any = await asyncpg.connect(installed)
    async with Queue(installed) as queue:
        handler = queue.task(kind="noop")(noop)
        worker = Worker(queue, WorkerSettings(poll_s=0.05, upkeep_s=0.05), emit=seen.emit)
        running = asyncio.create_task(worker.run())
        await seen(WorkerStarted)
        await queue.enqueue(handler.bind())
        connections = await eventually(
            lambda: admin.fetch(ACTIVITY), lambda found: {row[0] for row in found} >= {f"jobq {one}" for one in ROLES}
        )
        worker.stop()
        assert await running is ExitCode.DRAINED
    await admin.close()

    stats = await asyncio.to_thread(jobq, installed, "stats")

    assert {row["ssl"] for row in connections} == {True}
    assert {row["client_dn"] for row in connections} == {connections[0]["client_dn"]}
    assert "/CN=app" in connections[0]["client_dn"]
    assert (stats.returncode, stats.stderr) == (0, "")


async def test_what_cannot_be_had_is_refused_with_its_cause(refused: dict[str, tuple[str, str]]) -> None:
    """78 at once: nothing is retried until somebody has corrected it; and the password is not told."""
    said = {}
    for name, (dsn, _) in refused.items():
        ended = await asyncio.to_thread(jobq, dsn, "migrate")
        said[name] = (ended.returncode, ended.stdout, ended.stderr)

    assert {name: one[0] for name, one in said.items()} == dict.fromkeys(refused, 78), said
    assert {name: one[2] for name, one in said.items() if refused[name][1] not in one[2]} == {}
    assert [name for name, one in said.items() if PASSWORD in one[1] + one[2] or len(one[2].splitlines()) > 1] == []


async def test_a_worker_does_not_wait_for_a_server_that_will_not_do(refused: dict[str, tuple[str, str]]) -> None:
    """It ends before its start limit, with the same error."""
    for name in ("a server without TLS", "another host", "no such key"):
        async with Queue(refused[name][0]) as queue:
            queue.task(kind="noop")(noop)
            with pytest.raises(AccessRefusedError, match=refused[name][1]):
                await Worker(queue, WorkerSettings(start_limit_s=3600)).run()


async def test_the_pool_and_the_listener_refuse_it_too(refused: dict[str, tuple[str, str]], schema: str) -> None:
    """An enqueue without a connection of its own, and the ear."""
    for name in ("a server without TLS", "another authority", "another host"):
        dsn, cause = refused[name]
        async with Queue(dsn) as queue:
            with pytest.raises(AccessRefusedError, match=cause):
                await queue.enqueue("k", {}, queue="default")
        with pytest.raises(AccessRefusedError, match=cause):
            async with Ear(dsn, "jobq", load_statements("jobq")["listening_channels"]).listen(lambda _: None):
                pass


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_nothing_is_said_in_clear_text(mode: str, authority: Authority) -> None:
    """To a server without TLS goes the question for it, and nothing after its no."""
    eavesdropper = Eavesdropper()
    listening = await asyncio.start_server(eavesdropper.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    dsn = f"postgresql://app:{PASSWORD}@localhost:{port}/postgres?sslmode={mode}&sslrootcert={authority.root}"

    async with listening, Queue(dsn) as queue:
        queue.task(kind="noop")(noop)
        with pytest.raises(AccessRefusedError):
            await queue.enqueue("k", {}, queue="default")
        with pytest.raises(AccessRefusedError):
            await Worker(queue, WorkerSettings()).run()
        await asyncio.to_thread(jobq, dsn, "stats")

    assert set(eavesdropper.heard) == {REQUEST_FOR_TLS}
    assert len(eavesdropper.heard) >= 3


async def test_a_certificate_that_goes_bad_is_an_outage(
    installed: str, server: TlsServer, authority: Authority, stranger: Authority, seen: Events
) -> None:
    """A worker that runs names the cause, tries on, and is back when the certificate is."""
    async with Queue(installed) as queue:
        queue.task(kind="noop")(noop)
        admin: Any = await asyncpg.connect(installed)
        worker = Worker(queue, WorkerSettings(poll_s=0.05), emit=seen.emit)
        running = asyncio.create_task(worker.run())
        await seen(WorkerStarted)
        try:
            server.present(*stranger.issue("localhost"))
            await admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'jobq %'"
            )
            await seen(DatabaseAway)
        finally:
            server.present(*authority.issue("localhost"))
        await seen(DatabaseBack)
        worker.stop()
        code = await running
        await admin.close()

    assert code is ExitCode.DRAINED
