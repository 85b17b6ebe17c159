"""PostgreSQL servers that a test may stop in each way, cut off, copy and promote; each with a directory of its own.

Not the embedded server: that one is always stopped well, and has no replica.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from jobq.embedded.layout import Account
from jobq.embedded.programs import Programs, packaged_programs, programs_in, run_program

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "wal_keep_size": "64MB",
    "wal_sender_timeout": "5s",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "200ms",
}


def server_account() -> Account | None:
    """Whom the servers run as: not root."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_name, nobody.pw_uid, nobody.pw_gid)


def server_programs() -> Programs:
    """The programs of the run's PostgreSQL, `pg_ctl` and `pg_basebackup` among them."""
    pgbin = os.environ.get("JOBQ_TEST_PGBIN")
    return programs_in(Path(pgbin)) if pgbin else packaged_programs(server_account())


def dsn_of(*servers: Server) -> str:
    """Return the DSN of whichever of *servers* can write."""
    hosts = ",".join(quote(str(server.directory), safe="/") for server in servers)
    ports = ",".join("5432" for _ in servers)
    which = "&target_session_attrs=read-write" if len(servers) > 1 else ""
    return f"postgresql://postgres@/postgres?host={hosts}&port={ports}{which}"


class Server:
    """One server; *directory* holds its data, its log and its socket."""

    def __init__(self, directory: Path, programs: Programs) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "log"
        self._programs = programs

    @property
    def dsn(self) -> str:
        """Where it is, at whatever times it runs."""
        return dsn_of(self)

    def make(self, settings: Mapping[str, str]) -> None:
        """Make empty data."""
        self._run("initdb", "-D", str(self.data), "--no-sync", "--auth=trust", "--username=postgres", "--locale=C")
        self._configure(SETTINGS | dict(settings))

    def make_replica_of(self, primary: Server, settings: Mapping[str, str] | None = None) -> None:
        """Copy a running *primary*, to follow it under the name of this directory."""
        follow = f"host={primary.directory} port=5432 user=postgres application_name=replica"
        self._run("pg_basebackup", "-D", str(self.data), "-d", follow, "-R", "-c", "fast", "--no-sync")
        self._configure(settings or {})

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        await asyncio.to_thread(self.start_now)

    def start_now(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k '{self.directory}' -p 5432"
        self._control("start", "--log", str(self.log), "--options", options)

    async def stop(self, mode: str = "fast") -> None:
        """Stop it `smart`, `fast` or `immediate`."""
        await asyncio.to_thread(self._control, "stop", "--mode", mode)

    async def promote(self) -> None:
        """Make a replica the primary, and wait until it is."""
        await asyncio.to_thread(self._control, "promote")

    def cut_power(self) -> None:
        """Kill all of it at once: nothing that was still to be sent is sent."""
        postmaster = self.postmaster
        children = _children(postmaster)
        for pid in (postmaster, *children):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    @property
    def postmaster(self) -> int:
        """The pid of its postmaster."""
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def discard(self) -> None:
        """Stop it, whatever it is at."""
        if not (self.data / "postmaster.pid").exists():
            return
        try:
            self.cut_power()
        except (FileNotFoundError, ProcessLookupError):
            return

    def _configure(self, settings: Mapping[str, str]) -> None:
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _control(self, what: str, *options: str) -> None:
        self._run("pg_ctl", what, "-D", str(self.data), "--wait", "--timeout=30", *options)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs.directory / program), *arguments]
        run_program(command, cwd=self.directory, account=server_account())


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def empty_directory() -> Iterator[Path]:
    """Give a directory whose path leaves room for a socket's name, and that the server may write."""
    with TemporaryDirectory(prefix="jq-", dir="/tmp", ignore_cleanup_errors=True) as name:
        if (account := server_account()) is not None:
            os.chown(name, account.uid, account.gid)
        yield Path(name)


@contextmanager
def a_server(*, directory: Path | None = None, **settings: str) -> Iterator[Server]:
    """Give a running server with empty data, durable unless *settings* say otherwise."""
    with empty_directory() as own:
        server = Server(directory or own, server_programs())
        server.make(settings)
        server.start_now()
        try:
            yield server
        finally:
            server.discard()


@contextmanager
def a_replica(primary: Server) -> Iterator[Server]:
    """Give a running replica of *primary*."""
    with empty_directory() as own:
        replica = Server(own, server_programs())
        replica.make_replica_of(primary)
        replica.start_now()
        try:
            yield replica
        finally:
            replica.discard()
