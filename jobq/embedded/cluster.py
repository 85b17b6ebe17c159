"""The data directory: made once and whole, checked against the programs, cleared of what a crash left.

`postmaster.pid` in it is PostgreSQL's own account of the server that runs there. A pid says little after a crash, so a
server counts as running if it answers on the socket that the file names.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from jobq.embedded.guardian import end_server, remove_private_directory, remove_socket
from jobq.embedded.layout import Layout, check_data_owner
from jobq.embedded.ownership import Owned
from jobq.embedded.programs import Programs, major_of, run_program
from jobq.errors import EmbeddedServerError


@dataclass(frozen=True)
class Postmaster:
    """What `postmaster.pid` tells: lines 1, 4 with 5, and 8."""

    pid: str
    socket: Path
    status: str  # starting, ready, stopping

    def answers(self) -> bool:
        """Whether somebody listens on the socket, be it to say that the server starts or stops."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)  # it waits when the queue of connections is full
            try:
                probe.connect(str(self.socket))
            except TimeoutError:
                return True
            except OSError:
                return False
        return True


def read_postmaster(data: Path) -> Postmaster | None:
    """Return what `postmaster.pid` tells, or None if there is none or it is not complete yet."""
    try:
        lines = [line.strip() for line in (data / "postmaster.pid").read_text(errors="replace").splitlines()]
        return Postmaster(pid=lines[0], socket=Path(lines[4], f".s.PGSQL.{lines[3]}"), status=lines[7])
    except (FileNotFoundError, IndexError):
        return None


def check_major(layout: Layout, programs: Programs) -> None:
    """Raise `EmbeddedServerError` if the data were made by another major version. Fine if there are no data."""
    try:
        made_by = (layout.data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return
    if major_of(made_by) != programs.major:
        raise EmbeddedServerError(
            f"{layout.data} was made by PostgreSQL {made_by}, and {programs.directory} is {programs.version}: "
            f"give the programs of {made_by} (binaries=), or dump the data with them, or remove {layout.data} to "
            "start with empty data"
        )


def clear_leftovers(layout: Layout, last: Owned | None) -> None:
    """End the processes of an earlier server, and remove its socket, its `postmaster.pid` and an unfinished initdb.

    Only under the start lock, and when the earlier server is not to be joined. What it committed stays.
    """
    if last is not None:
        if not end_server(last.mark):
            raise EmbeddedServerError(f"processes of the last PostgreSQL on {layout.data} cannot be ended: {last.mark}")
        remove_private_directory(last.private_directory)

    if (postmaster := read_postmaster(layout.data)) and postmaster.answers():
        raise EmbeddedServerError(
            f"PostgreSQL runs on {layout.data} (process {postmaster.pid}), and jobq did not start it, or not in sight "
            f"of this process: stop it with `pg_ctl stop -D {layout.data}`"
        )
    # PostgreSQL would take the pid in these files for a running server if another process has it by now. That no
    # process uses the old shared memory it finds out without them.
    (layout.data / "postmaster.pid").unlink(missing_ok=True)
    remove_socket(layout.home)
    for unfinished in layout.home.glob("initdb-*"):
        shutil.rmtree(unfinished, ignore_errors=True)  # an initdb that outlived its caller may still write, and fail


def ensure_data(layout: Layout, programs: Programs) -> None:
    """Make the data directory if there is none. It appears whole or not at all."""
    if layout.data.exists():
        check_data_owner(layout)
        return
    fresh = layout.home / f"initdb-{secrets.token_hex(4)}"
    command = [str(programs.directory / "initdb"), "-D", str(fresh)]
    command += ["--encoding=UTF8", "--locale=C", "--auth=trust", "--username=postgres", "--no-instructions"]
    run_program(command, cwd=layout.home, account=layout.account)
    fresh.rename(layout.data)
    _sync_directory(layout.home)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
