"""A process that starts or joins a server, says so in one line of JSON, and keeps it until its input ends.

    python actor.py DIRECTORY stop|exit|fork

At the end it calls `stop()`, or just exits; `fork` leaves a forked child that outlives it. Only the standard library
and `jobq.embedded` are imported, so that it runs as any user, under any Python that one can execute.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from jobq.embedded import start


def main(directory: str, ending: str) -> None:
    server = start(directory)
    child = os.fork() if ending == "fork" else None
    if child == 0:
        server.stop()
        signal.pause()
    print(json.dumps({"dsn": server.dsn, "joined": server.joined, "child": child}), flush=True)
    sys.stdin.read()
    if ending == "stop":
        server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
