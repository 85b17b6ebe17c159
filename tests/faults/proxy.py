"""A proxy in front of PostgreSQL, on a Unix socket of its own: it passes, closes, delays and black-holes.

A black hole keeps both sockets open and forwards nothing; what was sent into it arrives when it ends, as over a line
that was down for a while. Each fault is aimed at the connections of one application name, or at all of them.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

SOCKET_NAME = ".s.PGSQL.5432"


class _Connection:
    """One client, and the server's end."""

    def __init__(self, name: str, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.name = name
        self._writers = (client, server)
        self._is_through = asyncio.Event()
        self._is_through.set()
        self.delay_s = 0.0
        self.swallows: bytes | None = None

    def hold(self) -> None:
        """Forward nothing from now on."""
        self._is_through.clear()

    def pass_on(self) -> None:
        """Forward what was held, and what comes."""
        self._is_through.set()

    async def wait_through(self) -> None:
        """Wait until something may be forwarded."""
        await self._is_through.wait()

    def close(self) -> None:
        """Close both sockets at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        from_server: bool,
        swallowed: Callable[[], None],
    ) -> None:
        """Forward one direction to its end, which closes both."""
        try:
            while data := await reader.read(65536):
                if from_server and self.swallows is not None and self.swallows in data:
                    self.swallows = None
                    self.hold()
                    swallowed()
                await self._is_through.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self.close()


class Proxy:
    """The proxy in front of the server of *dsn*. Connect to its own `dsn`, inside `async with`.

    *name* everywhere: an application name ("jobq claims"), or "" for every connection, also those to come.
    """

    def __init__(self, dsn: str, directory: Path) -> None:
        self._upstream = address_of(dsn)
        self._directory = directory
        self.dsn = with_host(dsn, directory)
        self._connections: set[_Connection] = set()
        self._holes: set[str] = set()
        self._refused: set[str] = set()
        self._delays: dict[str, float] = {}
        self._swallows: dict[str, bytes] = {}
        self._swallowed = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    # -- faults --------------------------------------------------------------------------------------

    def black_hole(self, name: str = "") -> None:
        """Forward nothing on these connections, neither the present ones nor those to come, until `restore`."""
        self._holes.add(name)
        for connection in self._of(name):
            connection.hold()

    def deafen(self, name: str) -> None:
        """Forward nothing on these connections until `restore`; those to come pass."""
        for connection in self._of(name):
            connection.hold()

    def close(self, name: str = "") -> None:
        """Close these connections, and those to come, until `restore`."""
        self._refused.add(name)
        self.cut(name)

    def cut(self, name: str = "") -> None:
        """Close these connections; those to come pass."""
        for connection in self._of(name):
            connection.close()

    def delay(self, seconds: float, name: str = "") -> None:
        """Hold up each packet of these connections, in both directions, until `restore`."""
        self._delays[name] = seconds
        for connection in self._of(name):
            connection.delay_s = seconds

    def swallow_answer(self, name: str, holding: bytes) -> None:
        """Let the next answer of the server with *holding* in it, and all after it, never arrive on its connection."""
        self._swallows[name] = holding
        for connection in self._of(name):
            connection.swallows = holding

    async def swallowed(self) -> None:
        """Wait until `swallow_answer` has got its answer."""
        async with asyncio.timeout(20):
            await self._swallowed.wait()

    def restore(self) -> None:
        """Let everything pass: what was held is forwarded, if both ends are still there."""
        self._holes.clear()
        self._refused.clear()
        self._delays.clear()
        self._swallows.clear()
        for connection in list(self._connections):
            connection.delay_s = 0.0
            connection.swallows = None
            connection.pass_on()

    def move(self, dsn: str) -> None:
        """Forward connections to come to another address."""
        self._upstream = address_of(dsn)

    # -- in between ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._directory / SOCKET_NAME)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # One end is gone, or the test is over.
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(4)
        first += await reader.readexactly(struct.unpack("!I", first)[0] - 4)
        name = _application_name(first)
        if self._refused & {name, ""}:
            return
        server_reader, server_writer = await self._connect()
        connection = _Connection(name, writer, server_writer)
        self._connections.add(connection)
        try:
            connection.delay_s = self._delays.get(name, self._delays.get("", 0.0))
            connection.swallows = self._swallows.get(name)
            if self._holes & {name, ""}:
                connection.hold()
            await connection.wait_through()
            server_writer.write(first)

            def swallowed() -> None:
                self._swallows.pop(name, None)
                self._swallowed.set()

            await asyncio.gather(
                connection.forward(reader, server_writer, from_server=False, swallowed=swallowed),
                connection.forward(server_reader, writer, from_server=True, swallowed=swallowed),
            )
        finally:
            connection.close()
            self._connections.discard(connection)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        match self._upstream:
            case Path() as path:
                return await asyncio.open_unix_connection(path)
            case (host, port):
                return await asyncio.open_connection(host, port)

    def _of(self, name: str) -> list[_Connection]:
        return [connection for connection in self._connections if name in ("", connection.name)]


def _application_name(startup: bytes) -> str:
    """Return what the startup message says (protocol 3.0: length, version, then names and values)."""
    fields = startup[8:].split(b"\0")
    return dict(zip(fields[::2], fields[1::2], strict=False)).get(b"application_name", b"").decode()


def address_of(dsn: str) -> Path | tuple[str, int]:
    """Return the socket of *dsn*, or its host and port."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    host = query.get("host", [parts.hostname or "localhost"])[0]
    port = int(query.get("port", [str(parts.port or 5432)])[0])
    return Path(host, f".s.PGSQL.{port}") if host.startswith("/") else (host, port)


def with_host(dsn: str, directory: Path) -> str:
    """Return *dsn* with the socket in *directory* in place of its host and port."""
    parts = urlsplit(dsn)
    user = parts.netloc.rpartition("@")[0]
    query = f"host={quote(str(directory), safe='/')}&port=5432"
    return urlunsplit(parts._replace(netloc=f"{user}@" if user else "", query=query))
