"""A mail server like those out there: slow, at times busy, and strict about mailboxes that it does not know.

It counts a mail as delivered when it has it, and only then takes its time to say so. Whoever is killed in between will
send it again: no queue in the world can prevent that, so the demo shows it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes

import msgspec
from aiosmtpd.smtp import SMTP, Envelope, Session

BUSY_SHARE = 0.05
"""How often it has no time."""

SLOW_S = 0.4
"""How long an answer may take."""


class Delivery(msgspec.Struct, frozen=True):
    """One mail that was delivered: the receipt of which order, sent by which attempt, in which process."""

    order_id: int
    attempt: int
    pid: int


class MailServer:
    """The mail server. *unknown* are the mailboxes that it does not know (a person may `mend` that)."""

    def __init__(self, unknown: set[str], chance: random.Random) -> None:
        self.unknown = unknown
        self.deliveries: list[Delivery] = []
        self.orders: set[int] = set()
        self.busy = 0
        self.port = 0
        self._chance = chance

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen on a free port of this machine."""
        logging.getLogger("mail.log").setLevel(logging.CRITICAL)  # aiosmtpd tells every broken connection there
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: SMTP(self, hostname="localhost"), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    def mend(self) -> None:
        """Open the mailboxes that were unknown."""
        self.unknown.clear()

    # aiosmtpd calls these by their names.

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Accept the address of a mail, or refuse it for good."""
        if address in self.unknown:
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Deliver a mail, or refuse it for now."""
        if self._chance.random() < BUSY_SHARE:
            self.busy += 1
            return "451 4.3.2 too busy, try again later"
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content)
        delivery = Delivery(int(mail["X-Order"]), int(mail["X-Attempt"]), int(mail["X-Process"]))
        self.deliveries.append(delivery)
        self.orders.add(delivery.order_id)
        await asyncio.sleep(self._chance.uniform(0, SLOW_S))
        return "250 OK"
