"""Settings: flag > environment > file > default, in `jobq config` and in the commands that use them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from jobq import Queue
from jobq.cli.database import Instance, StatedDsn, masked
from jobq.cli.main import app
from jobq.cli.origins import key_of, variables_of
from jobq.cli.settings_file import _PARAMETERS, _READERS
from jobq.core.states import State
from tests.cli.conftest import APP_DIR, REPOSITORY, Run, Start
from tests.worker.observe import Jobs

if TYPE_CHECKING:
    from tests.conftest import Conn

OWN_DSN = """
from jobq import Queue

queue = Queue("%s")


@queue.task(kind="quick", on_duplicate="harmless")
async def quick() -> None: ...
"""

SETTINGS = [
    *("app", "dsn", "listen_dsn", "prepared_statements", "schema", "app_dir", "concurrency"),
    *("grace", "cancel_grace", "start_limit", "worker_lease", "http", "log_level", "log_format"),
]


EMPTY = "--until-empty"


def started(log: str) -> str:
    """Return which queues the worker says that it serves, with their concurrency."""
    return log.partition(" started: ")[2].partition("\n")[0]


async def shown(run: Run, *options: str, **variables: Any) -> dict[str, Any]:
    """Return what `jobq config --json` shows."""
    ended = await run("config", "--json", *options, **variables)
    assert (ended.code, ended.err) == (0, "")
    shown: dict[str, Any] = json.loads(ended.out)["settings"]
    return shown


# -- which value holds -------------------------------------------------------------------------------------


async def test_the_flag_goes_before_the_environment_and_that_before_the_file(tmp_path: Path, run: Run) -> None:
    """F104: and the default comes last; each says where it is from."""
    default = await shown(run)
    (tmp_path / "jobq.toml").write_text('grace = "1s"')
    from_file = await shown(run)
    from_environment = await shown(run, JOBQ_GRACE="2s")
    from_flag = await shown(run, "--grace", "3s", JOBQ_GRACE="2s")

    assert default["grace"] == {"value": 25.0, "origin": "default"}
    assert from_file["grace"] == {"value": 1.0, "origin": str(tmp_path / "jobq.toml")}
    assert from_environment["grace"] == {"value": 2.0, "origin": "JOBQ_GRACE"}
    assert from_flag["grace"] == {"value": 3.0, "origin": "--grace"}


async def test_the_dsn_has_two_variables(tmp_path: Path, run: Run) -> None:
    """JOBQ_DSN before DATABASE_URL before the file; an empty variable states nothing."""
    (tmp_path / "pyproject.toml").write_text('[tool.jobq]\ndsn = "postgresql://file/x"')
    own, shared = "postgresql://own/x", "postgresql://shared/x"

    from_own = await shown(run, JOBQ_DSN=own, DATABASE_URL=shared)
    from_shared = await shown(run, JOBQ_DSN="", DATABASE_URL=shared)
    from_file = await shown(run, JOBQ_DSN=None)

    assert from_own["dsn"] == {"value": own, "origin": "JOBQ_DSN"}
    assert from_shared["dsn"] == {"value": shared, "origin": "DATABASE_URL"}
    assert from_file["dsn"] == {"value": "postgresql://file/x", "origin": str(tmp_path / "pyproject.toml")}


async def test_every_setting_can_be_stated_everywhere(tmp_path: Path, run: Run) -> None:
    """F104: in the file and in the environment, in their spellings, and with the same result."""
    (tmp_path / "src").mkdir()
    (tmp_path / "jobq.toml").write_text(
        'app = "shop:queue"\ndsn = "postgresql://db/x"\nschema = "shop"\napp_dir = "src"\ngrace = 60\n'
        'listen_dsn = "postgresql://app:secret@direct/x"\nprepared_statements = false\n'
        'cancel_grace = "1m"\nstart_limit = "1m"\nworker_lease = "1m"\nhttp = ":8080"\nlog_level = "debug"\n'
        'log_format = "json"\n'
        '[concurrency]\nmail = 20\n"*" = 50\n'
    )
    in_file = await shown(run, JOBQ_DSN=None)
    (tmp_path / "jobq.toml").unlink()
    minute = dict.fromkeys(("JOBQ_GRACE", "JOBQ_CANCEL_GRACE", "JOBQ_START_LIMIT", "JOBQ_WORKER_LEASE"), "60s")
    stated = {"JOBQ_APP": "shop:queue", "JOBQ_DSN": "postgresql://db/x", "JOBQ_SCHEMA": "shop", "JOBQ_APP_DIR": "src"}
    around = {"JOBQ_LISTEN_DSN": "postgresql://app:secret@direct/x", "JOBQ_PREPARED_STATEMENTS": "off"}
    rest = {"JOBQ_HTTP": ":8080", "JOBQ_LOG_LEVEL": "debug", "JOBQ_LOG_FORMAT": "json"}
    in_environment = await shown(run, **stated, **minute, **around, **rest, JOBQ_CONCURRENCY="mail=20 50")

    assert list(in_file) == SETTINGS
    assert {one["origin"] for one in in_file.values()} == {str(tmp_path / "jobq.toml")}
    assert {key: one["origin"] for key, one in in_environment.items()} == {
        key: f"JOBQ_{key.upper()}" for key in SETTINGS
    }
    values = {key: one["value"] for key, one in in_file.items()}
    assert values == {key: one["value"] for key, one in in_environment.items()}
    assert values == {
        "app": "shop:queue",
        "dsn": "postgresql://db/x",
        "listen_dsn": "postgresql://app:***@direct/x",
        "prepared_statements": False,
        "schema": "shop",
        "app_dir": str(tmp_path / "src"),
        "concurrency": {"mail": 20, "*": 50},
        **dict.fromkeys(("grace", "cancel_grace", "start_limit", "worker_lease"), 60.0),
        "http": "127.0.0.1:8080",
        "log_level": "debug",
        "log_format": "json",
    }


def test_the_file_knows_the_settings_that_config_shows() -> None:
    """A setting that is added in one place only is not one."""
    params = [param for param in get_command(app).commands["config"].params if variables_of(param)]  # type: ignore[attr-defined]

    assert [key_of(param) for param in params] == SETTINGS
    assert set(_READERS) == set(SETTINGS)
    assert [param.name for param in params] == [_PARAMETERS.get(key, key) for key in SETTINGS]


def test_the_docs_list_every_setting() -> None:
    """With the variables that state it."""
    docs = (REPOSITORY / "docs" / "command-line.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+\| `(JOBQ_\w+)", docs, re.MULTILINE)

    assert sorted(rows) == sorted((key, f"JOBQ_{key.upper()}") for key in SETTINGS)


# -- what is wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('grace = "soon"', "grace: 'soon' is not a duration: write 30s"),
        ("grace = -5", "grace: '-5' is not a duration: write 30s"),
        ('log_level = "loud"', "log_level: 'loud' is not one of 'debug', 'info'"),
        ('http = "8080"', "http: address '8080' is not HOST:PORT: pass one such as 127.0.0.1:8080"),
        ('app_dir = "nowhere"', "app_dir: "),
        ('schema = "pg_jobs"', "schema: schema 'pg_jobs' begins with pg_"),
        ('dsn = "mysql://app:secret@db/x"', "dsn starts with 'mysql': a DSN looks like postgresql://"),
        ('listen_dsn = "mysql://app:secret@db/x"', "listen_dsn starts with 'mysql': a DSN looks like postgresql://"),
        ('prepared_statements = "off"', "prepared_statements = 'off' is not true or false: write one of them"),
        ("concurrency = 0", "concurrency: queue '(default)' has concurrency 0: it must be 1 to 10,000"),
        ("worker_lease = 0", "worker_lease: a lease of 0 s"),
        ("gracee = 1", "there is no setting 'gracee': did you mean grace?"),
    ],
)
async def test_a_wrong_value_in_the_file_is_named_with_its_place(
    text: str, message: str, tmp_path: Path, run: Run
) -> None:
    """One line with the file, the key, the value and the remedy; exit code 78, because it would end the same way."""
    (tmp_path / "jobq.toml").write_text(text)

    ended = await run("config", JOBQ_DSN=None)

    assert (ended.code, ended.out, len(ended.err.splitlines())) == (78, "", 1)
    assert ended.err.startswith(f"jobq: {tmp_path / 'jobq.toml'}: {message}")
    assert "secret" not in ended.err


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("JOBQ_GRACE", "soon", "JOBQ_GRACE: 'soon' is not a duration: write 30s"),
        ("JOBQ_CONCURRENCY", "mail=20 mail", "JOBQ_CONCURRENCY: 'mail' is neither QUEUE=N nor N"),
        ("JOBQ_LISTEN_DSN", "mysql://db/x", "JOBQ_LISTEN_DSN starts with 'mysql'"),
        ("JOBQ_PREPARED_STATEMENTS", "never", "JOBQ_PREPARED_STATEMENTS: 'never' is neither on nor off"),
        ("DATABASE_URL", "mysql://db/x", "DATABASE_URL starts with 'mysql'"),
        ("JOBQ_SCHEMA", "$", "JOBQ_SCHEMA: schema '$' contains $ or @"),
    ],
)
async def test_a_wrong_value_in_the_environment_is_named_with_its_variable(
    variable: str, value: str, message: str, run: Run
) -> None:
    """It is nobody's typing mistake, so not 2: systemd must not start it again and again."""
    variables: dict[str, Any] = {"JOBQ_DSN": None, variable: value}

    ended = await run("config", **variables)

    assert (ended.code, ended.out, len(ended.err.splitlines())) == (78, "", 1)
    assert ended.err.startswith(f"jobq: {message}")


