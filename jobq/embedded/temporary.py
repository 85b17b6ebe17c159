"""A server whose data nobody needs afterwards: for tests and benchmarks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from jobq.embedded.layout import root_home
from jobq.embedded.server import EmbeddedServer, start


@contextmanager
def temporary(*, settings: Mapping[str, str] | None = None, binaries: Path | None = None) -> Iterator[EmbeddedServer]:
    """Start a server with empty data, and remove them at the end. Options and errors are those of `start`."""
    with TemporaryDirectory(prefix="jobq-temporary-") as name:
        directory = Path(name).resolve()
        try:
            with start(directory, settings=settings, binaries=binaries) as server:
                yield server
        finally:
            if os.geteuid() == 0:
                # Computed, never read from a file: this is removed by root, with all that is in it.
                shutil.rmtree(root_home(directory), ignore_errors=True)
