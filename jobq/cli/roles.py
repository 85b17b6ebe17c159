"""`jobq roles`: the SQL of the roles that share an instance's work, for a DBA to read and to run."""

from __future__ import annotations

from typing import Annotated

import typer

from jobq.cli.database import Schema
from jobq.db.roles import DEFAULT_PREFIX, roles_sql
from jobq.settings import DEFAULT_SCHEMA

EXAMPLES = "Example: jobq roles --prefix shop_ > roles.sql"


def roles(
    schema: Schema = DEFAULT_SCHEMA,
    prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="What the names of the roles begin with.")
    ] = DEFAULT_PREFIX,
) -> None:
    """Print the SQL of the roles owner, producer, worker, reader and operator, each with the least rights it needs.

    Changes nothing: pipe it into psql as a superuser. Before the first migration it makes the roles and the schema, and
    says that it has to be run again afterwards; so it has after every upgrade. A schema of another version refuses it.
    The roles cannot log in: grant them to the users that can. Needs no database.
    """
    typer.echo(roles_sql(schema, prefix=prefix), nl=False)
