"""`python -m tests.faults.produce FILE DSN PREFIX EVERY_S STEP_S`: the producer of a fault run as a process of its own.

So it may enqueue with the code of another version, whichever `jobq` is first in its path. It ends at SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.faults.producer import Producer


async def main(path: str, dsn: str, prefix: str, every_s: str, step_s: str) -> None:
    """Enqueue until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    producer = Producer(Path(path), dsn=dsn, prefix=prefix, every_s=float(every_s), step_s=float(step_s))
    async with producer.producing():
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
