"""What one sees of the play: a live table with a progress bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import fill
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 80
LINE_EVERY_S = 3.0


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What there is at a moment. *orders* are all that will be committed; *workers* are (pid, is alive)."""

    orders: int
    committed: int
    rolled_back: int
    receipts: int
    busy: int
    ready: int
    running: int
    retrying: int
    dead: int
    workers: list[tuple[int, bool]]


class Stage(Protocol):
    """Where the play is shown."""

    def tell(self, text: str) -> None:
        """Say what happens, in one line."""
        ...

    def show(self, scene: Scene) -> None:
        """Show how things stand."""
        ...


class Lines:
    """A stage without a terminal: each line with the seconds since the beginning."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._began = time.monotonic()
        self._next_line_at = LINE_EVERY_S

    def tell(self, text: str) -> None:
        """Write a line."""
        self._write(_line(time.monotonic() - self._began, text))

    def show(self, scene: Scene) -> None:
        """Write a line, now and then."""
        if time.monotonic() - self._began >= self._next_line_at:
            self._next_line_at = time.monotonic() - self._began + LINE_EVERY_S
            self.tell(
                f"  {scene.receipts:,} of {scene.orders:,} receipts; {scene.ready} ready, {scene.running} running,"
                f" {scene.retrying} to retry, {scene.dead} dead"
            )


class Live:
    """A stage on a terminal: what happens scrolls above a table of how things stand."""

    def __init__(self, console: Console, update: Callable[[Table], None]) -> None:
        self._console = console
        self._update = update
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(_line(time.monotonic() - self._began, text), highlight=False, markup=False)

    def show(self, scene: Scene) -> None:
        """Renew the table."""
        self._update(_table(scene))


@contextmanager
def live_stage() -> Iterator[Live]:
    """Set the stage on this terminal; the table is cleared at the end."""
    from rich.console import Console
    from rich.live import Live as LiveDisplay

    console = Console()
    if console.width > WIDTH:
        console.width = WIDTH
    with LiveDisplay(console=console, refresh_per_second=8, transient=True) as display:
        yield Live(console, display.update)


def _line(seconds: float, text: str) -> str:
    return fill(text, WIDTH, initial_indent=f"{seconds:5.1f} s  ", subsequent_indent=" " * 11)


def _table(scene: Scene) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_row("orders", f"{scene.committed:,} committed, {scene.rolled_back:,} rolled back on purpose")
    table.add_row("receipts", f"{scene.receipts:,} delivered; {scene.busy:,} times the mail server was too busy")
    table.add_row(
        "jobs",
        f"{scene.ready:,} ready, {scene.running:,} running, {scene.retrying:,} to retry, {scene.dead:,} dead",
    )
    workers = ", ".join(f"{pid} {'alive' if alive else 'killed'}" for pid, alive in scene.workers)
    table.add_row("workers", workers)
    table.add_row(
        f"{scene.receipts / max(scene.orders, 1):4.0%}", ProgressBar(total=scene.orders, completed=scene.receipts)
    )
    return table
