"""A DSN that names several servers: how it is taken apart, and who is connected to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from jobq.db.connect import Link, connect
from jobq.db.hosts import dsn_of_each_host
from jobq.errors import ConfigurationError
from jobq.settings import WorkerSettings

BEAT_S = WorkerSettings().beat_deadline_s
WRITABLE = "target_session_attrs=read-write"


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name."""
    with TemporaryDirectory(prefix="jq-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
async def silent(directory: Path) -> AsyncIterator[Path]:
    """The directory of a socket that accepts and never answers, like a machine that is gone."""
    over = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_unix_server(say_nothing, directory / ".s.PGSQL.5432")
    yield directory
    over.set()
    server.close()


@pytest.fixture
def host(dsn: str) -> str:
    """Where the server of the run is, as it stands in a DSN."""
    return parse_qs(urlsplit(dsn).query)["host"][0]


@pytest.mark.parametrize(
    ("dsn", "each"),
    [
        ("postgresql://u@one/db", None),
        ("postgresql:///db", None),
        ("postgresql://u:p%40@one:1,two:2/db?sslmode=require", ["u:p%40@one:1/db", "u:p%40@two:2/db"]),
        ("postgresql://u@/db?host=/a,/b&port=1,2", ["u@/db?host=/a&port=1&", "u@/db?host=/b&port=2&"]),
        ("postgresql://u@/db?host=/a,/b&port=7", ["u@/db?host=/a&port=7&", "u@/db?host=/b&port=7&"]),
        ("postgresql://u@[::1]:1,two/db", ["u@[::1]:1/db?", "u@two/db?"]),
        ("postgresql://u@one,two,three/db?port=1,2", None),
    ],
)
def test_each_host_gets_a_dsn_of_its_own(dsn: str, each: list[str] | None) -> None:
    """Order, ports, login and options stay, and what names one host or fits nowhere is left as it is."""
    found = dsn_of_each_host(dsn)

    if each is None:
        assert found == [dsn]
        return
    assert len(found) == len(each)
    assert all(one.startswith(f"postgresql://{start}") for one, start in zip(found, each, strict=True)), found
    assert all(WRITABLE in one for one in found)


def test_what_a_dsn_asks_for_is_not_overruled() -> None:
    """Whoever names an attribute means it."""
    found = dsn_of_each_host("postgresql://u@one,two/db?target_session_attrs=any")

    assert found == [f"postgresql://u@{host}/db?target_session_attrs=any" for host in ("one", "two")]


async def test_a_silent_host_does_not_keep_anybody_from_the_next_one(silent: Path, host: str) -> None:
    """F01: one deadline for all hosts would pass at the first, and the new primary would never be asked."""
    link = Link(f"postgresql://postgres@/postgres?host={silent},{host}&port=5432", role="test", deadline_s=BEAT_S)

    async with link.lend() as conn:
        answer = await conn.fetchval("select 1")

    await link.close()
    assert answer == 1


async def test_a_host_that_takes_no_writes_is_passed_over_unless_it_is_asked_for(directory: Path, host: str) -> None:
    """Of several hosts the one that can be written to is meant; where there is none, that is said."""
    dsn = f"postgresql://postgres@/postgres?host={host},{host}&port=5432&default_transaction_read_only=on"

    with pytest.raises(asyncpg.TargetServerAttributeNotMatched):
        await connect(dsn, role="test")
    conn = await connect(f"{dsn}&target_session_attrs=any", role="test", server_settings={})

    assert await conn.fetchval("select 1") == 1
    await conn.close()


async def test_a_host_that_is_away_counts_for_more_than_one_that_refuses(directory: Path, host: str) -> None:
    """A worker ends when it is refused, and waits when somebody who may let it in is away."""
    both = f"host={host},{directory}&port=5432"

    with pytest.raises(FileNotFoundError):
        await connect(f"postgresql://postgres@/nowhere?{both}", role="test")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await connect(f"postgresql://postgres@/nowhere?host={host},{host}&port=5432", role="test")


async def test_hosts_that_asyncpg_cannot_read_are_a_configuration_error(host: str) -> None:
    """A port that is no number is told as it is, not as a group of errors."""
    with pytest.raises(ConfigurationError, match="the DSN cannot be used"):
        await connect(f"postgresql://postgres@/postgres?host={host},{host}&port=a,b", role="test")
