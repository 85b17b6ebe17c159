"""A server that a benchmark may stop in the middle of everything and start again, at an address that stays."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from benchmarks.database import SETTINGS
from jobq.embedded import start
from jobq.embedded.cluster import read_postmaster
from jobq.embedded.layout import lay_out, root_home

SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
"""How to stop, as `pg_ctl stop -m` calls it: sessions are cut off; or that without writing anything."""

PASS_ON_S = 0.1
"""For the postmaster to pass a stop on to its children, before those that hang get to answer anything."""


class RestartableServer:
    """A server with durable settings, thrown away at the end of the block."""

    def __init__(self) -> None:
        self._room = TemporaryDirectory(prefix="jobq-chaos-")
        self._directory = Path(self._room.name).resolve()
        # The server's own socket directory is another one after each start.
        self._socket = self._directory / "socket"
        self.dsn = f"postgresql://postgres@/postgres?host={self._socket}&port=5432"

    def __enter__(self) -> Self:
        self._start()
        return self

    def restart(self, how: str, *, hang_s: float = 0.0) -> None:
        """Stop the server, *fast* or *immediate*, and start it again on the same data. Blocks.

        Before it stops it hangs for *hang_s* seconds: connections neither work nor break.
        """
        postmaster = read_postmaster(lay_out(self._directory).data)
        assert postmaster is not None
        pid = int(postmaster.pid)
        hanging = [pid, *_children(pid)] if hang_s else []
        for one in hanging:
            _send(one, signal.SIGSTOP)
        time.sleep(hang_s)
        os.kill(pid, SIGNALS[how])
        for one in hanging:
            _send(one, signal.SIGCONT)
            if one == pid:
                time.sleep(PASS_ON_S)
        while _is_alive(pid):
            time.sleep(0.01)
        self._server.stop()
        self._start()

    def _start(self) -> None:
        self._server = start(self._directory, settings=SETTINGS)
        (host,) = parse_qs(urlsplit(self._server.dsn).query)["host"]
        link = self._socket.with_suffix(".new")
        link.symlink_to(host)
        link.replace(self._socket)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.stop()
        if os.geteuid() == 0:
            shutil.rmtree(root_home(self._directory), ignore_errors=True)
        self._room.cleanup()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
