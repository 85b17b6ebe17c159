"""Settings of a process: where they come from, their limits, and how they fit together. Checked before use."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote

import msgspec

from jobq.errors import ConfigurationError

DSN_VARIABLES = ("JOBQ_DSN", "DATABASE_URL")
"""Where the DSN is looked for when none is given, in this order."""

LISTEN_DSN_VARIABLE = "JOBQ_LISTEN_DSN"
PREPARED_STATEMENTS_VARIABLE = "JOBQ_PREPARED_STATEMENTS"

_SWITCH = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}

DEFAULT_SCHEMA = "jobq"
DEFAULT_SLOTS = 100

REST_S = 4.0
"""How long a stop may take once the handlers have cleaned up: last outcomes, lifespan, farewell."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,39}")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody states about the way to the database; None is left open."""

    dsn: str | None = None
    listen_dsn: str | None = None
    prepared_statements: bool | None = None

    def over(self, other: Access) -> Access:
        """Return what holds where this goes before *other*."""
        return Access(
            dsn=other.dsn if self.dsn is None else self.dsn,
            listen_dsn=other.listen_dsn if self.listen_dsn is None else self.listen_dsn,
            prepared_statements=(
                other.prepared_statements if self.prepared_statements is None else self.prepared_statements
            ),
        )


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The way to the database: *listen_dsn* for LISTEN, *dsn* for everything else.

    Without *prepared_statements* nothing that is sent outlasts its transaction on the server: for poolers.
    """

    dsn: str
    listen_dsn: str
    prepared_statements: bool = True


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker behaves. All times are seconds.

    *slots* states the concurrency of single queues, *default_slots* that of the others. A worker that is asked to
    stop gives running jobs *grace_s*, cancels the rest, and gives their cleanup *cancel_grace_s*.
    """

    slots: Mapping[str, int] = msgspec.field(default_factory=dict)
    default_slots: int = DEFAULT_SLOTS
    poll_s: float = 1.0
    busy_poll_s: float = 0.010
    worker_lease_s: float = 20.0
    beat_s: float = 5.0
    beat_deadline_s: float = 3.0
    job_lease_s: float = 60.0
    grace_s: float = 25.0
    cancel_grace_s: float = 5.0
    sweep_s: float = 0.1
    statement_deadline_s: float = 10.0
    start_limit_s: float = 60.0
    upkeep_s: float = 60.0
    recurring_s: float = 5.0
    tally_s: float = 30.0
    overview_s: float = 15.0
    """How often `/metrics` learns how the whole queue stands; seldomer if that takes long."""
    slots_stuck_s: float = 300.0
    """How long all slots may be busy and nothing finish before that is a warning: for jobs of hours more."""

    def __post_init__(self) -> None:
        for queue, slots in {**self.slots, "(default)": self.default_slots}.items():
            if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= 10_000:
                raise ConfigurationError(f"queue {queue!r} has concurrency {slots!r}: it must be 1 to 10,000")
        for name in ("grace_s", "cancel_grace_s", "start_limit_s"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}: it must be 0 or more seconds")
        for name in (
            "poll_s",
            "busy_poll_s",
            "worker_lease_s",
            "beat_s",
            "beat_deadline_s",
            "job_lease_s",
            "sweep_s",
            "statement_deadline_s",
            "upkeep_s",
            "recurring_s",
            "tally_s",
            "overview_s",
            "slots_stuck_s",
        ):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}: it must be more than 0 seconds, and finite"
                )
        if self.beat_s * 3 > self.worker_lease_s:
            raise ConfigurationError(
                f"beat_s {self.beat_s:g} is more than a third of worker_lease_s {self.worker_lease_s:g}: two late beats"
                " would cost the lease; lower the one or raise the other"
            )
        if self.beat_s + self.beat_deadline_s > self.worker_lease_s:
            raise ConfigurationError(
                f"beat_s {self.beat_s:g} and beat_deadline_s {self.beat_deadline_s:g} together exceed worker_lease_s"
                f" {self.worker_lease_s:g}: one silent beat would cost the lease; lower them or raise the lease"
            )
        if self.statement_deadline_s * 2 > self.job_lease_s:
            raise ConfigurationError(
                f"statement_deadline_s {self.statement_deadline_s:g} is more than half of job_lease_s"
                f" {self.job_lease_s:g}: a single late answer would cost the lease; lower the one or raise the other"
            )

    @property
    def hurried_stop_limit_s(self) -> float:
        """How long a stop without grace may take: the handlers' clean-up and the rest."""
        return self.cancel_grace_s + REST_S

    @property
    def stop_limit_s(self) -> float:
        """How long a stop may take, whatever is broken: with the default cancel grace less than the grace and 10 s."""
        return self.grace_s + self.hurried_stop_limit_s

    def slots_of(self, queue: str) -> int:
        """Return how many jobs of *queue* one executor of this worker runs at once."""
        return self.slots.get(queue, self.default_slots)


