"""`jobq jobs`: the jobs that wait, run or are done, newest first, or one of them whole, wherever it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from jobq.cli.database import Dsn, Embedded, Instance, Schema, on_connection
from jobq.cli.dead_filter import InQueue, Kind
from jobq.cli.dead_text import RecordedError, history
from jobq.cli.durations import moment, words
from jobq.cli.output import AsJson, print_json, print_table, printable, say, terminal_width
from jobq.cli.payloads import redacted_fields, shown_payload
from jobq.cli.usage import UsageError
from jobq.core.job import JobId
from jobq.core.states import State
from jobq.db.reports import DeadLetterDetail, JobDetail, JobFilter, ListedJob, Reports
from jobq.errors import JobqError
from jobq.settings import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from rich.table import Table

    from jobq.db.connect import AnyConnection

EXAMPLES = "Example: jobq jobs --queue mail --state running, or one job: jobq jobs 4711"

WIDE_ENOUGH = 120
"""Columns of a terminal in which the list need not cut names."""


class InState(StrEnum):
    """Which jobs `--state` lists; dead letters have a command of their own."""

    WAITING = State.WAITING.value
    RUNNING = State.RUNNING.value
    DONE = State.DONE.value


def jobs(
    id_: Annotated[
        int | None,
        typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="Show this job whole.", show_default=False),
    ] = None,
    kind: Kind = None,
    queue: InQueue = None,
    state: Annotated[InState | None, typer.Option(help="Only in this state; waiting: ready or scheduled.")] = None,
    before: Annotated[
        int | None, typer.Option(min=1, max=2**63 - 1, metavar="ID", help="Only older ones: the next page.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="How many to show.")] = 50,
    payload: Annotated[
        bool, typer.Option("--payload", help="With ID: show the payload though nothing says which fields are secret.")
    ] = False,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first, or show one.

    A job is ready, scheduled for later, running, or done; jobs that failed for good are listed by `jobq dead list`. All
    filters that are stated must match. What a kind redacts is known here of jobs that have failed or were handed back
    before; of others the payload is covered, unless --payload is given.
    """
    instance = Instance(dsn, schema, embedded)
    if id_ is not None:
        if (kind, queue, state, before) != (None, None, None, None):
            raise UsageError("An id says which job it is: leave the filters out.")
        _show(instance, JobId(id_), as_json, payload)
        return
    if payload:
        raise UsageError("--payload is for one job: add its id.")
    wanted = JobFilter(kind=kind, queue=queue, before=None if before is None else JobId(before))
    states = [State(one) for one in InState] if state is None else [State(state)]
    # One more than is shown, to know whether there is another page.
    found = on_connection(
        instance, lambda conn: Reports(schema).list_jobs(conn, wanted, states=states, limit=limit + 1)
    )
    page = found[:limit]
    next_before = page[-1].id if len(found) > limit else None
    if as_json:
        print_json({"jobs": [as_record(job) for job in page], "next_before": next_before})
        return
    if page:
        print_table(listing(page, now=datetime.now(UTC), width=terminal_width()))
    else:
        say("no job matches")
    if next_before is not None:
        say(f"there are more: add --before {next_before} for the next page")


def _show(instance: Instance, job_id: JobId, as_json: bool, payload: bool) -> None:
    """Print one job, or where to look for it. Raises `JobqError` if it is nowhere."""

    async def look(conn: AnyConnection) -> JobDetail | DeadLetterDetail | None:
        reports = Reports(instance.schema)
        return await reports.show_job(conn, job_id) or await reports.show_dead(conn, job_id)

    match on_connection(instance, look):
        case None:
            raise JobqError(
                f"there is no job {job_id}: it is not committed yet, it was deleted, or it was done before the history"
            )
        case DeadLetterDetail() as letter:
            command = instance.command(f"dead show {job_id}")
            if as_json:
                record = {"id": letter.id, "kind": letter.kind, "queue": letter.queue, "state": State.DEAD.value}
                print_json({**record, "command": command})
            else:
                typer.echo(f"{letter.kind} {job_id}: dead letter of queue {letter.queue}, {letter.reason}\n  {command}")
        case JobDetail() as job:
            fields = redacted_fields(job.errors)
            if fields is None and payload:
                fields = ()
            shown = shown_payload(job.payload, fields)
            if as_json:
                print_json({**as_record(job), "payload": shown})
            else:
                typer.echo(page_of(job, shown, now=datetime.now(UTC)))
            if fields is None:
                say("the payload is covered: nothing on record says what of it is secret; --payload shows it")


