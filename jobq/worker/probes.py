"""Answers `/healthz`, `/readyz` and `/metrics` over HTTP, from the side thread: a blocked event loop answers too.

`/healthz` is 200 while the worker is *alive*: restart it if not. `/readyz` is 200 while it is *working*: a database
that is away makes it 503, and restarting would not help. `/metrics` prints what the worker has in memory, and asks
nobody.

The address is bound by whoever makes the worker, before anything is claimed: a port that is taken is a wrong
configuration, and no reason to run without probes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jobq.errors import ConfigurationError

NO_METRICS = "metrics need prometheus-client: install jobq[metrics], and restart the worker\n"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REQUEST_LIMIT_S = 5.0
MAX_HEADER_BYTES = 8192

MAX_CLIENTS = 64
"""Clients at once; more are turned away, so that silent ones cannot use up the files that the process may open."""


class Address(NamedTuple):
    """Where the probes listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return host and port of `HOST:PORT`, `[::1]:PORT` or `:PORT` (this machine only). Raises `ConfigurationError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 <= int(port) < 65536:
        raise ConfigurationError(f"address {text!r} is not HOST:PORT: pass one such as 127.0.0.1:8080")
    return Address(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


def listen(address: Address) -> socket.socket:
    """Return a socket that listens on *address*; port 0 takes any that is free. Raises `ConfigurationError`."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    both = address.host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(address, family=family, dualstack_ipv6=both)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # the rest repeats the address
        raise ConfigurationError(f"the probes cannot listen on {address} ({reason}): choose another address") from error


class Probes:
    """The HTTP server of one worker, on a socket that *listening* holds; closing that one is left to its owner.

    *stuck* and *failing* name the loops that are not alive, or not working. *metrics* makes the text of `/metrics`;
    None if nobody can.
    """

    def __init__(
        self,
        listening: socket.socket,
        *,
        stuck: Callable[[], Sequence[str]],
        failing: Callable[[], Sequence[str]],
        metrics: Callable[[], bytes] | None = None,
    ) -> None:
        self._listening = listening
        self._metrics = metrics
        self._answers = {"/healthz": ("stuck", stuck), "/readyz": ("not working", failing)}
        self._clients = 0

    async def serve(self) -> None:
        """Answer until cancelled."""
        # A copy: closing the server closes its socket, and the side thread may have to start over.
        server = await asyncio.start_server(self._answer, sock=self._listening.dup(), limit=MAX_HEADER_BYTES)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()  # and no `wait_closed`, which waits for silent clients too

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients > MAX_CLIENTS:
                return
            async with asyncio.timeout(REQUEST_LIMIT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._response(request))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # a client that says nothing, too much, or is gone
        finally:
            self._clients -= 1
            writer.close()

    async def _response(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        is_head = method == b"HEAD"
        if method not in (b"GET", b"HEAD"):
            return _http("405 Method Not Allowed", "only GET and HEAD\n", "Allow: GET, HEAD\r\n")
        if path == "/metrics":
            if self._metrics is None:
                return _http("501 Not Implemented", NO_METRICS, is_head=is_head)
            # In a thread: collectors of the application are among them, and the heartbeat shares this loop.
            return _http("200 OK", await asyncio.to_thread(self._metrics), content=METRICS_TYPE, is_head=is_head)
        if path not in self._answers:
            return _http("404 Not Found", "there are /healthz, /readyz and /metrics\n", is_head=is_head)
        wrong, ask = self._answers[path]
        if loops := ask():
            return _http("503 Service Unavailable", f"{wrong}: {', '.join(loops)}\n", is_head=is_head)
        return _http("200 OK", "ok\n", is_head=is_head)


def _http(
    status: str,
    text: str | bytes,
    more_headers: str = "",
    *,
    content: str = "text/plain; charset=utf-8",
    is_head: bool = False,
) -> bytes:
    body = text if isinstance(text, bytes) else text.encode()
    header = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {len(body)}\r\n"
        f"{more_headers}Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    )
    return header.encode() + (b"" if is_head else body)
