"""Who started the server stops it, whatever it dies of, and nobody else keeps it running."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jobq.embedded import guardian, start
from tests.embedded.conftest import Actor
from tests.embedded.observe import answer, guardian_of, is_gone, mark_of, postmaster_of, processes, wait_until


def test_a_killed_owner_takes_the_server_along(used: Path, actor: Callable[..., Actor]) -> None:
    """The server is gone soon after a SIGKILL of who started it, and the next start works."""
    owner = actor(used)
    dsn = owner.says()["dsn"]
    answer(dsn, "create table if not exists survived (value int)")
    answer(dsn, "insert into survived values (1)")

    owner.kill()

    wait_until(lambda: is_gone(used), limit_s=5)
    with start(used) as server:
        assert not server.joined
        assert answer(server.dsn, "select count(*) > 0 from survived")


def test_an_owner_that_just_exits_takes_the_server_along(used: Path, actor: Callable[..., Actor]) -> None:
    """No `stop()` is needed: the end of the process is one."""
    owner = actor(used, "exit")
    owner.says()

    exit_code = owner.end()

    assert exit_code == 0
    wait_until(lambda: is_gone(used), limit_s=5)


def test_a_start_right_after_the_owners_death_is_a_new_server(used: Path, actor: Callable[..., Actor]) -> None:
    """Nobody joins a server whose owner is dead, even while it still runs."""
    owner = actor(used)
    owner.says()
    mark, its_guardian = mark_of(used), guardian_of(used)
    os.kill(its_guardian, signal.SIGSTOP)  # it has not noticed yet

    owner.kill()
    with start(used) as server:
        assert not server.joined
        assert answer(server.dsn, "select 1") == 1
        assert processes(mark) == [its_guardian]

        os.kill(its_guardian, signal.SIGCONT)
        wait_until(lambda: processes(mark) == [], limit_s=5)
        assert answer(server.dsn, "select 1") == 1


def test_a_forked_child_does_not_own_the_server(used: Path, actor: Callable[..., Actor]) -> None:
    """A child can neither stop the server nor keep it running after the death of who started it."""
    owner = actor(used, "fork")
    said = owner.says()
    assert answer(said["dsn"], "select 1") == 1  # after the child's stop()

    owner.kill()

    try:
        wait_until(lambda: is_gone(used), limit_s=5)
        os.kill(said["child"], 0)
    finally:
        os.kill(said["child"], signal.SIGKILL)


def test_a_killed_guardian_leaves_no_server(used: Path) -> None:
    """A server whose guardian was killed ends too, a start finds that, and the old owner's stop touches nothing new."""
    first = start(used)

    os.kill(guardian_of(used), signal.SIGKILL)

    wait_until(lambda: is_gone(used), limit_s=5)
    with start(used) as second:
        assert not second.joined
        first.stop()
        assert answer(second.dsn, "select 1") == 1


def test_a_stop_after_the_guardian_was_killed_waits_for_the_server(used: Path) -> None:
    """`stop()` means that the server is gone, with a guardian or without."""
    server = start(used)

    os.kill(guardian_of(used), signal.SIGKILL)
    server.stop()

    assert is_gone(used)


def test_a_server_that_does_not_obey_is_ended_harder(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop whose limit passes is followed by the next signal, the last of which nothing survives."""
    monkeypatch.setattr(guardian, "STOP_STEPS", ((signal.SIGINT, 0.1), (signal.SIGQUIT, 0.1), (signal.SIGKILL, 10.0)))
    server = start(used)
    os.kill(postmaster_of(used), signal.SIGSTOP)

    ended = guardian.end_server(mark_of(used))

    assert ended
    server.stop()
    assert is_gone(used)
