"""The invoice of examples/invoice_pdf.py: a real PDF, the same each time, whole or not there."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples import invoice_pdf
from jobq.core.states import State
from tests.docs.conftest import PROCESSES, Told, Work
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn


def texts(pdf: bytes) -> list[str]:
    """Return the strings that the pages of *pdf* show."""
    pages = [
        zlib.decompress(stream)
        for length, stream in re.findall(rb"/Length (\d+)\s*>>\s*stream\n(.*?)\nendstream", pdf, re.DOTALL)
        if len(stream) == int(length)
    ]
    return [text.decode("latin-1") for page in pages for text in re.findall(rb"\((.*?)\) Tj", page)]


@pytest.fixture
async def invoice(database: str, db: Conn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """An invoice of long ago, to be written below the test's directory."""
    monkeypatch.chdir(tmp_path)
    invoice_pdf.queue.use_dsn(database)
    await db.execute(invoice_pdf.SCHEMA)
    number: int = await db.fetchval(
        "insert into invoice (customer, issued_at) values ('Zoë', '2001-02-03 04:05:06Z') returning id"
    )
    await db.execute("insert into invoice_line values ($1, 'Tea', 450), ($1, 'Cups', 1250)", number)
    return number


async def write(number: int, work: Work) -> bytes:
    """Let a worker write an invoice, and return the file."""
    await invoice_pdf.queue.enqueue(invoice_pdf.write_invoice.bind(invoice_id=number))
    await work(invoice_pdf.queue)
    return Path(f"invoices/{number}.pdf").read_bytes()


@PROCESSES
async def test_its_head_tells_how_to_get_a_pdf(told: Told, tmp_path: Path) -> None:
    """Its commands leave one file, a PDF that shows the customer, the lines and the total."""
    for command in told.commands("invoice_pdf"):
        await told.run(command)

    [file] = (tmp_path / "invoices").iterdir()
    assert file.name == "1.pdf"
    assert file.read_bytes().startswith(b"%PDF-")
    assert texts(file.read_bytes()) == ["Invoice 1 for Zoë", "Cups: 12.50", "Tea: 4.50", "Total: 17.00"]


async def test_a_second_run_makes_the_same_file(invoice: int, work: Work) -> None:
    """The date in the file is the invoice's, and so no run differs from another."""
    first = await write(invoice, work)
    second = await write(invoice, work)

    assert first == second
    assert b"D:20010203040506" in first


async def test_a_file_that_was_not_written_to_its_end_has_no_name(
    invoice: int, db: Conn, jobs: Jobs, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that fails while it writes leaves the earlier file as it was."""
    earlier = await write(invoice, work)
    await db.execute("update invoice set customer = 'Ada'")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)

    assert await write(invoice, work) == earlier
    assert await jobs.count() == {State.DONE: 1, State.WAITING: 1}


@pytest.mark.parametrize("change", ["update invoice set customer = 'Łucja'", "truncate invoice, invoice_line"])
async def test_what_cannot_be_written_is_a_dead_letter(
    invoice: int, db: Conn, jobs: Jobs, work: Work, change: str
) -> None:
    """A letter that the font does not have, or an invoice that is gone: a retry would not help."""
    await db.execute(change)

    await invoice_pdf.queue.enqueue(invoice_pdf.write_invoice.bind(invoice_id=invoice))
    await work(invoice_pdf.queue)

    assert await jobs.count() == {State.DEAD: 1}
    assert not Path("invoices").exists()
