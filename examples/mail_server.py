"""A mail server for the examples: real SMTP on a port of its own, and a file instead of other people's mailboxes."""

from __future__ import annotations

import asyncio
import logging
import mailbox
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass(frozen=True)
class MailServer:
    """Where mails are sent to."""

    host: str
    port: int


@asynccontextmanager
async def run_mail_server(path: str | Path) -> AsyncIterator[MailServer]:
    """Run a server on a free port of this machine that appends every mail it accepts to *path*."""
    logging.getLogger("mail.log").setLevel(logging.WARNING)  # aiosmtpd tells every command of every client there
    with open(path, "ab", buffering=0) as file:  # noqa: ASYNC230
        inbox = _Inbox(file.write)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: SMTP(inbox, hostname="localhost"), "127.0.0.1", 0)
        try:
            host, port = server.sockets[0].getsockname()
            yield MailServer(host, port)
        finally:
            server.close()


def read_mails(path: str | Path) -> list[Message]:
    """Return what a server got, in order; a mail that was sent twice is there twice."""
    with closing(mailbox.mbox(path, create=False)) as box:
        return list(box)


class _Inbox:
    def __init__(self, write: Callable[[bytes], int | None]) -> None:
        self._write = write

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Accept a mail: aiosmtpd calls this by its name."""
        assert isinstance(envelope.content, bytes)
        self._write(f"From shop {time.asctime()}\n".encode() + envelope.content.replace(b"\r\n", b"\n") + b"\n")
        return "250 OK"
