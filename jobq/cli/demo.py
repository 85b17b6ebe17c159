"""`jobq demo`: the play of `jobq/demo`, on the embedded server of the current directory, and its account."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from jobq.cli.database import embedded_server
from jobq.cli.ending import FAILED
from jobq.cli.logs import LogLevel, show_log
from jobq.cli.output import AsJson, print_json, say
from jobq.db.connect import driver_errors
from jobq.errors import ConfigurationError, JobqError

if TYPE_CHECKING:
    from jobq.demo.account import Account
    from jobq.demo.play import Play

EXAMPLES = "Example: jobq demo --orders 5000"

LIMIT_S = 120.0
"""Beyond what its orders need; a play that has not ended then has failed."""


def demo(
    orders: Annotated[int, typer.Option(min=100, max=100_000, metavar="N", help="How many orders come in.")] = 1000,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Repeat the chance of an earlier demo; without it, another each time."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the whole promise in half a minute, and give account of it.

    Orders are committed together with the jobs that send their receipts, a tenth of them rolled back on purpose. Two
    worker processes send the receipts over SMTP to a local server that is slow and at times refuses; one worker is
    killed in the middle. A few receipts fail for good and are redriven after the fix. Uses an embedded PostgreSQL in
    ./.jobq, in a database of its own that is dropped at the end. Exits with 0 only if the account holds.
    """
    missing = [name for name in ("aiosmtpd", "aiosmtplib") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"the demo needs {', '.join(missing)}: run pip install 'jobq[demo]'")
    from jobq.demo import shop
    from jobq.demo.play import Play
    from jobq.demo.stage import Lines, live_stage

    show_log(LogLevel.ERROR)
    seed = random.randrange(10_000) if seed is None else seed
    is_live = sys.stdout.isatty() and not as_json
    setting = live_stage() if is_live else nullcontext(Lines(say if as_json else typer.echo))
    with embedded_server(is_to_stay=False) as dsn, setting as stage:
        log = Path.cwd() / ".jobq" / "demo.log"
        log.write_bytes(b"")
        play = Play(stage, orders=orders, seed=seed, log=log)
        account = asyncio.run(_perform(play, dsn, LIMIT_S + orders / 20))
    if as_json:
        print_json(_record(account))
    else:
        _print_account(account)
        typer.echo(f"The application: {shop.__file__}\nWhat its workers logged: {log}")
    if not account.holds:
        raise typer.Exit(FAILED)


async def _perform(play: Play, dsn: str, limit_s: float) -> Account:
    try:
        with driver_errors():
            async with asyncio.timeout(limit_s):
                return await play.perform(dsn)
    except* TimeoutError:
        raise JobqError(f"the demo did not come to its end within {limit_s:g} s") from None
    except* JobqError as errors:
        raise errors.exceptions[0] from None


def _record(account: Account) -> dict[str, object]:
    counts = {**msgspec.to_builtins(account), "duplicates": len(account.duplicates)}
    return {**counts, "holds": account.holds, "duplicate_receipts": msgspec.to_builtins(account.duplicates)}


def _print_account(account: Account) -> None:
    typer.echo(f"\nThe account, after {account.seconds:.0f} s:")
    for count, what in _lines(account):
        typer.echo(f"{count:>7,}  {what}")
    for why, count in Counter(duplicate.why for duplicate in account.duplicates).items():
        typer.echo(f"         {count} because {why}" if why else f"         {count} for no reason known")
    typer.echo("It holds." if account.holds else "IT DOES NOT HOLD.")


def _lines(account: Account) -> Iterator[tuple[int, str]]:
    yield account.orders_committed, "orders committed"
    yield account.orders_rolled_back, "orders rolled back"
    yield account.receipts, "orders have their receipt"
    yield account.lost, "receipts lost"
    yield account.wrong, "receipts for orders that were rolled back"
    yield account.in_flight_at_kill, "jobs in flight when their worker was killed"
    yield account.dead, "dead letters"
    yield account.redriven, "of them redriven, and done after the fix"
    if account.unfinished:
        yield account.unfinished, "jobs unfinished"
    yield len(account.duplicates), "receipts delivered twice"
