"""TCP's own watch over a line: a machine that has vanished is noticed within about a minute, by whoever waits for it.

jobq's own statements have deadlines. A statement of a handler has none but the kind's time-out, and a system's default
is to wait two hours before it asks whether the other end is still there.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncpg import Connection, Record

IDLE_S = 30
"""How long nothing may come before the other end is asked for a sign of life."""

EVERY_S = 10
TIMES = 3

UNANSWERED_MS = 30_000
"""How long what was sent may go without a receipt, which the other machine gives, however busy its server is."""

_OPTIONS = {
    "TCP_KEEPIDLE": IDLE_S,
    "TCP_KEEPINTVL": EVERY_S,
    "TCP_KEEPCNT": TIMES,
    "TCP_USER_TIMEOUT": UNANSWERED_MS,
}
"""By the names that the platform may have for them."""


def keep_alive(connection: Connection[Record]) -> None:
    """Have the kernel watch the line of *connection*, unless it is a Unix socket."""
    # asyncpg has neither an option for this nor a way to its socket. Without it the system's own times hold.
    transport = getattr(connection, "_transport", None)
    line = None if transport is None else transport.get_extra_info("socket")
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            line.setsockopt(socket.IPPROTO_TCP, option, value)
