"""Speaks systemd's notify protocol: one datagram a message, to the socket that systemd names. See sd_notify(3)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

STATUS_EVERY_S = 5.0


class Notifier:
    """Tells systemd how the worker is. Does nothing where the process was not started by it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is in the abstract namespace, written with a NUL.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = _watchdog_seconds(environment)

    def ready(self) -> None:
        """The worker is registered and claims."""
        self._send("READY=1")

    def stopping(self) -> None:
        """The worker drains."""
        self._send("STOPPING=1")

    async def report(self, *, status: Callable[[], str], is_alive: Callable[[], bool]) -> None:
        """Send the status now and then, and feed the watchdog while the worker is alive, until cancelled."""
        every_s = STATUS_EVERY_S if self._watchdog_s is None else min(STATUS_EVERY_S, self._watchdog_s / 3)
        while True:
            self._send(f"STATUS={status()}")
            if self._watchdog_s is not None and is_alive():
                self._send("WATCHDOG=1")
            await asyncio.sleep(every_s)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            with contextlib.suppress(OSError):  # systemd is reloaded, or its queue is full: the next message will do
                sender.sendto(message.replace("\n", " ").encode(), self._address)


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Return the interval that the unit's WatchdogSec= asks for, None without one, or if it is another process's."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not microseconds.isdigit() or int(microseconds) == 0:
        return None
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 1e6
