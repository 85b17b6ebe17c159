"""The password of a DSN stands in no output of any command, however the command fails, and in no list of processes."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path

import pytest

from jobq import JobqError, Queue
from jobq.cli.target import UserCodeError, load, read_target
from jobq.core.failure import describe
from tests.cli.conftest import APP_DIR, Call, Run, Start

PARTS = ("hunter2", "swordfish")
SECRET = "".join(PARTS)

BROKEN = {
    "nobody listens": f"postgresql://me:{SECRET}@127.0.0.1:1/shop",
    "a slash": f"postgresql://me:{'/'.join(PARTS)}@localhost/shop",
    "a slash after digits": f"postgresql://me:12/{SECRET}@localhost/shop",
    "a question mark": f"postgresql://me:{'?'.join(PARTS)}@localhost/shop",
    "a question mark after digits": f"postgresql://me:12?{SECRET}@localhost/shop",
    "a number sign": f"postgresql://me:{'#'.join(PARTS)}@localhost/shop",
    "an at": f"postgresql://me:{'@'.join(PARTS)}@localhost/shop",
    "a colon, no host": f"postgresql://me:{':'.join(PARTS)}",
    "a bracket": f"postgresql://me:[{SECRET}@localhost/shop",
    "a percent sign": f"postgresql://me:{'%zz'.join(PARTS)}@127.0.0.1:1/shop",
    "as a parameter": f"postgresql://me@127.0.0.1:1/shop?password={SECRET}",
    "a parameter without a value": f"postgresql://me@127.0.0.1:1/shop?{SECRET}",
    "a driver": f"postgresql+asyncpg://me:{SECRET}@localhost/shop",
    "words, no URI": f"host=localhost password={SECRET} dbname=shop",
    "no URI": SECRET,
    "a mode that is none": f"postgresql://me:{SECRET}@127.0.0.1:1/shop?sslmode=strict",
}

COMMANDS = (
    ("migrate",),
    ("migrate", "--check", "--json"),
    ("stats",),
    ("jobs", "--json"),
    ("dead", "list"),
    ("dead", "redrive", "--all"),
    ("enqueue", "send_receipt", "{}"),
    ("config",),
    ("config", "--json"),
)


def told(text: str) -> list[str]:
    """Return the parts of the secret that *text* tells."""
    return [part for part in PARTS if part in text]


@pytest.mark.parametrize("name", BROKEN)
async def test_no_command_tells_the_password(
    name: str, call: Call, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From the environment and from the command line, with the log at its most talkative."""
    caplog.set_level(logging.DEBUG)
    ended = []

    for words in COMMANDS:
        ended.append(await call(*words, "--dsn", BROKEN[name]))
        monkeypatch.setenv("JOBQ_DSN", BROKEN[name])
        ended.append(await call(*words))

    assert [one for one in ended if told(one.out + one.err)] == []
    assert told(caplog.text) == []
    assert {one.code for one in ended} <= {0, 75, 78}


@pytest.mark.parametrize("name", ["nobody listens", "a slash", "words, no URI", "a mode that is none"])
async def test_no_worker_tells_the_password(name: str, run: Run) -> None:
    """Not even one that logs what asyncio does."""
    words = ("run", "app:queue", "--app-dir", APP_DIR, "--log-level", "debug", "--start-limit", "0")

    by_variable = await run(*words, JOBQ_DSN=BROKEN[name], PYTHONASYNCIODEBUG="1")
    by_option = await run(*words, "--dsn", BROKEN[name])

    assert {by_variable.code, by_option.code} <= {75, 78}
    assert by_variable.err
    assert told(by_variable.out + by_variable.err + by_option.out + by_option.err) == []


async def test_the_server_does_not_repeat_it(dsn: str, call: Call) -> None:
    """A database that is not there is refused by the server, which knows the password."""
    wrong = dsn.replace("//postgres@/postgres", f"//postgres:{SECRET}@/nowhere")
    assert wrong != dsn

    ended = await call("stats", "--dsn", wrong)

    assert ended.code == 78
    assert "nowhere" in ended.err
    assert told(ended.err) == []


@pytest.mark.parametrize("name", BROKEN)
async def test_no_exception_tells_the_password(name: str) -> None:
    """What a program logs of a failed enqueue, with its traceback."""
    async with Queue(BROKEN[name]) as queue:
        with pytest.raises(JobqError) as caught:
            await queue.enqueue("k", {}, queue="default")

    assert told("".join(traceback.format_exception(caught.value))) == []


@pytest.mark.parametrize(
    "line",
    [f'dsn = ["postgresql://me:{SECRET}@h/d"]', f'dsn = "postgresql://me:{SECRET}@h/d", oops', f"dsn = {SECRET}"],
)
async def test_a_settings_file_that_cannot_be_used_is_not_quoted(line: str, tmp_path: Path, run: Run) -> None:
    """The key and the place say enough."""
    tmp_path.joinpath("jobq.toml").write_text(line + "\n")

    ended = await run("stats", JOBQ_DSN=None)

    assert ended.code == 78
    assert told(ended.err) == []


def test_a_traceback_shows_no_password_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python quotes the line that raised, and the DSN may stand in it: in a dead letter, say."""
    tmp_path.joinpath("with_a_dsn.py").write_text(
        f'def f(dsn): raise OSError(dsn)\nqueue = f("postgresql://me:{SECRET}@db/shop")\n'
    )
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(UserCodeError) as caught:
        load(read_target("with_a_dsn:queue"), directory=tmp_path)
    failure = describe(caught.value.error)

    assert "postgresql://me:***@db/shop" in failure.traceback
    assert told(failure.message + failure.traceback) == []


async def test_the_import_of_a_module_shows_no_password(tmp_path: Path, run: Run) -> None:
    """Nor does the command line, where the user's own code raises, or where a DSN stands in place of the target."""
    tmp_path.joinpath("with_a_dsn.py").write_text(
        f'import jobq\nqueue = jobq.Queue("postgresql://me:{SECRET}@db/shop", schema="pg_x")\n'
    )

    ended = await run("run", "with_a_dsn:queue")
    mistaken = await run("run", f"postgresql://me:{SECRET}@db/shop")

    assert "postgresql://me:***@db/shop" in ended.err
    assert told(ended.err + mistaken.err) == []


async def test_a_password_on_the_command_line_is_remarked_upon(dsn: str, start: Start, run: Run) -> None:
    """It is in the list of processes, where nobody can cover it; from the environment it is in none."""
    with_password = dsn.replace("//postgres@", f"//postgres:{SECRET}@")
    assert with_password != dsn

    typed = await run("config", "--dsn", with_password, "--json")
    from_variable = await run("config", "--json", JOBQ_DSN=with_password)
    worker = await start("run", "app:queue", "--app-dir", APP_DIR, JOBQ_DSN=with_password)
    await worker.says("jobq")
    title = worker.title

    assert "set JOBQ_DSN" in typed.err
    assert json.loads(typed.out)["settings"]["dsn"]["origin"] == "--dsn"
    assert from_variable.err == ""
    assert "app:queue" in title
    assert told(title) == []
