"""Lines that the kernel watches, as it says itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import uvloop

from jobq.db.connect import connect

TCP = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


@asynccontextmanager
async def over_tcp(dsn: str) -> AsyncIterator[str]:
    """Give the DSN of a port of this machine behind which the server of *dsn* is, which has none."""
    query = parse_qs(urlsplit(dsn).query)
    path = Path(query["host"][0], f".s.PGSQL.{query.get('port', ['5432'])[0]}")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(copy(reader, server_writer), copy(server_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"


def options_of(line: socket.socket) -> list[int]:
    """Return what the kernel has been told about *line*."""
    alive = line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return [alive, *(line.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in TCP)]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_kernel_watches_a_line_over_tcp(dsn: str, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A sign of life after 30 s and each 10 s, three without an answer are the end; so are 30 s without a receipt."""

    async def look() -> list[int]:
        async with over_tcp(dsn) as tcp_dsn:
            conn = await connect(tcp_dsn, role="test")
            found = options_of(conn._transport.get_extra_info("socket"))  # type: ignore[attr-defined]
            await conn.close()
            return found

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(look()) == [1, 30, 10, 3, 30_000]


async def test_a_unix_socket_is_left_alone(dsn: str) -> None:
    """It cannot fall silent: the kernel itself is at both ends."""
    conn = await connect(dsn, role="test")

    line = conn._transport.get_extra_info("socket")  # type: ignore[attr-defined]

    assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
    await conn.close()
