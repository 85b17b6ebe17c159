"""`jobq explain ID`: why a job is not running, in one sentence. The words are those of the SQL function `explain`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from jobq.cli.database import Dsn, Embedded, Instance, Schema, on_connection
from jobq.cli.output import AsJson, print_json, printable
from jobq.core.job import JobId
from jobq.db.reports import Reports
from jobq.errors import JobqError
from jobq.settings import DEFAULT_SCHEMA

EXAMPLES = "Example: jobq explain 4711"

UNKNOWN = "unknown"


def explain(
    id_: Annotated[int, typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="The job's id.", show_default=False)],
    dsn: Dsn = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Say why a job is not running, in one sentence with the numbers.

    It is scheduled, waits after a failed attempt, has others before it, finds no worker, no handler or no slot, runs,
    has ended, or is a dead letter. psql says the same: select * from jobq.explain(4711).
    """
    job_id = JobId(id_)
    found = on_connection(Instance(dsn, schema, embedded), lambda conn: Reports(schema).explain_job(conn, job_id))
    if found.reason == UNKNOWN:
        raise JobqError(found.sentence.removesuffix("."))
    if as_json:
        print_json(
            {"id": id_, "reason": found.reason, "sentence": found.sentence, "numbers": json.loads(found.numbers)}
        )
    else:
        typer.echo(printable(found.sentence))
