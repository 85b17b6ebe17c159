"""`jobq systemd`: a unit that systemd accepts, whose numbers fit the worker's; and a worker as systemd sees it."""

from __future__ import annotations

import http.client
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from jobq import Queue
from jobq.cli.main import app
from jobq.cli.systemd import obstacles, unit
from jobq.cli.target import read_target
from jobq.cli.worker_options import times_of
from jobq.core.states import State
from jobq.settings import WorkerSettings
from tests.cli.conftest import APP_DIR, Run, Start, Work
from tests.worker.observe import Jobs
from tests.worker.systemd_socket import Systemd

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Conn

SECURITY_LIMIT = 15
"""What `systemd-analyze security` may find, in tenths: docs/deploy.md tells the score of today."""


@pytest.fixture
def jobs(conn: Conn, sql: Callable[[str], str]) -> Jobs:
    """The rows of the test's schema."""
    return Jobs(conn, sql)


def printed(*options: str | Path) -> str:
    """Return what `jobq systemd app:queue OPTIONS` prints."""
    ended = CliRunner().invoke(app, ["systemd", "app:queue", *map(str, options)], prog_name="jobq")
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def settings_in(text: str) -> dict[str, list[str]]:
    """Return the settings of a unit; some stand there more than once."""
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


# -- what systemd says -------------------------------------------------------------------------------------

# Where there is no systemd these are not collected; where there should be, its absence is a failure.
if sys.platform == "linux":

    def systemd_analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        program = shutil.which("systemd-analyze")
        if program is None:
            pytest.fail("no systemd-analyze: install the package systemd (nothing of it has to run)")
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)

    @pytest.fixture
    def installed(tmp_path: Path) -> Path:
        """A unit on disk, of a worker with every option."""
        path = tmp_path / "jobq-app.service"
        path.write_text(
            printed(
                *("--http", "[::1]:8080", "--grace", "10m", "--cancel-grace", "7s", "--start-limit", "5m"),
                *("--worker-lease", "60s", "--concurrency", "mail=20", "--concurrency", "50", "--app-dir", APP_DIR),
            )
        )
        return path

    def test_systemd_accepts_the_unit(installed: Path) -> None:
        """Without a warning: a misspelt setting is one, and would be ignored."""
        verified = systemd_analyze("verify", "--recursive-errors=no", installed)

        assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")

    def test_systemd_finds_a_mistake(installed: Path) -> None:
        """The test above would see one."""
        installed.write_text(installed.read_text().replace("ProtectClock=", "ProtectClocks="))

        assert "ProtectClocks" in systemd_analyze("verify", "--recursive-errors=no", installed).stderr

    def test_the_unit_is_hardened(installed: Path) -> None:
        """The score must not get worse unnoticed, and the docs tell it."""
        judged = systemd_analyze("security", "--offline=yes", "--no-pager", f"--threshold={SECURITY_LIMIT}", installed)

        score = re.search(r"Overall exposure level for jobq-app.service: ([0-9.]+)", judged.stdout)
        assert judged.returncode == 0, judged.stdout
        assert score is not None

    def test_systemd_reads_the_command_as_it_is_meant(tmp_path: Path) -> None:
        """Blanks, quotes and what systemd would replace: it takes its own unit apart the same way."""
        program = tmp_path / "with blank" / "jobq"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        path = tmp_path / "jobq-app.service"
        path.write_text(
            unit(
                read_target("app:queue"),
                [str(program)],
                ["app:queue", "--concurrency", 'odd "name" of 100% $HOME \\=3'],
                settings=WorkerSettings(),
                directory=program.parent,
                user="worker",
                at_home=False,
            )
        )

        verified = systemd_analyze("verify", "--recursive-errors=no", path)

        assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
        assert settings_in(path.read_text())["ExecStart"] == [
            f'"{program}" run app:queue --concurrency "odd \\"name\\" of 100%% $$HOME \\\\=3"'
        ]


# -- what stands in it -------------------------------------------------------------------------------------


def test_the_unit_knows_the_workers_promises() -> None:
    """What F27 of the field reports lists: each of these has cost somebody a night."""
    settings = settings_in(printed())

    assert settings["Type"] == ["notify"]
    assert settings["NotifyAccess"] == ["main"]
    assert settings["TimeoutStartSec"] == ["infinity"]
    assert settings["StartLimitIntervalSec"] == ["0"]
    assert settings["Restart"] == ["always"]
    assert settings["SuccessExitStatus"] == ["3"]
    assert settings["RestartPreventExitStatus"] == ["78"]
    assert settings["EnvironmentFile"] == ["/etc/jobq.env"]
    assert settings["KillMode"] == ["mixed"]
    assert float(settings["RestartSec"][0]) > 0
    assert float(settings["WatchdogSec"][0]) > 3 * 5


