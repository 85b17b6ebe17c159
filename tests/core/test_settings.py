"""Settings are checked before use, and the DSN is never guessed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobq.errors import ConfigurationError
from jobq.settings import DEFAULT_SLOTS, Access, Route, WorkerSettings, find_dsn, find_route
from tests.core.strategies import FEW

DSN = "postgresql://app@db/app"


def settings_with(name: str, value: Any) -> WorkerSettings:
    return WorkerSettings(**{name: value})


def test_the_defaults_are_those_of_the_design() -> None:
    """They fit together: making them raises nothing."""
    defaults = WorkerSettings()

    assert (defaults.poll_s, defaults.grace_s, defaults.cancel_grace_s) == (1.0, 25.0, 5.0)
    assert (defaults.worker_lease_s, defaults.beat_s, defaults.job_lease_s) == (20.0, 5.0, 60.0)
    assert (defaults.beat_deadline_s, defaults.statement_deadline_s) == (3.0, 10.0)
    assert defaults.slots_of("anything") == DEFAULT_SLOTS == 100


def test_a_queue_has_its_own_slots_or_the_default() -> None:
    """Slots are stated by queue, so a typo in a name falls back to the default."""
    settings = WorkerSettings(slots={"mail": 20}, default_slots=7)

    assert (settings.slots_of("mail"), settings.slots_of("reports")) == (20, 7)


@pytest.mark.parametrize("slots", [0, -1, 10_001, 2.0, True, "20", None], ids=repr)
def test_slots_are_one_to_ten_thousand(slots: Any) -> None:
    """Stated for a queue or for all; the message names the queue and the value."""
    with pytest.raises(ConfigurationError, match=f"'mail' has concurrency {slots!r}"):
        WorkerSettings(slots={"mail": slots})
    with pytest.raises(ConfigurationError, match=f"concurrency {slots!r}"):
        WorkerSettings(default_slots=slots)


@pytest.mark.parametrize("name", ["grace_s", "cancel_grace_s", "start_limit_s"])
def test_a_wait_may_be_none_at_all(name: str) -> None:
    """Zero is fine for what only waits, less is not, nor is what is no number."""
    settings_with(name, 0)

    for value in (-0.1, float("nan")):
        with pytest.raises(ConfigurationError, match=f"{name} is {value!r}"):
            settings_with(name, value)


@pytest.mark.parametrize(
    "name",
    [
        *("poll_s", "busy_poll_s", "sweep_s", "statement_deadline_s", "upkeep_s", "tally_s", "slots_stuck_s"),
        *("worker_lease_s", "beat_s", "beat_deadline_s", "job_lease_s"),
    ],
)
def test_a_period_is_not_zero(name: str) -> None:
    """A loop without a pause is a spin."""
    for value in (0, -1, float("nan")):
        with pytest.raises(ConfigurationError, match=f"{name} is {value!r}"):
            settings_with(name, value)


@pytest.mark.parametrize(
    "name",
    [
        "poll_s",
        "busy_poll_s",
        "sweep_s",
        "upkeep_s",
        "tally_s",
        "slots_stuck_s",
        "worker_lease_s",
        "beat_s",
        "beat_deadline_s",
        "job_lease_s",
    ],
)
def test_a_period_ends(name: str) -> None:
    """A poll, a sweep or a lease that never comes round is a mistake."""
    with pytest.raises(ConfigurationError, match=f"{name} is inf"):
        settings_with(name, float("inf"))


def test_a_statement_must_fit_twice_into_a_lease() -> None:
    """What interacts is checked together, and the message has both values."""
    WorkerSettings(statement_deadline_s=10, job_lease_s=20)

    with pytest.raises(ConfigurationError, match=r"statement_deadline_s 10 is more than half of job_lease_s 19\.9"):
        WorkerSettings(statement_deadline_s=10, job_lease_s=19.9)


def test_three_beats_must_fit_into_a_lease() -> None:
    """F32: one may come late and one be lost; the message has both values and what to do."""
    WorkerSettings(beat_s=5, worker_lease_s=15)

    with pytest.raises(ConfigurationError, match=r"beat_s 5 is more than a third of worker_lease_s 14\.9: .* lower"):
        WorkerSettings(beat_s=5, worker_lease_s=14.9)
    with pytest.raises(ConfigurationError, match=r"beat_s 5 is more than a third of worker_lease_s 3:"):
        WorkerSettings(worker_lease_s=3)


def test_a_silent_beat_must_fit_into_a_lease() -> None:
    """Its deadline and the wait for the next one together."""
    WorkerSettings(worker_lease_s=3, beat_s=1, beat_deadline_s=2)

    with pytest.raises(ConfigurationError, match=r"beat_s 1 and beat_deadline_s 3 together exceed worker_lease_s 3"):
        WorkerSettings(worker_lease_s=3, beat_s=1)


@given(
    st.none() | st.just(DSN),
    st.dictionaries(st.sampled_from(["JOBQ_DSN", "DATABASE_URL", "PGHOST"]), st.sampled_from(["", "postgres://e/e"])),
)
@FEW
def test_the_given_dsn_goes_first(given_dsn: str | None, environment: dict[str, str]) -> None:
    """Then `JOBQ_DSN`, then `DATABASE_URL`, an empty one being none; without any there is an error, no default."""
    stated = environment.get("JOBQ_DSN") or environment.get("DATABASE_URL")

    if given_dsn or stated:
        assert find_dsn(given_dsn, environment) == (given_dsn or stated)
    else:
        with pytest.raises(ConfigurationError, match=r"set JOBQ_DSN .* --embedded"):
            find_dsn(given_dsn, environment)


def test_jobq_dsn_goes_before_database_url() -> None:
    """The more special variable wins."""
    assert find_dsn(None, {"DATABASE_URL": "postgres://a/a", "JOBQ_DSN": "postgres://b/b"}) == "postgres://b/b"


@pytest.mark.parametrize(
    ("dsn", "remedy"),
    [
        ("postgresql+asyncpg://db/app", "drop the +driver part"),
        ("postgres+psycopg://db/app", "drop the +driver part"),
        ("mysql://db/app", "see libpq's URIs"),
        ("db/app", "see libpq's URIs"),
        ("", "see libpq's URIs"),
    ],
)
def test_what_is_no_dsn_is_refused_with_the_remedy(dsn: str, remedy: str) -> None:
    """The message says where it came from, and shows no password."""
    with pytest.raises(ConfigurationError) as given_error:
        find_dsn(dsn, {})
    assert remedy in str(given_error.value)
    assert str(given_error.value).startswith(("the given DSN starts with", "the given DSN is no URI"))

    if dsn:
        with pytest.raises(ConfigurationError, match=r"JOBQ_DSN (starts with|is no URI)"):
            find_dsn(None, {"JOBQ_DSN": dsn})


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql:///app",
        "postgresql://db/app",
        "postgresql://me@db:5433/app?sslmode=verify-full&target_session_attrs=read-write",
        "postgres://me:p%40ss%2Fw%23rd@one:5432,two:5433,three/app",
        "postgresql://me:secret@[::1]:5432/app",
        "postgresql://me@/app?host=/run/postgresql&port=5432",
        "postgresql://%2Frun%2Fpostgresql/app",
        "postgresql://db/app?user=me@azure",
    ],
)
def test_what_is_a_dsn_is_taken_as_it_is(dsn: str) -> None:
    """Whatever the driver can tell apart."""
    assert find_dsn(dsn, {}) == dsn


def test_a_scheme_alone_is_no_dsn() -> None:
    """asyncpg does not understand it either, but only when it connects."""
    with pytest.raises(ConfigurationError):
        find_dsn("postgresql", {})


def test_a_refused_dsn_is_not_shown() -> None:
    """It may hold a password."""
    with pytest.raises(ConfigurationError) as caught:
        find_dsn("mysql://app:secret@db/app", {})

    assert "secret" not in str(caught.value)


OTHER = "postgresql://app@other/app"


def test_everything_goes_one_way_unless_told_otherwise() -> None:
    """LISTEN goes where the rest goes, and statements are prepared."""
    assert find_route(Access(dsn=DSN), {}) == Route(dsn=DSN, listen_dsn=DSN, prepared_statements=True)


def test_what_is_given_goes_before_the_environment() -> None:
    """Each of the three by itself; an empty variable states nothing."""
    environment = {"JOBQ_DSN": DSN, "JOBQ_LISTEN_DSN": OTHER, "JOBQ_PREPARED_STATEMENTS": "Off"}

    stated = find_route(Access(), environment)
    given = find_route(Access(listen_dsn=DSN, prepared_statements=True), environment)
    empty = find_route(Access(), {"JOBQ_DSN": DSN, "JOBQ_LISTEN_DSN": "", "JOBQ_PREPARED_STATEMENTS": ""})

    assert stated == Route(dsn=DSN, listen_dsn=OTHER, prepared_statements=False)
    assert given == empty == Route(dsn=DSN, listen_dsn=DSN, prepared_statements=True)


@pytest.mark.parametrize("switch", ["never", "offf", " on", "2"])
def test_a_switch_that_says_neither_is_refused(switch: str) -> None:
    """Rather than taken for on, which would fail later and elsewhere."""
    with pytest.raises(ConfigurationError, match=f"JOBQ_PREPARED_STATEMENTS: {switch!r} is neither on nor off"):
        find_route(Access(dsn=DSN), {"JOBQ_PREPARED_STATEMENTS": switch})


def test_a_switch_of_another_type_is_refused() -> None:
    """The text "off" would be true."""
    off: Any = "off"

    with pytest.raises(ConfigurationError, match="prepared_statements is 'off': it must be True, or False"):
        find_route(Access(dsn=DSN, prepared_statements=off), {})


@pytest.mark.parametrize(
    ("given", "environment", "source"),
    [
        (Access(dsn=DSN, listen_dsn="mysql://app:secret@db/x"), {}, "the given listen_dsn"),
        (Access(dsn=DSN), {"JOBQ_LISTEN_DSN": "mysql://app:secret@db/x"}, "JOBQ_LISTEN_DSN"),
    ],
)
def test_a_dsn_to_listen_on_is_checked_like_any_other(given: Access, environment: dict[str, str], source: str) -> None:
    """The message says whose it is, and shows no password."""
    with pytest.raises(ConfigurationError, match=f"^{source} starts with 'mysql'") as raised:
        find_route(given, environment)

    assert "secret" not in str(raised.value)


def test_access_is_completed_by_what_comes_after_it() -> None:
    """What is stated stays; False is a statement, too."""
    first = Access(listen_dsn=OTHER, prepared_statements=False)

    assert first.over(Access(dsn=DSN, listen_dsn=DSN, prepared_statements=True)) == Access(
        dsn=DSN, listen_dsn=OTHER, prepared_statements=False
    )
