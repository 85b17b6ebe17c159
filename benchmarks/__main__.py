"""`python -m benchmarks NAME`: run one benchmark on a PostgreSQL of its own, or on the one of `--dsn`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
import uvloop

from benchmarks import backlog, footprint, latency, mixed, neighbour, outage, pinned, recovery, throughput
from benchmarks.database import database
from benchmarks.report import Report, summary

BENCHMARKS = {
    "backlog": backlog.measure,
    "footprint": footprint.measure,
    "latency": latency.measure,
    "mixed": mixed.measure,
    "neighbour": neighbour.measure,
    "outage": outage.measure,
    "pinned": pinned.measure,
    "recovery": recovery.measure,
    "throughput": throughput.measure,
}


def main() -> int:
    """Run the benchmark named on the command line. Returns the exit code: 1 if a run was void."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=sorted(BENCHMARKS), metavar="NAME", help=", ".join(sorted(BENCHMARKS)))
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--dsn", help="measure on this server; everything in its schema jobq_bench is dropped")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs a run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--slots", type=int, default=500, help="jobs at once in the worker")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    with database(options.dsn) as dsn:
        report: Report = uvloop.run(BENCHMARKS[options.name](dsn, options))
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    if options.out:
        options.out.write_text(encoded + "\n")
    print(encoded if options.json else summary(report))
    return 1 if report.void else 0


if __name__ == "__main__":
    sys.exit(main())
