"""What a crash leaves does not keep the next start from working, nor lose what was committed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg

from jobq.embedded import start
from tests.embedded.conftest import Actor
from tests.embedded.observe import (
    answer,
    ask,
    guardian_of,
    home_of,
    is_gone,
    kill_and_wait,
    mark_of,
    postmaster_of,
    processes,
    server_account,
    wait_until,
)


def test_a_killed_postmaster_is_replaced(used: Path) -> None:
    """After a SIGKILL of the postmaster the next start recovers what was committed, even beside the old owner."""
    first = start(used)
    answer(first.dsn, "drop table if exists committed")
    answer(first.dsn, "create table committed as select 7 as value")

    kill_and_wait(postmaster_of(used))

    with start(used) as second:
        assert not second.joined
        assert answer(second.dsn, "select value from committed") == 7
        first.stop()
        assert answer(second.dsn, "select 1") == 1


@contextlib.asynccontextmanager
async def busy_backend(dsn: str) -> AsyncIterator[int]:
    """Give the pid of a backend that never waits, and so does not notice the death of its postmaster."""
    connection = await asyncpg.connect(dsn)
    backend = await connection.fetchval("select pg_backend_pid()")
    busy = asyncio.create_task(connection.execute("do $$ begin loop end loop; end $$"))
    while await ask(dsn, f"select state from pg_stat_activity where pid = {backend}") != "active":
        pass
    yield backend
    with contextlib.suppress(asyncpg.PostgresError, OSError):
        await busy
    connection.terminate()


async def test_a_busy_orphan_is_ended_by_the_next_start(used: Path) -> None:
    """A backend that outlives postmaster and guardian, and so keeps the shared memory, does not prevent a start."""
    server = start(used)
    mark, guardian = mark_of(used), guardian_of(used)

    async with busy_backend(server.dsn) as backend:
        os.kill(guardian, signal.SIGSTOP)  # or it would clear up itself
        kill_and_wait(postmaster_of(used))
        kill_and_wait(guardian)
        assert backend in processes(mark)
        with start(used) as second:
            assert processes(mark) == []
            assert await ask(second.dsn, "select 1") == 1

    server.stop()


async def test_a_guardian_ends_the_orphans_of_a_killed_postmaster(used: Path) -> None:
    """No child of the server is left when its postmaster was killed, even if nobody starts again."""
    server = start(used)

    async with busy_backend(server.dsn):
        kill_and_wait(postmaster_of(used))

        wait_until(lambda: is_gone(used), limit_s=5)
    server.stop()


def test_a_pid_file_whose_pid_is_anothers_now_does_not_count(used: Path) -> None:
    """After a reboot, the pid in the files of the last server may be that of any process of the same user."""
    with start(used):
        data = home_of(used) / "data"
        left = {path: path.read_bytes() for path in (data / "postmaster.pid", home_of(used) / ".s.PGSQL.5432.lock")}
        postmaster = str(postmaster_of(used)).encode()
    uid, gid = server_account(used)
    with subprocess.Popen(["sleep", "60"], user=uid, group=gid, extra_groups=None if os.getuid() else []) as other:
        for path, content in left.items():
            path.write_bytes(content.replace(postmaster, str(other.pid).encode()))
            os.chown(path, uid, gid)

        with start(used) as server:
            alive = other.poll() is None

            assert answer(server.dsn, "select 1") == 1
        other.kill()

    assert alive


def test_an_unfinished_initdb_is_begun_anew(directory: Path, actor: Callable[..., Actor]) -> None:
    """A start that is killed in the middle of initdb leaves no half data directory for the next."""
    first = actor(directory)
    wait_until(lambda: bool(list(home_of(directory).glob("initdb-*/base"))))

    first.kill()
    with start(directory) as server:
        assert answer(server.dsn, "select 1") == 1

    assert not list(home_of(directory).glob("initdb-*"))


def test_a_start_killed_before_the_server_is_ready_is_cleared(used: Path, actor: Callable[..., Actor]) -> None:
    """Between the death of a starter and its guardian's knowing of it, nobody starts a second server on the data."""
    mark = mark_of(used)
    first = actor(used)
    wait_until(lambda: mark_of(used) != mark)

    first.kill()
    with start(used) as server:
        assert not server.joined
        assert answer(server.dsn, "select 1") == 1
