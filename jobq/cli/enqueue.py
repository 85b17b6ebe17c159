"""`jobq enqueue`: add one job by the name of its kind, from a shell, a cron line or a deployment script."""

from __future__ import annotations

import json
import sys
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from jobq.cli.database import Dsn, Embedded, Instance, Schema, on_connection
from jobq.cli.durations import duration
from jobq.cli.output import AsJson, print_json, printable, say
from jobq.cli.usage import UsageError
from jobq.core.enqueue import make_row
from jobq.core.job import DEFAULT_QUEUE
from jobq.core.names import shown
from jobq.db.overview import Overview, Unserved
from jobq.errors import DatabaseError, EnqueueError, LargePayloadWarning
from jobq.queue import Queue
from jobq.settings import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from jobq.core.job import Enqueued
    from jobq.db.connect import AnyConnection

EXAMPLES = """\
Examples:
  jobq enqueue send_receipt '{"order_id": 7}' --queue mail
  jobq enqueue close_month --in 90m --idempotency-key month:2026-03
  jobq enqueue close_month --at 2026-04-01T06:00+02:00 --priority 8"""

AROUND = 30
"""Characters of a broken payload that are shown on either side of the mistake."""


def _moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time in ISO 8601: write 2026-04-01T06:00+02:00.") from None
    if at.tzinfo is None:
        example = at.isoformat(timespec="minutes")
        raise typer.BadParameter(f"{text!r} has no time zone: write {example}+02:00, or {example}Z for UTC.")
    return at


def enqueue(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="The name of the kind, such as send_receipt.", show_default=False)
    ],
    payload: Annotated[
        str,
        typer.Argument(metavar="JSON", help="The payload, an object ({}); - reads it from stdin.", show_default=False),
    ] = "{}",
    queue: Annotated[
        str,
        typer.Option(
            "--queue", metavar="NAME", help="The queue it goes to: one that a worker with its handler serves."
        ),
    ] = DEFAULT_QUEUE,
    delay: Annotated[
        timedelta | None,
        typer.Option(
            "--in", parser=duration, metavar="DURATION", help="Not before 30s, 15m, 24h, 7d, ... have passed."
        ),
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option("--at", parser=_moment, metavar="TIME", help="Not before this time, in ISO 8601 with its zone."),
    ] = None,
    priority: Annotated[int | None, typer.Option(metavar="0-9", help="0 runs first, 9 last; 5 if not stated.")] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Add nothing if a job of this kind was enqueued with this key in 24 hours."),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(metavar="N", help="How often it may start; if not stated, the handler's."),
    ] = None,
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Add a job, and print its id.

    The handler need not be known here: kind and payload are checked when it runs, and a payload that does not fit makes
    a dead letter. Without --in or --at the job is due at once.
    """
    if delay is not None and at is not None:
        raise UsageError("--in and --at both say when it is due: choose one of them.")
    values = _read_payload(sys.stdin.buffer.read() if payload == "-" else payload)
    jobs = Queue(schema=schema)

    async def add(conn: AnyConnection) -> tuple[Enqueued, bool]:
        answer = await jobs.enqueue(job, conn=conn, autocommit=True)
        return answer, answer.created and await _is_unserved(kind, queue, conn, schema)

    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always", LargePayloadWarning)
        try:
            job = jobs.job(kind, values).with_options(
                queue=queue,
                run_at=at if delay is None else delay,
                priority=priority,
                idempotency_key=idempotency_key,
                max_attempts=max_attempts,
            )
            make_row(job, now=datetime.now(UTC))  # refused before there is a connection
            answer, unserved = on_connection(Instance(dsn, schema, embedded), add)
        except EnqueueError as error:
            raise UsageError(f"{error}.") from None
    for remark in remarks:
        if issubclass(remark.category, LargePayloadWarning):
            say(f"jobq: {remark.message}")
    if as_json:
        print_json({"id": answer.id, "created": answer.created})
    elif answer.created:
        typer.echo(f"{answer.id} enqueued in queue {queue}")
    else:
        typer.echo(f"{answer.id} was already enqueued with this idempotency key; nothing is added")
    if unserved:
        say(f"jobq: no live worker takes {kind} from queue {queue}: the job waits for one")


async def _is_unserved(kind: str, queue: str, conn: AnyConnection, schema: str) -> bool:
    """Say whether it is known that nobody would take this job. Never fails: it is enqueued all the same."""
    try:
        standing = await Overview(schema).look(conn)
    except DatabaseError:
        return False
    served = any(one.workers for one in standing.queues if one.queue == queue)
    return not served or Unserved(queue, kind) in standing.unserved


def _read_payload(source: str | bytes) -> dict[str, object]:
    """Return the JSON object that *source*, an argument or what stdin gave, spells. Raises `typer.BadParameter`."""
    try:
        text = source.decode() if isinstance(source, bytes) else source
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise _refused(_not_json(error)) from None
    except UnicodeDecodeError as error:
        raise _refused(f"stdin is not UTF-8 at byte {error.start}: convert it.") from None
    except RecursionError:
        raise _refused("it is nested too deeply: pass an id to load it by.") from None
    if not isinstance(value, dict):
        raise _refused(f'{shown(text)} is no JSON object: write one such as {{"order_id": 7}}.')
    return value


def _not_json(error: json.JSONDecodeError) -> str:
    """Show the place, and what to do about it."""
    line = error.doc.splitlines()[error.lineno - 1] if error.doc.strip() else ""
    return (
        f"not JSON at line {error.lineno}, column {error.colno}: {error.msg}\n\n{_marked(line, error.colno - 1)}\n\n"
        "Write an object such as {\"order_id\": 7}, with double quotes inside, and '...' around it for the shell."
    )


def _marked(line: str, position: int) -> str:
    """Return the part of *line* around *position*, with a mark below it."""
    start = max(0, position - AROUND)
    left, right = "..." if start else "", "..." if position + AROUND < len(line) else ""
    before = f"  {left}{printable(line[start:position])}"
    return f"{before}{printable(line[position : position + AROUND])}{right}\n{' ' * len(before)}^"


def _refused(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="JSON")
