"""Invoice PDF: a job that makes a file, which is whole or not there, and the same however often it is made.

A process may die while it writes, so the file gets its name only when it is complete (what is left then ends in `.tmp`
and can be removed by age). A second run makes it again from the same rows and the same date, byte for byte.

    jobq migrate --embedded
    python -m examples.invoice_pdf --embedded
    jobq run examples.invoice_pdf:queue --embedded --until-empty

Then open `invoices/1.pdf`.
"""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from pathlib import Path

from fpdf import FPDF
from fpdf.errors import FPDFUnicodeEncodingException

from examples.try_out import try_out
from jobq import Job, Permanent, Queue

SCHEMA = """
create table if not exists invoice (id bigserial primary key, customer text not null, issued_at timestamptz not null);
create table if not exists invoice_line (invoice_id bigint references invoice, what text not null, cents int not null);
"""
INVOICES = Path("invoices")

queue = Queue()


@queue.task(
    kind="write_invoice",
    queue="documents",
    timeout=60,  # seconds; a page takes milliseconds, so this is for a disk that hangs
    on_duplicate="harmless: the same file, byte for byte, takes the place of the first",
)
async def write_invoice(job: Job, invoice_id: int) -> None:
    """Write the PDF of one invoice."""
    pool = await queue.pool()
    invoice = await pool.fetchrow("select customer, issued_at from invoice where id = $1", invoice_id)
    if invoice is None:
        raise Permanent(f"invoice {invoice_id} was deleted meanwhile")
    rows = await pool.fetch(
        "select what, cents from invoice_line where invoice_id = $1 order by what, cents", invoice_id
    )
    lines = [(row["what"], row["cents"]) for row in rows]
    try:
        # In a thread: drawing and writing would block every other job on the event loop.
        pdf = await asyncio.to_thread(draw, invoice_id, invoice["customer"], invoice["issued_at"], lines)
    except FPDFUnicodeEncodingException as error:  # no retry will find that letter
        raise Permanent(f"invoice {invoice_id}: add_font() one that has this letter") from error
    # Two attempts may be at it at once, when the first has lost its lease: each writes a file of its own.
    draft = INVOICES / f"{invoice_id}.{job.id}-{job.fence}.tmp"
    await asyncio.to_thread(write_whole, INVOICES / f"{invoice_id}.pdf", pdf, draft)


def draw(number: int, customer: str, issued_at: datetime, lines: list[tuple[str, int]]) -> bytes:
    """Return the PDF. A date of its own would make each run another file."""
    pdf = FPDF()
    pdf.set_creation_date(issued_at)
    pdf.add_page()
    pdf.set_font("Helvetica", size=12)  # one of the built-in fonts, which know Latin-1 only
    total = ("Total", sum(cents for _, cents in lines))
    for text in [
        f"Invoice {number} for {customer}",
        *(f"{what}: {cents / 100:.2f}" for what, cents in [*lines, total]),
    ]:
        pdf.cell(text=text, new_x="LMARGIN", new_y="NEXT")
    return bytes(pdf.output())


def write_whole(path: Path, content: bytes, draft: Path) -> None:
    """Write *content* to *draft*, and rename that to *path* when it is safe on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(draft, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)  # in one step: who opens *path* gets the old file or the new one


async def main() -> None:
    """Issue an invoice: it and the job that writes its PDF are committed together."""
    pool = await queue.pool()
    async with pool.acquire() as conn, conn.transaction():
        await conn.execute(SCHEMA)
        number = await conn.fetchval("insert into invoice (customer, issued_at) values ('Zoë', now()) returning id")
        await conn.execute("insert into invoice_line values ($1, 'Tea', 450), ($1, 'Cups', 1250)", number)
        await queue.enqueue(write_invoice.bind(invoice_id=number), conn=conn)
    print(f"invoice {number} issued")


if __name__ == "__main__":
    try_out(queue, main)
