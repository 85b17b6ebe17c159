"""What a snapshot that another session holds does to the queue: vacuum can remove nothing, and dead rows pile up.

Without such a session, with one that only reads, and with one that has written:

- `--jobs` jobs are drained by one worker process; `ratio` is the rate beside that without.
- 2,000 jobs a second are enqueued for `--seconds`, one a transaction; `p99_ratio` is the pick-up p99 of the last tenth
  of that time beside that without.
- For four fifths of it, a transaction a second is left open for 3 to 6 seconds after its enqueue; `late_s` is the
  longest from such a commit to the start of its job.
- Then the session lets go, and the load goes on; `recovery_s` is when five seconds in a row begin whose p99s are at
  most twice that without. If there are none, it is all the time that was watched.

The figures without a name in front are the worst.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from benchmarks.database import SCHEMA, fresh_schema
from benchmarks.holder import HOLDERS, held
from benchmarks.late_commits import commit_late
from benchmarks.open_loop import send
from benchmarks.pick_up import Wait, percentile, read_waits, stamp_file
from benchmarks.report import Report, make_report
from benchmarks.sleepers import NOTE, noop
from benchmarks.stamps import STAMPS, read_stamps
from benchmarks.throughput import DRAINED_S
from benchmarks.workers import run_until_empty, running_worker, until
from jobq import Queue

if TYPE_CHECKING:
    from benchmarks.workers import Conn

RATE_PER_S = 2000
QUIET_S = 5
"""So many good seconds in a row count as recovered."""
WATCHED_AT_LEAST_S = 10.0


class Load(NamedTuple):
    """What a steady load has shown: its waits, when its session let go, and the longest start after a late commit."""

    waits: list[Wait]
    released_at: float
    late_s: float
    lag_ms: float
    void: str

    def p99_ms(self, last_s: float) -> float:
        """Return the p99 of the last seconds before the session let go."""
        return percentile([w.ms for w in self.waits if 0 < self.released_at - w.enqueued_at <= last_s], 99)


async def measure(dsn: str, options: argparse.Namespace) -> Report:
    """Drain, then load, with each kind of session, `--runs` times, each in a new schema."""
    runs: dict[str, list[float]] = {}
    void = ""
    conn = await asyncpg.connect(dsn)
    for _ in range(options.runs):
        void = void or await _one_run(conn, dsn, options, runs)
    parameters: dict[str, object] = {
        "jobs": options.jobs,
        "slots": options.slots,
        "rate_per_s": RATE_PER_S,
        "seconds": options.seconds,
        "watched_s": _watched_s(options.seconds),
    }
    report = await make_report(conn, "pinned", runs, parameters, void)
    await conn.close()
    return report


async def _one_run(conn: Conn, dsn: str, options: argparse.Namespace, runs: dict[str, list[float]]) -> str:
    """Add one run's figures to *runs*. Returns why it is void, or nothing."""
    figures: dict[str, float] = {}
    free_p99_ms = 0.0
    for holder in (None, *HOLDERS):
        name = holder or "free"
        drain_per_s, lost = await _drain(conn, dsn, options, holder)
        if lost:
            return f"{name}: {lost}"
        load = await _load(conn, dsn, options.seconds, holder)
        if load.void:
            return f"{name}: {load.void}"
        p99_ms = load.p99_ms(options.seconds / 10)
        figures |= {f"{name}.drain_per_s": drain_per_s, f"{name}.p99_ms": p99_ms}
        figures |= {f"{name}.late_s": load.late_s, f"{name}.lag_ms": load.lag_ms}
        if holder is None:
            free_p99_ms = p99_ms
            continue
        figures |= {
            f"{name}.ratio": drain_per_s / figures["free.drain_per_s"],
            f"{name}.p99_ratio": p99_ms / free_p99_ms,
            f"{name}.recovery_s": recovered_after_s(
                load.waits, load.released_at, 2 * free_p99_ms, watched_s=_watched_s(options.seconds)
            ),
        }
    figures["ratio"] = min(figures[f"{holder}.ratio"] for holder in HOLDERS)
    for worst in ("p99_ratio", "recovery_s"):
        figures[worst] = max(figures[f"{holder}.{worst}"] for holder in HOLDERS)
    figures["late_s"] = max(figures[f"{name}.late_s"] for name in ("free", *HOLDERS))
    for name, value in figures.items():
        runs.setdefault(name, []).append(value)
    return ""


async def _drain(conn: Conn, dsn: str, options: argparse.Namespace, holder: str | None) -> tuple[float, str]:
    """Return how many jobs a second were drained, and why that is void, or nothing."""
    await fresh_schema(conn)
    async with held(dsn, holder):
        async with Queue(dsn, schema=SCHEMA) as queue:
            await queue.enqueue_many(noop.bind(order_id=number, note=NOTE) for number in range(options.jobs))
        await run_until_empty(dsn, 1, "--concurrency", str(options.slots))
    done = await conn.fetchval(f"select count(*) from {SCHEMA}.done")
    if done != options.jobs:
        return 0.0, f"{done} of {options.jobs} jobs are done"
    return options.jobs / await conn.fetchval(DRAINED_S), ""


async def _load(conn: Conn, dsn: str, seconds: float, holder: str | None) -> Load:
    await fresh_schema(conn)
    with stamp_file() as stamps:
        async with (
            running_worker(conn, dsn, app="stamps", environment={STAMPS: str(stamps)}),
            Queue(dsn, schema=SCHEMA) as queue,
            asyncio.TaskGroup() as group,
        ):
            ends_at = time.monotonic() + seconds
            in_all_s = seconds if holder is None else seconds + _watched_s(seconds)
            sending = group.create_task(send(dsn, queue, RATE_PER_S, in_all_s))
            async with held(dsn, holder):
                committed = await commit_late(dsn, queue, seconds * 0.8)
                await asyncio.sleep(ends_at - time.monotonic())
            released_at = time.time()
            late_ms = await sending
            await until(conn, "select not exists (select from {}.job)")
        waits, void = await read_waits(conn, stamps)
        started = read_stamps(stamps)
    expected = len(late_ms) + len(committed)
    if not void and len(waits) != expected:
        void = f"{len(waits)} of {expected} jobs are done"
    late_s = 0.0 if void else max(started[job_id] - at for job_id, at in committed.items())
    return Load(waits, released_at, late_s, percentile(late_ms, 99), void)


def recovered_after_s(waits: Sequence[Wait], released_at: float, most_ms: float, *, watched_s: float) -> float:
    """Return after how many whole seconds the first `QUIET_S` in a row begin whose p99s are at most *most_ms*."""
    by_second: dict[int, list[float]] = defaultdict(list)
    for wait in waits:
        if wait.enqueued_at >= released_at:
            by_second[int(wait.enqueued_at - released_at)].append(wait.ms)
    good = [percentile(by_second[second], 99) <= most_ms for second in range(int(watched_s))]
    for second in range(len(good) - QUIET_S + 1):
        if all(good[second : second + QUIET_S]):
            return float(second)
    return watched_s


def _watched_s(seconds: float) -> float:
    """Return how long the load goes on after the session has let go."""
    return max(WATCHED_AT_LEAST_S, seconds / 5)
