"""Who owns a running server: one lock serialises starts, another says that the owner lives.

Both are `flock`s, which the kernel drops with the process that holds them, whatever it dies of. The start lock is held
while a server is looked for, started or joined. The owner file tells about the server, and is locked by its owner
for as long as it wants the server to run; a server without a living owner is a leftover.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from jobq.errors import EmbeddedServerError

_OWNER = "owner"


@dataclass(frozen=True)
class Owned:
    """What the owner of a server writes about it.

    *mark* is in the title of each of its processes and never used twice, *version* is PostgreSQL's, *owner_pid* is
    for people: the lock decides. *private_directory* is the socket's, if it has one of its own.
    """

    mark: str
    version: str
    socket_directory: str
    private_directory: str | None
    owner_pid: int


@contextlib.contextmanager
def start_lock(path: Path, *, limit_s: float) -> Iterator[int]:
    """Hold the lock *path*, and give its descriptor: it stays locked while any process has that one open."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + limit_s
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"another process has held {path} for {limit_s:g} s, so its start of PostgreSQL hangs: "
                    f"find it with `fuser {path}` and end it"
                )
            time.sleep(0.01)
        yield descriptor
    finally:
        os.close(descriptor)


def own(state: Path, owned: Owned) -> int:
    """Write the owner file and lock it; closing the returned descriptor, or dying, gives the server up.

    It is a new file each time, so an earlier owner whose server crashed has no part in it.
    """
    fresh = state / f"{_OWNER}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, json.dumps(asdict(owned)).encode())
        os.replace(fresh, state / _OWNER)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def last_owned(state: Path) -> Owned | None:
    """Return what the last owner wrote, or None if there was none, or if it cannot be understood."""
    try:
        return Owned(**json.loads((state / _OWNER).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def owner_lives(state: Path) -> bool:
    """Whether the last owner still holds its server. Ask under the start lock only: asking takes the lock a moment."""
    try:
        descriptor = os.open(state / _OWNER, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
