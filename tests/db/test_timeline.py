"""Which of several servers was promoted last, and who may know."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from jobq.db.connect import connect
from jobq.db.timeline import Timeline, newest, read_timeline

if TYPE_CHECKING:
    from tests.conftest import Conn

OLD, NEW = Timeline(7, 1), Timeline(7, 2)
ELSEWHERE = Timeline(8, 1)


@pytest.mark.parametrize(
    ("timeline", "other", "is_after"),
    [(NEW, OLD, True), (OLD, NEW, False), (NEW, NEW, False), (NEW, ELSEWHERE, False), (NEW, None, False)],
)
def test_a_timeline_is_after_a_lower_one_of_its_system(timeline: Timeline, other: Timeline, is_after: bool) -> None:
    """An upgraded server begins at 1 again, as another system: nothing follows from its number."""
    assert timeline.is_after(other) is is_after


@pytest.mark.parametrize(
    ("timelines", "position"),
    [
        ([OLD], 0),
        ([OLD, NEW], 1),
        ([NEW, OLD], 0),
        ([OLD, OLD], 0),
        ([None, NEW], 0),
        ([NEW, None], 0),
        ([None, None], 0),
        ([ELSEWHERE, NEW], 0),
        ([OLD, None, NEW], 2),
    ],
)
def test_the_newest_wins_and_the_first_where_nothing_is_known(timelines: list[Timeline | None], position: int) -> None:
    """What does not tell its timeline neither beats another nor is beaten."""
    assert newest(timelines) == position


@pytest.fixture
async def nobody(empty_conn: Conn, dsn: str) -> AsyncIterator[str]:
    """The DSN of a role without any right of its own."""
    name = f"nobody_{os.getpid()}"
    await empty_conn.execute(f"create role {name} login")
    parts = urlsplit(dsn)
    yield urlunsplit(parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}"))
    await empty_conn.execute(f"drop role {name}")


async def test_everybody_may_read_the_timeline(nobody: str) -> None:
    """No role of `jobq roles` needs another right for it."""
    conn = await asyncpg.connect(nobody)

    found = await read_timeline(conn)

    assert found is not None
    assert (found.system > 0, found.number) == (True, 1)
    await conn.close()


async def test_a_server_that_does_not_tell_is_as_good_as_any(nobody: str, empty_conn: Conn) -> None:
    """Some hosted services refuse it; with several hosts that ends no connection."""
    name = f"hosted_{os.getpid()}"
    await empty_conn.execute(f"create database {name}")
    there = urlsplit(nobody)._replace(path=f"/{name}")
    owner = await asyncpg.connect(urlunsplit(there._replace(netloc="postgres@")))
    await owner.execute("revoke execute on function pg_current_wal_lsn() from public")
    await owner.close()
    host = there.query.partition("host=")[2].partition("&")[0]
    twice = urlunsplit(there).replace(f"host={host}", f"host={host},{host}")

    conn = await connect(twice, role="test")

    assert await read_timeline(conn) is None
    assert await conn.fetchval("select 1") == 1
    await conn.close()
    await empty_conn.execute(f"drop database {name} (force)")


async def test_a_dsn_of_one_host_costs_no_question(dsn: str, empty_conn: Conn) -> None:
    """There is nothing to compare it with."""
    conn = await connect(dsn, role="test")

    asked = await empty_conn.fetchval("select query from pg_stat_activity where pid = $1", conn.get_server_pid())

    assert asked == ""
    await conn.close()