def find_route(given: Access, environment: Mapping[str, str]) -> Route:
    """Return what is *given*, completed from the environment. Raises `ConfigurationError` as `find_dsn` does."""
    dsn = find_dsn(given.dsn, environment)
    if given.listen_dsn is not None:
        listen_dsn = check_dsn(given.listen_dsn, source="the given listen_dsn")
    elif stated := environment.get(LISTEN_DSN_VARIABLE):
        listen_dsn = check_dsn(stated, source=LISTEN_DSN_VARIABLE)
    else:
        listen_dsn = dsn
    prepared: object = given.prepared_statements
    if prepared is None:
        stated = environment.get(PREPARED_STATEMENTS_VARIABLE) or "on"
        if (prepared := read_switch(stated)) is None:
            raise ConfigurationError(f"{PREPARED_STATEMENTS_VARIABLE}: {stated[:40]!r} is neither on nor off")
    if not isinstance(prepared, bool):
        raise ConfigurationError(f"prepared_statements is {prepared!r}: it must be True, or False behind a pooler")
    return Route(dsn=dsn, listen_dsn=listen_dsn, prepared_statements=prepared)


def read_switch(text: str) -> bool | None:
    """Return whether *text* says on or off, or None if it says neither."""
    return _SWITCH.get(text.lower())


def find_dsn(given: str | None, environment: Mapping[str, str]) -> str:
    """Return the DSN: the *given* one, else `JOBQ_DSN`, else `DATABASE_URL`.

    Raises `ConfigurationError` if there is none, or if it is not one that asyncpg understands. There is no
    default: a missing environment file must not make a worker run on an empty database.
    """
    if given is not None:
        return check_dsn(given, source="the given DSN")
    for variable in DSN_VARIABLES:
        if dsn := environment.get(variable):
            return check_dsn(dsn, source=variable)
    raise ConfigurationError(
        "no database: set JOBQ_DSN (or DATABASE_URL) to postgresql://user@host/database, pass --dsn,"
        " or try it on an embedded server with --embedded"
    )


def check_dsn(dsn: str, *, source: str) -> str:
    """Return *dsn*, which *source* states. Raises `ConfigurationError` if it cannot be told apart into its parts.

    The message shows no more of it than the scheme: the rest may hold a password, and where it cannot be told apart, so
    may any part. The driver would show the part that it stumbles over.
    """
    scheme, separator, rest = dsn.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        raise ConfigurationError(
            f"{source} is no URI: a DSN looks like postgresql://user@host/database (see libpq's URIs)"
        )
    if scheme not in ("postgresql", "postgres"):
        remedy = "drop the +driver part" if scheme.startswith(("postgresql+", "postgres+")) else "see libpq's URIs"
        raise ConfigurationError(
            f"{source} starts with {scheme!r}: a DSN looks like postgresql://user@host/database ({remedy})"
        )
    if fault := _dsn_fault(rest):
        raise ConfigurationError(
            f"{source} {fault}: in a user or password write %40 for @, %3A for :, %2F for /, %3F for ?, %23 for #,"
            " %25 for %, %5B for ["
        )
    return dsn


def _dsn_fault(rest: str) -> str | None:
    """Say why what follows `postgresql://` cannot be told apart, without a word of it, or return None."""
    address, _, query = rest.partition("?")
    authority, _, path = address.partition("/")
    if "#" in rest:
        return "has a #, and what follows it would be ignored"
    if authority.count("@") > 1 or "@" in path:
        return "has an @ in its user, password or path"
    hosts = authority.rpartition("@")[2]
    if authority.count("[") != authority.count("]") or "[" in authority.removesuffix(hosts):
        return "has a [ or ] that is none of an IPv6 address"
    for host in hosts.split(","):
        port = re.sub(r"^\[[^\]]*\]", "", unquote(host)).partition(":")[2]
        if port and not port.isdecimal():
            return "has a port that is no number"
    try:
        parse_qs(query, strict_parsing=bool(query))
    except ValueError:
        return "has something other than name=value after the ?"
    return None
