"""Where the files of an embedded server lie, whose they are, and which account runs it.

For an ordinary user everything is in `.jobq/` of the directory. PostgreSQL refuses to run as root, so under root the
server runs as `nobody`: what `nobody` writes is in `/var/lib/jobq/<hash of the directory>`, what root writes stays in
`.jobq/`, and `.jobq/location` names the other place. Nothing that was not made here changes its owner or mode.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from jobq.embedded.guardian import SOCKET_NAME
from jobq.errors import EmbeddedServerError

ROOT_BASE = Path("/var/lib/jobq")

# sockaddr_un.sun_path less its closing NUL (unix(7); macOS has four bytes less).
SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107


@dataclass(frozen=True)
class Account:
    """Whom the server runs as when that is not the caller."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Layout:
    """*state* is `.jobq/`, written by the caller; *home* has the data and the socket, written by the server.

    *account* is None where the caller runs the server itself; then *state* and *home* are one.
    """

    state: Path
    home: Path
    account: Account | None

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.state / "postgresql.log"


def lay_out(directory: Path) -> Layout:
    """Make the directories of a server for *directory*, or check those that are there.

    Raises `EmbeddedServerError` if they belong to another user, or to a server that another kind of user started.
    """
    state = directory / ".jobq"
    state.mkdir(mode=0o700, exist_ok=True)
    owner, caller = state.lstat().st_uid, os.geteuid()
    if owner != caller:
        raise EmbeddedServerError(
            f"{state} belongs to {_name(owner)}, who started PostgreSQL here first, and this is {_name(caller)}: "
            f"run as {_name(owner)}, or give another directory"
        )
    (state / ".gitignore").write_text("*\n")
    return _root_layout(directory, state) if caller == 0 else _user_layout(state)


def make_private_directory() -> Path:
    """Make a short directory for a socket, of mode 700 and the caller's."""
    return Path(tempfile.mkdtemp(prefix="jobq-", dir="/tmp"))


def needs_private_directory(home: Path) -> bool:
    """Whether a socket in *home* could not be reached: its path is too long, or cannot stand in a list of hosts."""
    path = str(home / SOCKET_NAME)
    return len(os.fsencode(path)) > SOCKET_PATH_LIMIT or "," in path or not path.isprintable()


def root_home(directory: Path) -> Path:
    """Return where root's server for *directory*, an absolute path, has its data."""
    return ROOT_BASE / hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]


def check_data_owner(layout: Layout) -> None:
    """Raise `EmbeddedServerError` if the data directory belongs to somebody whom the server does not run as."""
    owner = layout.data.stat().st_uid
    runs_as = layout.account.uid if layout.account else os.geteuid()
    if owner != runs_as:
        raise EmbeddedServerError(
            f"{layout.data} belongs to {_name(owner)}, but PostgreSQL runs as {_name(runs_as)} here: "
            f"run as {_name(owner)}, give another directory, or remove this one to start with empty data"
        )


def _make_public_directory(path: Path) -> None:
    """Make a directory that all may read and only root may change, or check that it is one."""
    try:
        path.mkdir(mode=0o755)
        path.chmod(0o755)  # whatever the umask is
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
            raise EmbeddedServerError(
                f"{path} must be a directory of root that nobody else can write, and is {stat.filemode(found.st_mode)} "
                f"of {_name(found.st_uid)}: correct or remove it"
            ) from None


def _user_layout(state: Path) -> Layout:
    location = state / "location"
    if location.exists():
        raise EmbeddedServerError(
            f"PostgreSQL was first started as root in {state.parent}, its data are in {location.read_text().strip()}: "
            f"run as root, or give another directory, or remove {state} to start with empty data"
        )
    return Layout(state, state, None)


def _root_layout(directory: Path, state: Path) -> Layout:
    if (state / "data").exists():
        raise EmbeddedServerError(
            f"PostgreSQL was first started as an ordinary user in {directory}, and this is root: "
            f"run as that user, or give another directory, or remove {state} to start with empty data"
        )
    account = _nobody()
    _make_public_directory(ROOT_BASE)
    home = root_home(directory)
    _check_location(state / "location", home)
    home.mkdir(mode=0o700, exist_ok=True)
    owner = home.lstat().st_uid
    if owner == 0:  # just made; only root can make something in ROOT_BASE
        os.chown(home, account.uid, account.gid, follow_symlinks=False)
    elif owner != account.uid:
        raise EmbeddedServerError(f"{home} belongs to {_name(owner)} instead of {account.name}: correct or remove it")
    _write_whole(state / "location", f"{home}\n")
    return Layout(state, home, account)


def _write_whole(path: Path, text: str) -> None:
    """Write a file that another process, which starts at the same time, may read."""
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(path)


def _check_location(location: Path, home: Path) -> None:
    """Refuse to start with empty data in a directory that was moved or copied while its data stayed where they are."""
    earlier = Path(location.read_text().strip()) if location.exists() else home
    if earlier != home and earlier.parent == ROOT_BASE and earlier.exists():
        raise EmbeddedServerError(
            f"{location} names {earlier}, but the data of this directory belong in {home}: it was moved or copied; "
            f"`mv {earlier} {home}` takes the data along, removing {location} starts with empty data"
        )


def _nobody() -> Account:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedServerError(
            "PostgreSQL cannot run as root, and there is no user `nobody` to run it as: run as an ordinary user"
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
