"""Start, join and stop, as they go when nothing fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from jobq.embedded import start
from tests.embedded.conftest import Actor
from tests.embedded.observe import answer, guardian_of, home_of, is_gone, mark_of, open_files, postmaster_of, processes


def test_a_new_directory_gets_a_server_and_keeps_its_data(directory: Path) -> None:
    """What was committed before a stop is there after the next start."""
    with start(directory) as server:
        answer(server.dsn, "create table kept as select 7 as value")
        version = answer(server.dsn, "show server_version")
    with start(str(directory)) as server:
        kept = answer(server.dsn, "select value from kept")

    assert kept == 7
    assert server.version == version
    assert not server.joined


def test_a_stop_leaves_no_process_and_no_socket(used: Path) -> None:
    """After a stop neither server nor guardian runs, and nobody can connect."""
    server = start(used)
    mark = mark_of(used)
    running = processes(mark)

    server.stop()
    server.stop()

    assert len(running) > 2
    assert processes(mark) == []
    assert not list(home_of(used).glob(".s.PGSQL*"))
    with pytest.raises(OSError, match="No such file"):
        answer(server.dsn, "select 1")


def test_the_server_listens_on_its_socket_only(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a setting nor the caller's environment makes it listen elsewhere or hides it."""
    monkeypatch.setenv("PGPORT", "6000")

    with start(used, settings={"listen_addresses": "127.0.0.1", "port": "6001"}) as server:
        listens = answer(server.dsn, "select current_setting('listen_addresses') || current_setting('port')")

    assert listens == "5432"


def test_settings_are_those_of_who_starts(used: Path) -> None:
    """A setting given at the start holds, and whoever joins does not change it."""
    with start(used, settings={"work_mem": "5MB"}) as server, start(used, settings={"work_mem": "6MB"}) as joined:
        values = [answer(each.dsn, "show work_mem") for each in (server, joined)]
        durable = answer(server.dsn, "show fsync")
        connections = answer(server.dsn, "show max_connections")

    assert values == ["5MB", "5MB"]
    assert durable == "on"
    assert connections == "200"


def test_the_same_process_joins_its_own_server(used: Path) -> None:
    """A second start in the process joins, and its stop stops nothing."""
    with start(used) as server:
        with start(used) as joined:
            pass

        assert joined.joined
        assert joined.dsn == server.dsn
        assert joined.version == server.version
        assert answer(server.dsn, "select 1") == 1


def test_a_second_process_joins_and_does_not_stop(used: Path, actor: Callable[..., Actor]) -> None:
    """A process that finds the server running joins it, and its end leaves it running."""
    with start(used) as server:
        second = actor(used)
        said = second.says()
        second.end()

        assert said["joined"]
        assert said["dsn"] == server.dsn
        assert answer(server.dsn, "select 1") == 1


def test_of_concurrent_starters_one_starts(directory: Path, actor: Callable[..., Actor]) -> None:
    """Of processes that start at once in a new directory one starts the server, and the others join it."""
    starters = [actor(directory) for _ in range(3)]

    said = [each.says() for each in starters]

    assert sorted(each["joined"] for each in said) == [False, True, True]
    assert {answer(each["dsn"], "select 1") for each in said} == {1}


def test_a_stop_meant_for_the_caller_does_not_reach_the_server(used: Path) -> None:
    """Signals of the caller's terminal or service manager neither end the guardian nor its server."""
    with start(used) as server:
        guardian, postmaster = guardian_of(used), postmaster_of(used)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guardian, number)

        assert os.getsid(guardian) == guardian != os.getsid(0)
        assert answer(server.dsn, "select 1") == 1
        assert (guardian_of(used), postmaster_of(used)) == (guardian, postmaster)


def test_the_server_holds_no_output_of_the_caller(used: Path, actor: Callable[..., Actor]) -> None:
    """Whoever reads the caller's output to its end, as in `cmd | tee`, does not wait for the server."""
    caller = actor(used)
    caller.says()

    output = os.readlink(f"/proc/{caller.process.pid}/fd/1")
    held = {file for pid in processes(mark_of(used)) for file in open_files(pid)}

    assert "/dev/null" in held
    assert output not in held
    caller.end()


async def test_a_stop_ends_connections(used: Path) -> None:
    """A stop does not wait for clients to leave."""
    server = start(used)
    connection = await asyncpg.connect(server.dsn)

    server.stop()

    assert is_gone(used)
    with pytest.raises((asyncpg.PostgresError, OSError, asyncpg.InterfaceError)):
        await connection.execute("select 1")
    connection.terminate()