async def test_a_missing_application_can_be_configured(run: Run) -> None:
    """Still a mistake on the command line, with both remedies."""
    ended = await run("run")

    assert ended.code == 2
    assert "Missing APP:QUEUE: give it, or state app where `jobq config -h` tells." in ended.err
    assert ended.err.startswith("Usage: jobq run ")


async def test_the_help_needs_no_good_file(tmp_path: Path, run: Run) -> None:
    """It is where the remedy may be looked for."""
    (tmp_path / "jobq.toml").write_text("grase = 1")

    assert (await run("run", "--help")).code == 0
    assert (await run("run")).code == 78


# -- what is shown -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("postgresql://app:secret@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app:se@cr/et@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app:secret@a,b:5433/shop?x=1", "postgresql://app:***@a,b:5433/shop?x=1"),
        ("postgresql://db/shop?user=a&password=secret&x=1", "postgresql://db/shop?user=a&password=***&x=1"),
        ("postgresql://db/shop?pass%77ord=secret", "postgresql://db/shop?pass%77ord=***"),
        ("postgresql://db/shop?sslpassword=secret", "postgresql://db/shop?sslpassword=***"),
        ("postgresql://app@db:5432/shop", "postgresql://app@db:5432/shop"),
        ("postgresql:///shop?host=/run/postgresql", "postgresql:///shop?host=/run/postgresql"),
    ],
)
def test_a_password_is_never_shown(dsn: str, expected: str) -> None:
    """Rather too much is covered than too little."""
    assert masked(dsn) == expected


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        (None, "jobq stats"),
        (StatedDsn("postgresql://db/configured"), "jobq stats"),
        (StatedDsn("postgresql://db/typed", is_typed=True), "jobq stats --dsn postgresql://db/typed"),
        (StatedDsn("postgresql://a:secret@db/x", is_typed=True), "jobq stats # with the same --dsn"),
    ],
)
def test_a_command_to_copy_repeats_what_was_typed(dsn: StatedDsn | None, expected: str) -> None:
    """What is configured will be found again, and a password does not belong on a screen."""
    assert Instance(dsn, "jobq", embedded=False).command("stats") == expected


