"""`jobq doctor`: what will hurt, and the remedy. The rules stand in `jobq/doctor`, the facts in `jobq/db/facts.py`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from jobq.cli.database import (
    Dsn,
    Embedded,
    Instance,
    ListenDsn,
    PreparedStatements,
    Schema,
    StatedDsn,
    dsn_of,
    on_connection_to,
    stated_access,
)
from jobq.cli.output import AsJson, print_json, printable
from jobq.cli.target import as_queue, load, read_target
from jobq.cli.worker_options import AppDir, MaybeAppQueue
from jobq.db.blueprint import wanted_indexes
from jobq.db.facts import FactReports, Facts, hears
from jobq.db.hosts import dsn_of_each_host
from jobq.db.migrate import check_version
from jobq.doctor.examination import examine
from jobq.doctor.finding import Finding, KindRules, Severity, Surroundings
from jobq.settings import DEFAULT_SCHEMA, Access, find_route

if TYPE_CHECKING:
    from jobq.db.connect import AnyConnection
    from jobq.queue import Queue

EXAMPLES = "Example: jobq doctor, or with the rules of your kinds: jobq doctor app:queue"

EXIT_CODES = {Severity.LOOK: 4, Severity.HURTS: 5}


def doctor(
    target: MaybeAppQueue = None,
    dsn: Dsn = None,
    listen_dsn: ListenDsn = None,
    prepared_statements: PreparedStatements = None,
    schema: Schema = DEFAULT_SCHEMA,
    embedded: Embedded = False,
    app_dir: AppDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Say what will hurt, and the remedy.

    Looks at the server, the schema, the workers and the jobs, and changes nothing. With your application it knows the
    time-outs of the kinds, and which say what a second run does; its schema and its DSN hold then, as for `jobq run`.
    What this role may not see is named. Exit codes: 0 nothing found, 4 something is worth a look, 5 something will
    hurt.
    """
    queue = None if target is None else _load(target, app_dir)
    access = _access(
        queue, *(stated_access(dsn, listen_dsn, prepared_statements, is_typed=one) for one in (True, False))
    )
    stated = None if access.dsn is None or embedded else StatedDsn(access.dsn, dsn is not None and dsn.is_typed)
    instance = Instance(stated, schema if queue is None else queue.schema, embedded)
    with dsn_of(instance) as server_dsn:
        route = find_route(
            Access(
                dsn=server_dsn,
                listen_dsn=server_dsn if embedded else access.listen_dsn,
                prepared_statements=access.prepared_statements,
            ),
            os.environ,
        )

        async def look(conn: AnyConnection) -> tuple[Facts, bool | None]:
            facts = await FactReports(instance.schema).gather(conn)
            if facts.version == 0:
                await check_version(conn, instance.schema)  # which says what to do
            # Only a pooler keeps notifications back, and each try costs a connection.
            is_pooled = facts.told_pid != facts.server.pid
            return facts, await hears(conn, instance.schema, route.listen_dsn) if is_pooled else None

        facts, is_heard = asyncio.run(on_connection_to(server_dsn, instance, look, any_version=True))
    surroundings = Surroundings(
        hosts=len(dsn_of_each_host(route.dsn)),
        prepared_statements=route.prepared_statements,
        hears=is_heard,
        kinds=[] if queue is None else _kinds(queue),
    )
    findings = examine(facts, surroundings, wanted_indexes(instance.schema))
    if as_json:
        print_json({"findings": [msgspec.to_builtins(one) for one in findings], "unseen": facts.unseen})
    else:
        for line in report(findings, facts.unseen):
            typer.echo(line)
    raise typer.Exit(max((EXIT_CODES[one.severity] for one in findings), default=0))


def _load(target: str, app_dir: Path) -> Queue:
    sys.path.insert(0, str(app_dir))  # it stays, for what an async factory imports when it runs
    wanted = read_target(target)
    return asyncio.run(as_queue(wanted, load(wanted, directory=app_dir)))


def _access(queue: Queue | None, typed: Access, configured: Access) -> Access:
    """Return what holds, as for `jobq run`: what is typed, then what the code states, then what is configured."""
    return typed.over(configured) if queue is None else typed.over(queue.access).over(configured)


def _kinds(queue: Queue) -> list[KindRules]:
    return [
        KindRules(handler.kind, handler.timeout_s, handler.on_duplicate)
        for _, handler in sorted(queue.handlers.items())
    ]


def report(findings: Sequence[Finding], unseen: Sequence[str]) -> Iterator[str]:
    """Yield the lines that a person reads."""
    for one in findings:
        yield printable(f"{one.severity}: {one.title}")
        yield printable(f"  {one.detail}")
        yield printable(f"  remedy: {one.remedy}")
        yield ""
    for what in unseen:
        yield f"not seen, for want of rights: {what}"
    counts = Counter(one.severity for one in findings)
    yield (
        ", ".join(
            f"{counts[severity]} {noun}"
            for severity, noun in ((Severity.HURTS, "will hurt"), (Severity.LOOK, "worth a look"))
            if counts[severity]
        )
        or "Nothing found that will hurt."
    )
