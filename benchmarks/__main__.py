"""`python -m benchmarks NAME`: run one benchmark on a PostgreSQL of its own, or on the one of `--dsn`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
import uvloop

from benchmarks import (
    backlog,
    chaos,
    footprint,
    latency,
    memory,
    mixed,
    neighbour,
    outage,
    pinned,
    recovery,
    see,
    soak,
    telemetry,
    throughput,
)
from benchmarks.database import database
from benchmarks.report import Report, summary
from benchmarks.rivals import measuring as rivals
from benchmarks.rivals.table import table

BENCHMARKS = {
    "backlog": backlog.measure,
    "footprint": footprint.measure,
    "latency": latency.measure,
    "memory": memory.measure,
    "mixed": mixed.measure,
    "neighbour": neighbour.measure,
    "outage": outage.measure,
    "pinned": pinned.measure,
    "recovery": recovery.measure,
    "rivals": rivals.measure,
    "see": see.measure,
    "soak": soak.measure,
    "telemetry": telemetry.measure,
    "throughput": throughput.measure,
}

WITH_OWN_SERVER = {"chaos": chaos.measure}
"""These stop their server, so they take no other."""


def main() -> int:
    """Run the benchmark named on the command line. Returns the exit code: 1 if a run was void."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = sorted(BENCHMARKS | WITH_OWN_SERVER)
    parser.add_argument("name", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--dsn", help="measure on this server; everything in its schema jobq_bench is dropped")
    parser.add_argument("--pgbin", type=Path, help="start the server of these programs, /usr/lib/postgresql/15/bin")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs a run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--slots", type=int, default=500, help="jobs at once in the worker")
    parser.add_argument("--seconds", type=float, default=600.0, help="of the steady load of pinned")
    parser.add_argument("--scheduled", type=int, default=0, help="jobs for tomorrow beside the backlog")
    parser.add_argument("--dead", type=int, default=0, help="dead letters beside the backlog")
    parser.add_argument("--stale", action="store_true", help="drain the backlog with the statistics of an empty table")
    parser.add_argument("--hours", type=float, default=1.0, help="of soak")
    parser.add_argument("--kills", type=int, default=100, help="of chaos: workers killed")
    parser.add_argument("--restarts", type=int, default=2, help="of chaos: restarts of the server")
    parser.add_argument("--seed", type=int, default=1, help="of chaos")
    parser.add_argument("--systems", help="of rivals: only these, jobq,pgqueuer,...")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    report = _run(parser, options)
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    if options.out:
        options.out.write_text(encoded + "\n")
    describe = table if report.benchmark == "rivals" else summary
    print(encoded if options.json else describe(report))
    return 1 if report.void else 0


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Report:
    if (measure := WITH_OWN_SERVER.get(options.name)) is not None:
        if options.dsn is not None:
            parser.error(f"{options.name} stops its server again and again: it takes one of its own, and no --dsn")
        return uvloop.run(measure(options))
    with database(options.dsn, options.pgbin) as dsn:
        return uvloop.run(BENCHMARKS[options.name](dsn, options))


if __name__ == "__main__":
    sys.exit(main())
