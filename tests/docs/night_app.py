"""The application of docs/operating.md, as its workers see it: `app.py` in a directory of its own.

What the operator cannot see is outside: a mail server, and photos on a disk. `NIGHT_SETTINGS` overrides
`WorkerSettings`, so that what takes half a minute in production takes half a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path

from jobq import Backoff, Queue
from jobq.cli import run as command
from jobq.settings import WorkerSettings

# What the command line states wins. Not a plain assignment, which type checkers would take for another class.
assert vars(command)["WorkerSettings"] is WorkerSettings
vars(command)["WorkerSettings"] = partial(WorkerSettings, **json.loads(os.environ.get("NIGHT_SETTINGS", "{}")))

SOON = Backoff(base_s=0.5, cap_s=0.5)

queue = Queue()


class MailRefusedError(Exception):
    """The mail server's answer."""


async def send(mail: str) -> None:
    """Hand *mail* to the mail server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["MAIL_PORT"]))
    try:
        writer.write(mail.encode() + b"\n")
        answer = (await reader.readline()).decode().strip()
    finally:
        writer.close()
    if not answer.startswith("250 "):
        raise MailRefusedError(answer)


@queue.task(kind="send_receipt", queue="mail", max_attempts=3, backoff=SOON, on_duplicate="a second mail")
async def send_receipt(order_id: int) -> None:
    """Send the receipt of an order."""
    await send(f"receipt {order_id}")


@queue.task(kind="send_newsletter", queue="mail", on_duplicate="a second mail")
async def send_newsletter(customer_id: int) -> None:
    """Send a customer the newsletter."""
    await send(f"newsletter {customer_id}")


@queue.task(kind="resize_photo", queue="media", on_duplicate="harmless: it writes the same file")
async def resize_photo(photo_id: int) -> None:
    """Make a small photo of a large one."""
    if Path(f"huge-{photo_id}").exists():
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does for want of memory
    await asyncio.sleep(0.1)
