"""How a server ends: the guardian process, and the end of what an earlier server left behind.

The guardian is the parent of the postmaster. It waits until its standard input, a pipe whose other end only the owner
of the server holds, is closed, by `stop()` or by the kernel. Being the parent, it never signals a recycled pid; and
the kernel stops the postmaster if the guardian itself is killed (Linux). It is run as a script by its path, from any
working directory and without site-packages, so this module imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

SOCKET_NAME = ".s.PGSQL.5432"

# Fast: roll back, write a checkpoint, go. Immediate: go, and recover at the next start; the postmaster itself kills a
# child that does not go within 5 s. The last resort needs no time of its own.
STOP_STEPS = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 8.0), (signal.SIGKILL, 2.0))
STOP_LIMIT_S = 2 * sum(limit_s for _, limit_s in STOP_STEPS)  # the postmaster, then what it left

_PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True)
class Watch:
    """What a guardian is told: which server to start, and what to clear away when it has ended.

    *account* is the uid and gid that the server runs as (None: those of the guardian). *mark* is in the title of each
    process of the server. *private_directory* is the socket's, if one was made for it. *start_lock_fd* is inherited,
    and held until the server is started: nobody else starts one between the death of an owner and that moment.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    account: tuple[int, int] | None
    mark: str
    private_directory: str | None
    start_lock_fd: int

    def dump(self) -> str:
        """Return the watch as the one argument of the guardian's command line."""
        return json.dumps(asdict(self))


def end_server(mark: str) -> bool:
    """End every process of the server *mark*, as gently as each step's limit allows; return whether none is left.

    Children without a postmaster are killed at once: they hold the shared memory, which keeps a new server from
    starting, and whatever they do is rolled back by its recovery. Finds nothing where there is no `/proc`.
    """
    for number, limit_s in STOP_STEPS:
        deadline = time.monotonic() + limit_s
        _send(_marked(mark)[0], number)
        while time.monotonic() < deadline:
            postmasters, children = _marked(mark)
            if not postmasters and not children:
                return True
            if not postmasters:
                _send(children, signal.SIGKILL)
            time.sleep(0.01)
    return False


def remove_socket(directory: Path) -> None:
    """Remove a socket that nobody listens on, and its lock file."""
    for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):
        (directory / name).unlink(missing_ok=True)


def remove_private_directory(directory: str | None) -> None:
    """Remove the directory that was made for a socket. Does nothing if there is none."""
    if directory is not None:
        with contextlib.suppress(FileNotFoundError):
            remove_socket(Path(directory))
            os.rmdir(directory)


def _marked(mark: str) -> tuple[list[int], list[int]]:
    """Return the pids of postmasters and of their children, found by what every user may read: the command line."""
    option, title = f"cluster_name={mark}".encode(), f"postgres: {mark}: ".encode()
    postmasters: list[int] = []
    children: list[int] = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it ended while we looked
                command_line = Path("/proc", entry, "cmdline").read_bytes()
                if command_line.startswith(title):
                    children.append(int(entry))
                elif option in command_line.split(b"\0"):
                    postmasters.append(int(entry))
    return postmasters, children


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _start_server(watch: Watch) -> subprocess.Popen[bytes]:
    guardian = os.getpid()

    def end_with_guardian() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
            if os.getppid() != guardian:
                os._exit(1)

    uid, gid = watch.account or (None, None)
    return subprocess.Popen(
        watch.command,
        stdin=subprocess.DEVNULL,
        env=watch.environment,
        user=uid,
        group=gid,
        extra_groups=None if uid is None else [],
        preexec_fn=end_with_guardian,  # safe here: the guardian has one thread
    )


def _owner_is_gone() -> bool:
    return bool(select.select([0], [], [], 0)[0])


def _guard(watch: Watch) -> None:
    """Start the server, wait for the end of its owner or its own, and leave no process behind."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    # A handler and not SIG_IGN, which the server would inherit. Ctrl-C and `kill` are meant for the owner.
    def stay(number: int, frame: FrameType | None) -> None:
        pass

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, stay)

    if _owner_is_gone():
        return
    server = _start_server(watch)
    os.close(watch.start_lock_fd)

    while server.poll() is None and not _owner_is_gone():
        if woken in select.select([0, woken], [], [])[0]:
            os.read(woken, 4096)

    for number, limit_s in STOP_STEPS:
        server.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(limit_s)
            break
    end_server(watch.mark)


def _main() -> None:
    watch = Watch(**json.loads(sys.argv[1]))
    try:
        _guard(watch)
    finally:
        remove_private_directory(watch.private_directory)


if __name__ == "__main__":
    _main()
