"""`jobq demo`: the example `examples/receipts.py` from end to end, on the embedded server of the current directory."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from jobq.cli.database import embedded_server, migrate_embedded
from jobq.cli.ending import FAILED
from jobq.cli.logs import LogLevel, show_log
from jobq.db.connect import driver_errors
from jobq.errors import ConfigurationError

if TYPE_CHECKING:
    from examples.receipts_demo import Tally

EXAMPLES = "Example: pip install -e '.[demo]' && jobq demo"

ORDERS = 1000
REFUSED = 100
CHECKOUT = Path(__file__).parents[2]


def demo() -> None:
    """Run the example of orders and receipts from end to end.

    Some orders are rolled back, and exactly the others get their receipts. Uses examples/receipts.py of the source
    checkout, on an embedded PostgreSQL in ./.jobq, in a database of its own that is dropped at the end. Exits with 0 if
    the receipts match the orders.
    """
    _find_example()
    show_log(LogLevel.WARNING)
    with embedded_server() as dsn, TemporaryDirectory(prefix="jobq-demo-") as directory:
        rolled_back, tally = asyncio.run(_demo(dsn, Path(directory, "receipts.mbox")))
    typer.echo(f"{tally.committed:>7,} orders committed")
    typer.echo(f"{rolled_back:>7,} orders rolled back")
    typer.echo(f"{tally.delivered:>7,} receipts delivered")
    if tally.duplicates:
        typer.echo(f"{tally.duplicates:>7,} of them twice")
    if not tally.matches or (tally.committed, rolled_back) != (ORDERS, REFUSED):
        typer.echo(f"They do not match: {tally.missing:,} orders have no receipt, {tally.wrong:,} receipts no order.")
        raise typer.Exit(FAILED)
    typer.echo(f"They match. How it is done: {CHECKOUT / 'examples' / 'receipts.py'}")


def _find_example() -> None:
    """Make the example importable. Raises `ConfigurationError` if it, or what it needs, is not there."""
    if not (CHECKOUT / "examples" / "receipts.py").is_file():
        raise ConfigurationError(
            "the demo runs examples/receipts.py, which is not part of the installed package: clone the repository, and"
            " run pip install -e '.[demo]' && jobq demo in it"
        )
    missing = [name for name in ("aiosmtpd", "aiosmtplib") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"the demo needs {' and '.join(missing)}: run pip install -e '.[demo]' in {CHECKOUT}")
    sys.path.insert(0, str(CHECKOUT))


async def _demo(dsn: str, mbox: Path) -> tuple[int, Tally]:
    """Place orders, send the receipts, compare. Returns how many orders were rolled back, and the comparison."""
    from examples import receipts, receipts_demo
    from jobq.worker.supervisor import Worker

    # The example would send to a real mail server if one is named; the demo must not.
    os.environ.pop("SMTP_HOST", None)
    os.environ["RECEIPTS_MBOX"] = str(mbox)
    with driver_errors():
        async with receipts_demo.own_database(dsn) as own_dsn:
            await migrate_embedded(own_dsn, receipts.queue.schema)
            receipts.queue.use_dsn(own_dsn)
            typer.echo(f"placing {ORDERS + REFUSED:,} orders, each with its receipt as a job in the same transaction")
            rolled_back = await receipts.place_orders(ORDERS, REFUSED)
            typer.echo("a worker sends the receipts over SMTP")
            await Worker(receipts.queue).run(until_empty=True)
            return rolled_back, await receipts_demo.tally(mbox)