def as_record(job: ListedJob) -> dict[str, object]:
    """Return a job for `--json`: its fields, times in ISO 8601, the stored JSON as such."""
    record: dict[str, object] = msgspec.to_builtins(job)
    for field in ("errors", "headers"):
        if isinstance(text := record.get(field), str):
            record[field] = json.loads(text)
    return record


def listing(jobs: Sequence[ListedJob], *, now: datetime, width: int | None) -> Table:
    """Return a table with a line for each job, cut to *width* columns, or uncut if that is None.

    WHEN is when it became or becomes ready, began to run or was done, AGE since when it is enqueued.
    """
    from rich.table import Table
    from rich.text import Text

    narrow = width is not None and width < WIDE_ENOUGH
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("ID", justify="right", no_wrap=True)
    table.add_column("KIND", max_width=14 if narrow else None)
    table.add_column("QUEUE", max_width=8 if narrow else None)
    table.add_column("STATE", no_wrap=True)
    table.add_column("P", justify="right", no_wrap=True)
    table.add_column("ATTEMPT", justify="right", no_wrap=True)
    table.add_column("WHEN", no_wrap=True)
    table.add_column("AGE", no_wrap=True)
    table.add_column("WORKER")
    for job in jobs:
        cells = (str(job.id), job.kind, job.queue, job.state, str(job.priority), str(job.attempt), _when(job, now))
        for_person = (*cells, words(now - job.enqueued_at), _worker(job, short=True))
        table.add_row(*(Text(printable(cell), no_wrap=True, overflow="ellipsis") for cell in for_person))
    return table


def page_of(job: JobDetail, payload: object, *, now: datetime) -> str:
    """Return all that is known of one job, with its *payload* as it may be shown."""
    sections = [
        f"{job.kind} {job.id}: {_standing(job, now)}, queue {job.queue}",
        _columns(_facts(job, now)),
        f"payload\n{_pretty(payload)}",
    ]
    if job.headers is not None:
        sections.append(f"headers\n{_pretty(json.loads(job.headers))}")
    if job.errors is not None:
        sections.append(history(msgspec.json.decode(job.errors, type=list[RecordedError]), now=now))
    return printable("\n\n".join(sections))


def _standing(job: JobDetail, now: datetime) -> str:
    """Say in which state the job is, and for how long."""
    match job.state:
        case "running" if job.claimed_at is not None:
            return f"running for {words(now - job.claimed_at)}"
        case "done" if job.run_ms is not None:
            return f"done in {job.run_ms:,} ms"
        case "ready" if job.run_at is not None:
            return f"ready for {words(now - job.run_at)}"
        case "scheduled" if job.run_at is not None:
            return f"due {_distance(job.run_at, now)}"
        case state:
            return state


def _facts(job: JobDetail, now: datetime) -> Iterator[tuple[str, str]]:
    limit = "" if job.max_attempts is None else f" of {job.max_attempts}"
    redriven = f", redriven {job.redrives} times before" if job.redrives else ""
    yield "attempts", f"{job.attempt}{limit} ({job.crashes} crashed){redriven}"
    if job.worker_id is not None:
        yield "worker", _worker(job)
    times = {
        "enqueued": job.enqueued_at,
        "due": job.run_at,
        "first failed": job.first_failed_at,
        "last claimed": job.claimed_at,
        "lease until": job.lease_until,
        "finished": job.finished_at,
    }
    for name, at in times.items():
        if at is not None:
            yield name, moment(at, now=now)
    yield "priority", str(job.priority)
    if job.idempotency_key is not None:
        yield "key", job.idempotency_key


def _worker(job: ListedJob, *, short: bool = False) -> str:
    """Name the worker by its host and process, while they are known, or by its id."""
    if job.worker_id is None:
        return "-"
    if short:
        return job.worker or str(job.worker_id)[:8]
    return str(job.worker_id) if job.worker is None else f"{job.worker} ({job.worker_id})"


def _when(job: ListedJob, now: datetime) -> str:
    """Tell the moment that says most of a job in its state: since when it is done, runs, or waits."""
    match job.state:
        case "done":
            at = job.finished_at
        case "running":
            at = job.claimed_at
        case _:
            at = job.run_at
    return "-" if at is None else _distance(at, now)


def _distance(at: datetime, now: datetime) -> str:
    return f"in {words(at - now)}" if at > now else f"{words(now - at)} ago"


def _columns(rows: Iterator[tuple[str, str]]) -> str:
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in listed)


def _pretty(value: object) -> str:
    return indent(json.dumps(value, indent=2, ensure_ascii=False), "  ")
