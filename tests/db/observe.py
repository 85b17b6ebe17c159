"""What a connection is seen to do, wait for a lock or send a statement, and how it is held up for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tests.conftest import Conn

T = TypeVar("T")


class Blocked:
    """Starts what has to wait for a lock, and goes on when the server says that it waits."""

    def __init__(self, observer: Conn) -> None:
        self._observer = observer

    async def __call__(self, conn: Conn, running: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start *running*, which uses *conn*, and return it once *conn* waits for a lock of another transaction."""
        task = asyncio.create_task(running)
        async with asyncio.timeout(10):
            while not await self._observer.fetchval("select pg_blocking_pids($1) <> '{}'", conn.get_server_pid()):
                assert not task.done(), f"nobody was in its way: {task}"
                await asyncio.sleep(0)  # the round trip is the pause
        return task


@contextmanager
def sent_on(conn: Conn) -> Iterator[list[str]]:
    """Collect the statements that are sent on *conn*."""
    sent: list[str] = []

    def note(query: Any) -> None:
        sent.append(query.query)

    with conn.query_logger(note):
        yield sent


HOLD_UP = """
    alter table @schema@.{table} rename to every_{table};
    create function @schema@.hold_up() returns boolean language plpgsql as $$
        begin
            if current_setting('application_name') = 'held up' then perform pg_advisory_xact_lock(7); end if;
            return true;
        end $$;
    create view @schema@.{table} as select * from @schema@.every_{table} where (select @schema@.hold_up());
"""
"""A view in a table's place: a connection named so waits where it reads from it, with its snapshot taken."""


@asynccontextmanager
async def held(conn: Conn) -> AsyncIterator[None]:
    """Hold the lock that `HOLD_UP` waits for."""
    async with conn.transaction():
        await conn.execute("select pg_advisory_xact_lock(7)")
        yield
