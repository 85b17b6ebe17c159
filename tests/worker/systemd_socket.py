"""What stands in for systemd: the socket that NOTIFY_SOCKET names, and what came in."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from tests.worker.observe import until_true


class Systemd:
    """A datagram socket, read in a thread: it must hear a worker that blocks its event loop, the test's too."""

    def __init__(self, path: Path | None, name: str = "") -> None:
        self.received: list[str] = []
        self.address = f"@{name}" if path is None else str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name if path is None else str(path))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while message := self._socket.recv(4096):
            self.received.append(message.decode())

    def close(self) -> None:
        """Hear no more."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    async def hears(self, message: str, *, times: int = 1) -> None:
        """Wait until *message* has come so many times."""
        await until_true(lambda: self.received.count(message) >= times)

    @property
    def status(self) -> str:
        """The last STATUS."""
        return next((one for one in reversed(self.received) if one.startswith("STATUS=")), "").removeprefix("STATUS=")

    @property
    def unfed(self) -> int:
        """How many STATUS messages have come since the watchdog was fed last; they are the clock here."""
        told = 0
        for message in reversed(self.received):
            if message == "WATCHDOG=1":
                break
            told += message.startswith("STATUS=")
        return told

    async def is_fed(self, rounds: int = 5) -> bool:
        """Watch for some rounds, and say whether the watchdog was fed in each."""
        before = len(self.received)
        await until_true(lambda: self._told_since(before) > rounds)
        return self.fed_since(before) >= rounds

    def fed_since(self, before: int) -> int:
        """Return how often the watchdog was fed after message number *before*."""
        return self.received[before:].count("WATCHDOG=1")

    def _told_since(self, before: int) -> int:
        return sum(one.startswith("STATUS=") for one in self.received[before:])