async def test_the_table_shows_no_password_and_is_whole_in_a_pipe(tmp_path: Path, run: Run) -> None:
    """One line a setting."""
    (tmp_path / "jobq.toml").write_text(f'dsn = "postgresql://app:secret@db/{"x" * 200}"')

    ended = await run("config", "--json", JOBQ_DSN=None)
    table = await run("config", "app:queue", JOBQ_DSN=None, JOBQ_CONCURRENCY="mail=20 50")

    assert "secret" not in ended.out + table.out
    header, app_line, dsn_line, *_ = lines = table.out.splitlines()
    assert header.split() == ["SETTING", "VALUE", "ORIGIN"]
    assert app_line.split() == ["app", "app:queue", "APP:QUEUE"]
    assert dsn_line.split() == ["dsn", f"postgresql://app:***@db/{'x' * 200}", str(tmp_path / "jobq.toml")]
    assert [line.split()[0] for line in lines[1:]] == SETTINGS
    assert lines[7].split() == ["concurrency", "mail=20", "50", "JOBQ_CONCURRENCY"]


async def test_the_table_fits_a_terminal_of_80_columns(tmp_path: Path, start: Start, terminal: tuple[int, int]) -> None:
    """Long values and paths are wrapped, and none is cut."""
    person, command = terminal
    deep = tmp_path / ("directory" * 10)
    deep.mkdir()
    (deep / "jobq.toml").write_text(f'dsn = "postgresql://app@db/{"x" * 100}"')

    running = await start("config", stdout=command, cwd=deep, JOBQ_DSN=None, COLUMNS="80", NO_COLOR="1", TERM="dumb")
    await running.ends()
    text = os.read(person, 65536).decode()

    assert max(map(len, text.splitlines())) <= 80
    assert text.count("x") >= 100
    assert "…" not in text


# -- the commands that use them ----------------------------------------------------------------------------


@pytest.fixture
def jobs(conn: Conn, sql: Callable[[str], str]) -> Jobs:
    """The rows of the test's schema."""
    return Jobs(conn, sql)


