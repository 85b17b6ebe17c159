"""What befalls a server while a block runs: down, restarted again and again, thrown-out clients, read-only, full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

from tests.faults.run import connected
from tests.faults.servers import Server

if TYPE_CHECKING:
    from asyncpg import Connection, Record

STORM_EVERY_S = 0.03
UP_S = 0.3


@asynccontextmanager
async def down(server: Server) -> AsyncIterator[None]:
    """It has crashed, and nobody starts it."""
    await server.stop("immediate")
    try:
        yield
    finally:
        await server.start()


@asynccontextmanager
async def restarting(server: Server) -> AsyncIterator[None]:
    """It crashes and is started again, and again."""
    is_over = asyncio.Event()

    async def restart() -> None:
        while not is_over.is_set():
            await server.stop("immediate")
            await server.start()
            await asyncio.sleep(UP_S)

    task = asyncio.create_task(restart())
    try:
        yield
    finally:
        is_over.set()
        await task


@asynccontextmanager
async def storm(server: Server) -> AsyncIterator[list[int]]:
    """All backends of jobq are terminated every few milliseconds. Gives how many, each time."""
    killed: list[int] = []

    async def rage() -> None:
        async with connected(server.dsn) as conn:
            while True:
                killed.append(await terminate_all(conn))
                await asyncio.sleep(STORM_EVERY_S)

    task = asyncio.create_task(rage())
    try:
        yield killed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def terminate_all(conn: Connection[Record]) -> int:
    """Terminate all backends of jobq once. Returns how many there were."""
    count: int = await conn.fetchval(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'jobq %'"
    )
    return count


@asynccontextmanager
async def crowd(server: Server) -> AsyncIterator[None]:
    """Every connection that is free is taken, and each that becomes free."""
    taken: list[Connection[Record]] = []
    is_full = asyncio.Event()

    async def take() -> None:
        while True:
            try:
                taken.append(await asyncpg.connect(server.dsn, server_settings={"application_name": "crowd"}))
            except asyncpg.TooManyConnectionsError:
                is_full.set()
                await asyncio.sleep(0.002)

    task = asyncio.create_task(take())
    try:
        async with asyncio.timeout(20):
            await is_full.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for conn in taken:
            conn.terminate()


@asynccontextmanager
async def crowded_out(server: Server) -> AsyncIterator[None]:
    """Whoever has a connection loses it, again and again, and the crowd takes it."""

    async def throw_out() -> None:
        while True:
            await terminate_all(conn)
            await asyncio.sleep(0.1)

    async with connected(server.dsn) as conn, crowd(server):
        task = asyncio.create_task(throw_out())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def read_only(dsn: str) -> AsyncIterator[None]:
    """It answers, and takes no writes, as a primary that was demoted."""
    async with connected(dsn) as conn:
        await conn.execute("alter system set default_transaction_read_only = on")
        await conn.execute("select pg_reload_conf()")
        try:
            yield
        finally:
            await conn.execute("alter system reset default_transaction_read_only")
            await conn.execute("select pg_reload_conf()")