@pytest.mark.parametrize(
    ("options", "needs_s"),
    [
        ((), 25 + 9),
        (("--grace", "10m"), 600 + 9),
        (("--grace", "0", "--cancel-grace", "0"), 4),
        (("--cancel-grace", "90s"), 25 + 90 + 4),
    ],
)
def test_the_stop_may_take_longer_than_the_worker_needs(options: tuple[str, ...], needs_s: float) -> None:
    """A stop time-out that is shorter than the worker's own limit kills what was to be handed back."""
    stop_s = float(settings_in(printed(*options))["TimeoutStopSec"][0].removesuffix("s"))

    assert stop_s == needs_s + 6


def test_the_stop_limit_follows_from_the_settings() -> None:
    """Less than the grace and ten seconds with the default clean-up; a second signal takes the grace away."""
    assert WorkerSettings().stop_limit_s == 34
    assert WorkerSettings(grace_s=1, cancel_grace_s=1).stop_limit_s == 6
    assert WorkerSettings(grace_s=60).hurried_stop_limit_s == 9


def test_the_command_is_the_one_in_use(tmp_path: Path) -> None:
    """With an absolute path, the options as they were given, and where they were given."""
    settings = settings_in(
        printed("--grace", "1m30s", "--http", ":8080", "--concurrency", "mail=20", "--app-dir", tmp_path)
    )

    words = shlex.split(settings["ExecStart"][0])
    start = words.index("run")
    assert Path(words[0]).is_absolute()
    assert Path(words[0]).exists()
    assert words[start:] == [
        *("run", "app:queue", "--concurrency", "mail=20", "--grace", "90s", "--http", "127.0.0.1:8080")
    ]
    assert settings["WorkingDirectory"] == [str(tmp_path)]


async def test_the_command_of_the_unit_runs(conn: Conn, start: Start) -> None:
    """What is printed as ExecStart= is something that a shell can start, too."""
    unit_text = printed("--http", ":0", "--grace", "1s", "--worker-lease", "3s")
    words = shlex.split(settings_in(unit_text)["ExecStart"][0])

    worker = await start(*words[words.index("run") :], "--app-dir", APP_DIR)
    await worker.says(" started: queues ")
    worker.send(signal.SIGTERM)

    assert (await worker.ends()).code == 0


def test_a_made_up_user_is_the_default() -> None:
    """Nobody has to make one."""
    assert settings_in(printed())["DynamicUser"] == ["yes"]
    with_user = settings_in(printed("--user", "shop"))
    assert with_user["User"] == ["shop"]
    assert "DynamicUser" not in with_user


@pytest.mark.parametrize(
    ("place", "user", "told"),
    [
        ("/srv/shop", None, []),
        ("/home/ann/shop", None, ["/home/ann/shop is in a home directory: add --user with its owner,"]),
        ("/home/ann/shop", "ann", []),
        ("/homestead/shop", None, []),
        ("/tmp/shop", "ann", ["/tmp/shop is hidden from the unit by PrivateTmp=:"]),
    ],
)
def test_what_the_unit_could_not_read_is_told(place: str, user: str | None, told: list[str]) -> None:
    """A start that ends with 200/CHDIR or 203/EXEC is hard to read."""
    found = list(obstacles([Path(place), Path(place)], user))

    assert [line.partition(":")[0] for line in found] == [line.partition(":")[0] for line in told]


@pytest.mark.parametrize(("at_home", "expected"), [(True, "read-only"), (False, "tmpfs")])
def test_homes_are_hidden_unless_the_application_is_in_one(at_home: bool, expected: str) -> None:
    """And never `yes`: the driver's look for ~/.pgpass would be an error."""
    text = unit(
        read_target("app:queue"),
        ["/srv/shop/.venv/bin/jobq"],
        ["app:queue"],
        settings=WorkerSettings(),
        directory=Path("/srv/shop"),
        user="ann",
        at_home=at_home,
    )

    assert settings_in(text)["ProtectHome"] == [expected]


@pytest.mark.parametrize(
    "options",
    [["--user", "a b"], ["--user", "x\ny"], ["--http", "8080"], ["--grace", "soon"], ["--concurrency", "mail"]],
)
def test_a_mistake_is_a_usage_error(options: list[str]) -> None:
    """Not a unit that does not start."""
    ended = CliRunner().invoke(app, ["systemd", "app:queue", *options], prog_name="jobq")

    assert ended.exit_code == 2
    assert ended.stdout == ""


async def test_a_misspelt_queue_is_refused(run: Run) -> None:
    """As `jobq run` would; the module itself is not loaded, and need not be here."""
    ended = await run("systemd", "app.py")

    assert (ended.code, ended.out) == (78, "")
    assert "write app:queue" in ended.err
    assert (await run("systemd", "not_here:queue")).code == 0


