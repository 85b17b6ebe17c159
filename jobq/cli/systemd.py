"""`jobq systemd`: a hardened systemd unit for one worker, whose limits follow from the options of that worker.

Only text: nothing is installed, and your module is not loaded, which may need what is there on the server only.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from jobq.cli.durations import in_seconds
from jobq.cli.output import say
from jobq.cli.target import Target, read_target
from jobq.cli.worker_options import (
    AppDir,
    AppQueue,
    CancelGrace,
    Concurrency,
    Grace,
    Http,
    StartLimit,
    WorkerLease,
    read_concurrency,
    times_of,
)
from jobq.settings import DEFAULT_SLOTS, WorkerSettings

EXAMPLES = "Example: jobq systemd app:queue --http 127.0.0.1:8080 --grace 60s > /etc/systemd/system/jobq-app.service"

WATCHDOG_S = 30
"""Without a sign of life for so long systemd kills the worker; it gives one three times as often, or every 5 s."""

RESTART_S = 2
"""Long enough not to spin over a broken start, short against everything that waits for the worker."""

SPARE_S = 6
"""For the last lines of the log, on a machine that is busy with the stop of everything else."""

ENVIRONMENT_FILE = "/etc/jobq.env"

_HOMES = ("/home", "/root", "/run/user")
_TEMPORARY = ("/tmp", "/var/tmp")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}")


def _user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is no name of a user.")
    return text


def systemd(
    target: AppQueue,
    concurrency: Concurrency = None,
    grace: Grace = None,
    cancel_grace: CancelGrace = None,
    start_limit: StartLimit = None,
    worker_lease: WorkerLease = None,
    http: Http = None,
    user: Annotated[
        str | None,
        typer.Option(parser=_user, metavar="NAME", help="Run as this user. Without it, as one that systemd makes up."),
    ] = None,
    app_dir: AppDir = Path(),
) -> None:
    """Print a hardened systemd unit that runs this worker.

    Takes the options of `jobq run`; the unit's own limits follow from them, so print it anew rather than edit a grace.
    What the environment or the settings file states is written into it. The DSN is not in it: it comes from an
    environment file, which the unit names. A duration is 25s, 10m or 1h30m; a number alone counts seconds.
    """
    wanted = read_target(target)
    slots, default_slots = read_concurrency(concurrency)
    times = times_of(grace=grace, cancel_grace=cancel_grace, start_limit=start_limit, worker_lease=worker_lease)
    settings = WorkerSettings(slots=slots, default_slots=default_slots or DEFAULT_SLOTS, **times)
    spans = {
        "--grace": grace,
        "--cancel-grace": cancel_grace,
        "--start-limit": start_limit,
        "--worker-lease": worker_lease,
    }
    options = [word for one in concurrency or [] for word in ("--concurrency", one)]
    for name, span in spans.items():
        if span is not None:
            options += [name, in_seconds(span)]
    if http is not None:
        options += ["--http", str(http)]
    program = _program()
    places = [app_dir, Path(program[0]), Path(sys.prefix), Path(sys.base_prefix)]
    for obstacle in obstacles(places, user):
        say(obstacle)
    typer.echo(
        unit(
            wanted,
            program,
            [target, *options],
            settings=settings,
            directory=app_dir,
            user=user,
            at_home=_any_in(places, _HOMES),
        )
    )


def unit(
    target: Target,
    program: list[str],
    arguments: list[str],
    *,
    settings: WorkerSettings,
    directory: Path,
    user: str | None,
    at_home: bool,
) -> str:
    """Return the text of the unit that runs *program* with *arguments*.

    *at_home* says whether the program or the application is in somebody's home directory.
    """
    name = f"jobq-{target.module.replace('.', '-')}"
    return _UNIT.format(
        name=name,
        target=target.text,
        made_by=shlex.join(["jobq", "systemd", *arguments, *([] if user is None else ["--user", user])]),
        environment_file=ENVIRONMENT_FILE,
        directory=str(directory).replace("%", "%%"),
        command=" ".join(_word(word) for word in [*program, "run", *arguments]),
        stop_s=in_seconds(timedelta(seconds=settings.stop_limit_s + SPARE_S)),
        grace_s=in_seconds(timedelta(seconds=settings.grace_s)),
        watchdog_s=WATCHDOG_S,
        restart_s=RESTART_S,
        user="DynamicUser=yes" if user is None else f"User={user}",
        home="read-only" if at_home else "tmpfs",
    ).rstrip("\n")


def _program() -> list[str]:
    """Return the words that start the `jobq` in use, with an absolute path."""
    called = Path(sys.argv[0]).absolute()
    beside = Path(sys.executable).with_name("jobq")
    for path in (called, beside):
        if path.name == "jobq" and path.is_file():
            return [str(path)]
    return [sys.executable, "-P", "-m", "jobq.cli.main"]


def obstacles(places: list[Path], user: str | None) -> Iterator[str]:
    """Yield what would keep the unit, run as *user*, from reading *places*."""
    for place in dict.fromkeys(places):
        if _any_in([place], _TEMPORARY):
            yield f"{place} is hidden from the unit by PrivateTmp=: install it elsewhere"
        elif user is None and _any_in([place], _HOMES):
            yield f"{place} is in a home directory: add --user with its owner, or install it elsewhere"


def _any_in(places: list[Path], roots: tuple[str, ...]) -> bool:
    return any(place.is_relative_to(root) for place in places for root in roots)


def _word(text: str) -> str:
    """Return *text* as one word of ExecStart=, see systemd.service(5): `%` and `$` would be replaced."""
    text = text.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$()\[\]-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_UNIT = """\
