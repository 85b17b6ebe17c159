"""A command that waits for somebody else's lock says so, and how to find out whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import asyncpg

from tests.cli.conftest import Start

if TYPE_CHECKING:
    from tests.conftest import Conn


async def test_a_command_that_waits_for_a_lock_says_whose_to_look_for(
    conn: Conn, dsn: str, schema: str, sql: Callable[[str], str], start: Start
) -> None:
    """It goes on waiting, and ends as ever once the lock is gone. The question that it tells names the session."""
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(sql("lock table @schema@.job in access exclusive mode"))
    holder = conn.get_server_pid()

    stats = await start("stats", "--schema", schema)
    await stats.says("not done after 5 s")
    asking = await asyncpg.connect(dsn)
    named = await asking.fetchval("select" + stats.err.partition(" says: select")[2])
    await asking.close()
    await transaction.rollback()
    ended = await stats.ends()

    assert named == [holder]
    assert (ended.code, "0 workers are alive." in ended.out) == (0, True)