async def test_a_worker_runs_with_nothing_but_the_file(
    queue: Queue, dsn: str, jobs: Jobs, tmp_path: Path, run: Run
) -> None:
    """`Queue()` states no DSN and `jobq run` no application; the modules are where the file says, as seen from it."""
    (tmp_path / "code").symlink_to(APP_DIR)
    (tmp_path / "below").mkdir()
    (tmp_path / "jobq.toml").write_text(
        f'app = "app:queue"\napp_dir = "code"\ndsn = {json.dumps(dsn)}\n[concurrency]\nmail = 3\n"*" = 5'
    )
    by_flags = await run(
        "run", "app:queue", "--app-dir", APP_DIR, "--concurrency", "mail=3", "--concurrency", "5", EMPTY
    )
    job = await queue.enqueue("quick", {}, queue="mail")

    ended = await run("run", EMPTY, cwd=tmp_path / "below", JOBQ_DSN=None)

    assert ended.code == 0
    assert started(ended.err) == started(by_flags.err)
    assert (await jobs.get(job.id)).state is State.DONE


async def test_the_code_goes_before_what_is_configured(dsn: str, tmp_path: Path, run: Run) -> None:
    """`Queue("postgresql://...")` is used, and a flag still goes before it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    of_code = f"postgresql://jobq@127.0.0.1:{port}/of_code"
    (tmp_path / "own.py").write_text(OWN_DSN % of_code)
    (tmp_path / "jobq.toml").write_text(f"dsn = {json.dumps(dsn)}")
    options = ("run", "own:queue", "--start-limit", "0.1s")

    against_file = await run(*options, JOBQ_DSN=None)
    against_environment = await run(*options, JOBQ_DSN=dsn)
    against_flag = await run(*options, "--dsn", dsn)

    assert (against_file.code, against_environment.code) == (75, 75)
    assert against_flag.code == 78
    assert "has no jobq in it: run `jobq migrate" in against_flag.err


async def test_commands_find_database_and_schema_in_the_file(
    conn: Conn, dsn: str, schema: str, tmp_path: Path, run: Run
) -> None:
    """As they would find them in flags."""
    (tmp_path / "jobq.toml").write_text(f"dsn = {json.dumps(dsn)}\nschema = {json.dumps(schema)}\n")

    looked = await run("migrate", "--check", JOBQ_DSN=None)
    nested = await run("dead", "list", JOBQ_DSN=None)

    assert looked.code == 0
    assert looked.out.startswith("schema ")
    assert (nested.code, nested.out) == (0, "0 dead letters\n")


async def test_embedded_goes_before_a_configured_dsn_and_contradicts_a_typed_one(dsn: str, run: Run) -> None:
    """A variable of the shell is no reason to refuse a first try."""
    configured = await run("migrate", "--sql", "--embedded", JOBQ_DSN=dsn)
    typed = await run("migrate", "--sql", "--embedded", "--dsn", dsn)

    assert configured.code == 0
    assert typed.code == 2
    assert "--dsn and --embedded name two databases: choose one of them." in typed.err


async def test_a_unit_is_printed_with_what_the_file_states(tmp_path: Path, run: Run) -> None:
    """Its own limits follow from that, and must not follow from something else later."""
    (tmp_path / "jobq.toml").write_text('app = "app:queue"\ngrace = "10m"\n')

    ended = await run("systemd")

    assert ended.code == 0
    assert "run app:queue --grace 600s\n" in ended.out
    assert "TimeoutStopSec=615s" in ended.out


async def test_the_kinds_of_the_configured_application_are_shown(tmp_path: Path, run: Run) -> None:
    """From any directory of the project."""
    (tmp_path / "below").mkdir()
    (tmp_path / "own.py").write_text(OWN_DSN % "postgresql://db/x")
    (tmp_path / "jobq.toml").write_text('app = "own:queue"\napp_dir = "."\n')

    ended = await run("kinds", cwd=tmp_path / "below")

    assert ended.code == 0
    assert "quick" in ended.out


async def test_a_stop_uses_the_configured_grace(queue: Queue, jobs: Jobs, start: Start) -> None:
    """The environment of a container is where it is usually stated."""
    worker = await start("run", "app:queue", "--app-dir", APP_DIR, JOBQ_GRACE="0.2")
    job = await queue.enqueue("slow", {"seconds": 600}, queue="default")
    await worker.says("slow runs")

    worker.send(signal.SIGTERM)
    ended = await worker.ends()

    assert ended.code == 3
    assert (await jobs.get(job.id)).state is State.WAITING