# {name}.service: a jobq worker for {target}
#
# Made by: {made_by}
#
# Install:  put this at /etc/systemd/system/{name}.service, and the DSN into {environment_file}
#           (JOBQ_DSN=postgresql://user:password@host/database; owner root, mode 0600), then
#           systemctl daemon-reload && systemctl enable --now {name}
# Look:     systemctl status {name}; journalctl -u {name}; systemd-analyze security {name}
# Two of them on one host: save it under two names, with two addresses for --http.

[Unit]
Description=jobq worker for {target}
Documentation=man:systemd.service(5)
Wants=network-online.target
After=network-online.target postgresql.service
# However often it fails, it is tried again: a database that comes an hour later must not find the worker given up.
StartLimitIntervalSec=0

[Service]
# READY=1 comes once the worker is registered in the database, STATUS= says whether it works.
Type=notify
NotifyAccess=main
ExecStart={command}
WorkingDirectory={directory}
# No `-` before the path: without the file there is no DSN, and the start must fail.
EnvironmentFile={environment_file}
Environment=PYTHONUNBUFFERED=1

# The worker waits for its database itself, and exits with 75 if that stays away.
TimeoutStartSec=infinity
# SIGTERM drains: {grace_s} of grace, then clean-up and the last outcomes, with a limit after which the worker ends by
# itself, with its log written. Shorter than that would kill jobs that could have been handed back.
TimeoutStopSec={stop_s}
# The signal goes to the worker only: a program that a handler has started belongs to a job that may finish.
KillMode=mixed

# Fed while every loop of the worker comes round, also while the database is away or a handler blocks the event loop
# within its time-out. The abort leaves the stack of every thread in the journal.
WatchdogSec={watchdog_s}
WatchdogSignal=SIGABRT
Environment=PYTHONFAULTHANDLER=1
LimitCORE=0

# 0: drained. 3: drained, and handed back what did not finish in time: in order. 1: crashed. 75: no database.
# 78: wrong configuration (DSN, schema, app:queue): the same start would fail the same way.
Restart=always
RestartSec={restart_s}
SuccessExitStatus=3
RestartPreventExitStatus=78

# What a worker needs is the network, its own code to read, and a /tmp of its own. Loosen what your handlers need:
# files to write (ReadWritePaths=/srv/uploads), another user's home, code that is compiled while it runs (numba, torch:
# MemoryDenyWriteExecute=no), a browser or a container (RestrictNamespaces=, SystemCallFilter=).
{user}
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
PrivateMounts=yes
DevicePolicy=closed
ProtectSystem=strict
# An empty /home rather than none: the driver looks there for ~/.pgpass and ~/.postgresql.
ProtectHome={home}
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
KeyringMode=private
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
# An error that Python can tell, in place of a killed worker.
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
