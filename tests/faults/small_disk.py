"""A disk of a few megabytes, where the machine lets us make one: root may mount a tmpfs, if no container forbids it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.faults.servers import empty_directory, server_account

SIZE = "32m"


@contextmanager
def small_disk() -> Iterator[Path]:
    """Give the directory of a small disk that the server may write."""
    with empty_directory() as directory:
        account = server_account()
        assert account is not None
        options = f"size={SIZE},mode=700,uid={account.uid},gid={account.gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], check=True)
        try:
            yield directory
        finally:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)


@cache
def is_possible() -> bool:
    """Whether this machine lets us make one."""
    if os.geteuid() != 0:
        return False
    try:
        with small_disk():
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
