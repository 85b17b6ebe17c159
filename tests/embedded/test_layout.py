"""Where the files lie and whose they are, for an ordinary user and for root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jobq.embedded import start
from jobq.embedded.layout import ROOT_BASE, root_home
from jobq.errors import EmbeddedServerError
from tests.embedded.observe import answer, home_of, mode_of


def ownership_of(paths: list[Path]) -> list[tuple[int, int, int]]:
    """Return what must not change of directories that are not ours."""
    return [(found.st_mode, found.st_uid, found.st_gid) for found in (path.lstat() for path in paths)]


def test_only_the_caller_and_the_server_may_enter(directory: Path) -> None:
    """State and data are of mode 700, and no directory above them changes its owner or mode."""
    above = [directory, *directory.parents, *ROOT_BASE.parents]
    before = ownership_of(above)

    with start(directory):
        state, home = directory / ".jobq", home_of(directory)

        assert [mode_of(path) for path in (state, home, home / "data")] == ["drwx------"] * 3
        assert state.stat().st_uid == os.geteuid()
        assert (state / ".gitignore").read_text() == "*\n"
    assert ownership_of(above) == before


def files_of_root(directory: Path) -> None:
    """Check the places of a server that root started."""
    state, home = directory / ".jobq", home_of(directory)
    copies = [path for path in ROOT_BASE.glob("postgresql-*/**/*") if not path.is_symlink()]

    assert (state / "location").read_text() == f"{home}\n"
    assert home.parent == ROOT_BASE
    assert {path.owner() for path in (home, *home.rglob("*"))} == {"nobody"}
    assert {path.owner() for path in (state, *state.rglob("*"), ROOT_BASE, *copies)} == {"root"}
    assert {mode_of(path)[-3:] for path in (ROOT_BASE, *copies)} == {"r-x", "r--"}


def files_of_a_user(directory: Path) -> None:
    """Check the places of a server that an ordinary user started."""
    state = directory / ".jobq"

    assert not (state / "location").exists()
    assert (state / "data" / "PG_VERSION").exists()
    assert {path.stat().st_uid for path in (state, *state.rglob("*"))} == {os.getuid()}


def test_the_files_belong_to_who_writes_them(used: Path) -> None:
    """Root keeps data and socket of nobody apart from its own; an ordinary user has all in one place."""
    with start(used):
        files_of_root(used) if os.geteuid() == 0 else files_of_a_user(used)


def test_two_names_of_a_directory_are_one_server(used: Path, tmp_path: Path) -> None:
    """A symbolic link or a relative path leads to the server of the directory."""
    link = tmp_path / "link"
    link.symlink_to(used)

    with start(used) as server, start(os.path.relpath(link)) as joined:
        assert joined.joined
        assert joined.dsn == server.dsn


def test_a_copied_directory_does_not_start_with_empty_data(used: Path, directory: Path) -> None:
    """The data of an ordinary user come along with the directory; root, whose data do not, is told where they are."""
    with start(used) as server:
        answer(server.dsn, "create table if not exists copied ()")
    shutil.copytree(used / ".jobq", directory / ".jobq")

    if os.geteuid() == 0:
        earlier, home = root_home(used), root_home(directory)
        with pytest.raises(EmbeddedServerError, match=f"names {earlier}, .* belong in {home}: .*`mv {earlier} {home}`"):
            start(directory)
    else:
        with start(directory) as copy:
            assert answer(copy.dsn, "select count(*) from copied") == 0
