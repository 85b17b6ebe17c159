"""PgBouncer in front of PostgreSQL, in transaction mode, on a Unix socket of its own: the real program.

Its pool is small and each transaction gets another server connection than the last one, so what relies on a session
fails at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

import asyncpg
import pytest

from tests.faults.ledger import until
from tests.faults.proxy import SOCKET_NAME, address_of, with_host

if TYPE_CHECKING:
    from asyncpg import Connection, Record

USER = "nobody"
"""PgBouncer refuses to run as root."""

_CONFIGURATION = """
[databases]
{database} = host={host} port={port} dbname={database} user={user}{password}

[pgbouncer]
pool_mode = transaction
default_pool_size = {size}
server_round_robin = 1
listen_addr =
listen_port = 5432
unix_socket_dir = {directory}
auth_type = trust
auth_file = {directory}/users.txt
admin_users = {user}
server_login_retry = 1
pidfile =
log_connections = 0
log_disconnections = 0
"""


class PgBouncer:
    """PgBouncer in front of the server of *dsn*. Connect to its own `dsn`, inside `async with`."""

    def __init__(self, dsn: str, directory: Path, *, size: int) -> None:
        self.dsn = with_host(dsn, directory)
        self._directory = directory
        self._configuration = directory / "pgbouncer.ini"
        self._process: asyncio.subprocess.Process | None = None
        parts = urlsplit(dsn)
        match address_of(dsn):
            case Path() as socket:
                host, port = str(socket.parent), int(socket.name.rpartition(".")[2])
            case (host, port):
                pass
        user = unquote(parts.username or "postgres")
        password = f" password={unquote(parts.password)}" if parts.password else ""
        self._configuration.write_text(
            _CONFIGURATION.format(
                database=parts.path.strip("/"),
                host=host,
                port=port,
                user=user,
                password=password,
                size=size,
                directory=directory,
            )
        )
        (directory / "users.txt").write_text(f'"{user}" ""\n')

    async def start(self) -> None:
        """Start it, and wait until it lets somebody in."""
        program = _program()
        as_root = os.geteuid() == 0
        if as_root:
            account = pwd.getpwnam(USER)
            for path in (self._directory, *self._directory.iterdir()):
                os.chown(path, account.pw_uid, account.pw_gid)
        with (self._directory / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(program, str(self._configuration)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
                user=USER if as_root else None,
                group=account.pw_gid if as_root else None,
                extra_groups=[] if as_root else None,
            )
        process = self._process
        await until(
            lambda: (self._directory / SOCKET_NAME).is_socket() or process.returncode is not None,
            bool,
            what="PgBouncer",
        )
        if process.returncode is not None:
            pytest.fail(f"PgBouncer has ended:\n{self.log}")

    async def stop(self) -> None:
        """End it at once, with every connection through it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            await self._process.wait()
            self._process = None
        (self._directory / SOCKET_NAME).unlink(missing_ok=True)

    @property
    def log(self) -> str:
        """What it has written."""
        return (self._directory / "log").read_text(errors="replace")

    async def exchange_servers(self) -> None:
        """Close every server connection as soon as its transaction has ended; clients notice nothing."""
        async with self._console() as console:
            await console.execute("RECONNECT")

    async def kill_connections(self) -> None:
        """Drop every client and every server connection, whatever they do, and let them in again."""
        database = urlsplit(self.dsn).path.strip("/")
        async with self._console() as console:
            await console.execute(f"KILL {database}")
            await console.execute(f"RESUME {database}")

    @asynccontextmanager
    async def _console(self) -> AsyncIterator[Connection[Record]]:
        console = await asyncpg.connect(urlsplit(self.dsn)._replace(path="/pgbouncer").geturl())
        try:
            yield console
        finally:
            console.terminate()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
        if error is not None:
            sys.stderr.write(self.log)


def _program() -> str:
    """Return the program, which Debian keeps where only root's PATH leads to."""
    found = shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    if found is None:
        pytest.fail("pgbouncer is not installed: apt-get install --no-install-recommends pgbouncer, or brew install it")
    return found
