"""Somebody who asks the probes, from the test's event loop or from a thread beside it."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.worker.observe import eventually, within


class Answer(NamedTuple):
    """What a probe answered."""

    status: int
    text: str


class Client:
    """Somebody who asks the probes; from any thread."""

    def __init__(self, listening: socket.socket) -> None:
        self.address: tuple[str, int] = listening.getsockname()[:2]

    def ask_now(self, path: str, method: str = "GET") -> Answer:
        """Ask, and block until the answer is there."""
        connection = http.client.HTTPConnection(*self.address, timeout=5)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return Answer(response.status, response.read().decode())
        finally:
            connection.close()

    async def ask(self, path: str, method: str = "GET") -> Answer:
        """Ask, and let the event loop turn meanwhile."""
        return await asyncio.to_thread(self.ask_now, path, method)

    async def answers(self, path: str, expected: Answer) -> None:
        """Wait until *path* answers as expected."""
        await eventually(lambda: self.ask(path), lambda answer: answer == expected)

    async def says(self, sent: bytes, *, close_writing: bool = False) -> bytes:
        """Send anything, and return what comes until the server closes the connection."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(sent)
            if close_writing:
                writer.write_eof()
            return await within(5, reader.read())
        except ConnectionError:
            return b""
        finally:
            writer.close()


OK = Answer(200, "ok\n")


@asynccontextmanager
async def asking_in_thread(ask: Callable[[], None]) -> AsyncIterator[None]:
    """Run *ask* in a thread beside the block, whose event loop may be blocked; what it raises fails the test."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            ask()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        await asyncio.to_thread(thread.join)
    if raised:
        raise raised[0]


async def stays_alive(client: Client, seconds: float = 2.0) -> None:
    """Ask for longer than any loop's bound: that nothing comes meanwhile is what is tested."""
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        answer = await client.ask("/healthz")
        assert answer == OK, answer