# -- the options that came with it -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease_s", "beat_s", "deadline_s", "job_lease_s"),
    [(3, 0.75, 0.75, 60), (20, 5, 3, 60), (60, 15, 3, 180), (0.5, 0.125, 0.125, 60)],
)
def test_the_beat_follows_from_the_workers_lease(
    lease_s: float, beat_s: float, deadline_s: float, job_lease_s: float
) -> None:
    """Four beats a lease, two of which may be lost; and no job's lease lapses before its worker's."""
    times = times_of(grace=None, cancel_grace=None, start_limit=None, worker_lease=timedelta(seconds=lease_s))
    settings = WorkerSettings(**times)  # type: ignore[arg-type]

    assert (settings.beat_s, settings.beat_deadline_s, settings.job_lease_s) == (beat_s, deadline_s, job_lease_s)
    assert settings.beat_s + 2 * settings.beat_deadline_s < settings.worker_lease_s


def test_without_a_lease_nothing_follows() -> None:
    """The defaults are those of the settings."""
    assert times_of(grace=None, cancel_grace=None, start_limit=None, worker_lease=None) == {}


@pytest.mark.parametrize("lease", ["0", "0s"])
async def test_a_lease_of_nothing_is_a_wrong_configuration(conn: Conn, run: Run, lease: str) -> None:
    """It would lapse before it is there."""
    ended = await run("run", "app:queue", "--app-dir", APP_DIR, "--worker-lease", lease)

    assert ended.code == 78
    assert "--worker-lease: a lease of 0 s lapses before it is there" in ended.err


async def test_the_probes_say_where_they_listen(conn: Conn, work: Work) -> None:
    """With port 0 nobody could know otherwise."""
    worker = await work("--http", "127.0.0.1:0")
    found = re.search(r"probes: http://127\.0\.0\.1:([0-9]+)/healthz, /readyz and /metrics", worker.err)
    assert found is not None

    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=5)
    connection.request("GET", "/healthz")

    assert connection.getresponse().status == 200
    connection.close()
    worker.send(signal.SIGTERM)
    assert (await worker.ends()).code == 0


async def test_an_address_in_use_ends_the_start_before_anything_is_claimed(
    queue: Queue, jobs: Jobs, start: Start, work: Work
) -> None:
    """All or nothing: no worker without its probes; and the next start, with a free port, has everything."""
    job = await queue.enqueue("quick", {}, queue="mail")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = await (await start("run", "app:queue", "--app-dir", APP_DIR, "--http", address)).ends()

    now = await jobs.get(job.id)
    assert ended.code == 78
    assert (
        ended.err == f"jobq: the probes cannot listen on {address} (Address already in use): choose another address\n"
    )
    assert (now.state, now.attempt, now.fence) == (State.WAITING, 0, 0)
    assert await jobs.run("select count(*) from @schema@.worker") == 0

    await work("--http", address)
    await jobs.become(job.id, State.DONE)


# -- a process as systemd sees it --------------------------------------------------------------------------


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[Systemd]:
    """What is systemd to a process."""
    notified = Systemd(tmp_path / "notify")
    yield notified
    notified.close()


async def test_a_process_tells_systemd_its_life(conn: Conn, start: Start, notified: Systemd) -> None:
    """Ready, fed, stopping; from the process's own pid, as NotifyAccess=main wants it."""
    worker = await start(
        *("run", "app:queue", "--app-dir", APP_DIR), NOTIFY_SOCKET=notified.address, WATCHDOG_USEC="60000"
    )
    await notified.hears("READY=1")
    assert await notified.is_fed()
    worker.send(signal.SIGTERM)
    ended = await worker.ends()
    await notified.hears("STOPPING=1")

    assert ended.code == 0
    assert notified.received.index("READY=1") < notified.received.index("STOPPING=1")
    assert any(re.fullmatch(r"STATUS=working; 0 of [0-9]+ slots busy", one) for one in notified.received)


async def test_a_process_whose_database_is_away_is_not_ready(start: Start, notified: Systemd) -> None:
    """`systemctl start` waits with it, for TimeoutStartSec=infinity; a stop ends that."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        dsn = f"postgresql://jobq@127.0.0.1:{bound.getsockname()[1]}/shop"
        worker = await start(*("run", "app:queue", "--app-dir", APP_DIR, "--dsn", dsn), NOTIFY_SOCKET=notified.address)
        await worker.says("start: the database is not available")
        worker.send(signal.SIGTERM)
        ended = await worker.ends()

    assert ended.code == 0
    assert "READY=1" not in notified.received
