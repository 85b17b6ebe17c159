"""`jobq`: all commands, what their errors look like, and with which code the process ends.

    0    done
    1    something failed: a job's dead letter that is not there, a statement that PostgreSQL refused, your own code
    2    the command line is wrong, or the job that `jobq enqueue` is given
    3    run: the drain ran out, and jobs were handed back
    4    doctor: something is worth a look
    5    doctor: something will hurt
    75   the database is not there
    78   wrong configuration: no DSN, no schema, no such app:queue, a setting that cannot be; starting again will not
         help
    130  interrupted

Errors of jobq are one line on stderr. Anything else keeps its traceback: it is a bug, or raised by the user's code.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from jobq.cli import (
    config,
    cron,
    dead,
    demo,
    doctor,
    enqueue,
    explain,
    jobs,
    kinds,
    migrate,
    roles,
    run,
    stats,
    systemd,
)
from jobq.cli.ending import FAILED, end
from jobq.cli.origins import Commands
from jobq.cli.output import inner_frames
from jobq.cli.target import UserCodeError
from jobq.cli.usage import examples
from jobq.core.redaction import cover_passwords
from jobq.errors import AccessRefusedError, ConfigurationError, DatabaseUnavailableError, JobqError

NO_DATABASE = 75  # EX_TEMPFAIL of sysexits.h: worth another start
BAD_CONFIGURATION = 78  # EX_CONFIG: not worth one
INTERRUPTED = 130

EPILOG = """\
Examples:
  jobq migrate --dsn postgresql://app@db/shop
  jobq run app:queue
  jobq dead list

Exit codes:
  0 done, 1 failed, 2 wrong command line, 3 run: jobs were handed back,
  4 doctor: worth a look, 5 doctor: will hurt,
  75 no database, 78 wrong configuration, 130 interrupted"""

app = typer.Typer(
    name="jobq",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", epilog=examples(run.EXAMPLES))(run.run)
app.command("migrate", epilog=examples(migrate.EXAMPLES))(migrate.migrate)
app.command("enqueue", epilog=examples(enqueue.EXAMPLES))(enqueue.enqueue)
app.command("stats", epilog=examples(stats.EXAMPLES))(stats.stats)
app.command("jobs", epilog=examples(jobs.EXAMPLES))(jobs.jobs)
app.command("explain", epilog=examples(explain.EXAMPLES))(explain.explain)
app.add_typer(dead.app, name="dead")
app.add_typer(cron.app, name="cron")
app.command("doctor", epilog=examples(doctor.EXAMPLES))(doctor.doctor)
app.command("kinds", epilog=examples(kinds.EXAMPLES))(kinds.kinds)
app.command("config", epilog=examples(config.EXAMPLES))(config.config)
app.command("roles", epilog=examples(roles.EXAMPLES))(roles.roles)
app.command("systemd", epilog=examples(systemd.EXAMPLES))(systemd.systemd)
app.command("demo", epilog=examples(demo.EXAMPLES))(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"jobq {version('jobq')}")
        except PackageNotFoundError:
            typer.echo("jobq of a source tree that is not installed")
        raise typer.Exit


@app.callback(epilog=examples(EPILOG))
def jobq(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Background jobs in PostgreSQL."""


def main() -> None:
    """Be the program `jobq`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of another encoding is no reason to fail
    end(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run the command that *arguments* name, report its errors on stderr, and return the exit code."""
    try:
        app(arguments, prog_name="jobq")
        return 0
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except UserCodeError as error:
        sys.stderr.write(cover_passwords(error.user_traceback()))
        return _report(error, error.error)
    except JobqError as error:
        return _report(error, error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:
        frames = inner_frames(error) or error.__traceback__
        sys.stderr.write(cover_passwords("".join(traceback.format_exception(type(error), error, frames))))
        return FAILED


def _report(error: Exception, cause: BaseException) -> int:
    typer.echo(f"jobq: {cover_passwords(str(error))}", err=True)
    match cause:
        case ConfigurationError() | AccessRefusedError():
            return BAD_CONFIGURATION
        case DatabaseUnavailableError():
            return NO_DATABASE
        case _:
            return FAILED


if __name__ == "__main__":
    main()
