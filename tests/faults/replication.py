"""What a test does to a primary and its streaming replica, and who of jobq is connected to either."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection

import pytest

from tests.faults.fleet import RECOVERS_WITHIN_S, SETTINGS
from tests.faults.ledger import LOOK_EVERY_S
from tests.faults.run import connected
from tests.faults.servers import Server

MOVE_S = 30.0
"""In ten seconds the listener asks after its session, and the heartbeat whether another was promoted."""

OF_A_WORKER = ("jobq claims", "jobq settling", "jobq upkeep", "jobq listener", "jobq heartbeat")
"""The connections that each worker always has."""


async def wait_replicated(primary: Server, *, name: str = "replica") -> int:
    """Wait until the replica has all that the primary has written by now. Returns the pid of who sends it."""
    async with connected(primary.dsn) as conn, asyncio.timeout(20):
        written = await conn.fetchval("select pg_current_wal_lsn()::text")
        while not (
            sender := await conn.fetchval(
                "select pid from pg_stat_replication where application_name = $1 and flush_lsn >= $2::text::pg_lsn",
                name,
                written,
            )
        ):
            await asyncio.sleep(0.02)
        assert isinstance(sender, int)
        return sender


async def make_synchronous(primary: Server) -> None:
    """Let every commit wait for the replica."""
    async with connected(primary.dsn) as conn, asyncio.timeout(20):
        await conn.execute("alter system set synchronous_standby_names = 'replica'")
        await conn.execute("select pg_reload_conf()")
        while not await conn.fetchval("select exists (select from pg_stat_replication where sync_state = 'sync')"):
            await asyncio.sleep(0.02)


async def demote(primary: Server) -> None:
    """Let a primary refuse writes and go on answering."""
    async with connected(primary.dsn) as conn:
        await conn.execute("alter system set default_transaction_read_only = on")
        await conn.execute("select pg_reload_conf()")


async def guests(server: Server) -> Counter[str]:
    """Return how many connections to a server jobq has, by name; not those of clients that have gone meanwhile.

    Of these PostgreSQL takes no notice while they wait for a replica.
    """
    async with connected(server.dsn) as conn:
        rows = await conn.fetch(
            "select application_name from pg_stat_activity"
            " where application_name like 'jobq %' and wait_event is distinct from 'SyncRep'"
        )
    return Counter(row[0] for row in rows)


async def leave(server: Server, *, but: Collection[str] = ()) -> None:
    """Wait until nobody of jobq is connected to *server*, *but* those of these names."""
    left: Counter[str] = Counter()
    try:
        async with asyncio.timeout(MOVE_S):
            while (left := await guests(server)).keys() - set(but):
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        pytest.fail(f"still there after {MOVE_S:g} s: {left}")


async def arrive(server: Server, workers: int) -> None:
    """Wait until so many workers have all their connections to *server*, as long as a recovery may take."""
    there: Counter[str] = Counter()
    recovery_s = SETTINGS["worker_lease_s"] + RECOVERS_WITHIN_S
    try:
        async with asyncio.timeout(recovery_s):
            while min(map((there := await guests(server)).__getitem__, OF_A_WORKER)) < workers:
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        pytest.fail(f"not all there after {recovery_s:g} s: {there}")
