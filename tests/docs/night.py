"""The nights of docs/operating.md: real workers, a mail server, and an operator who types what the page tells.

A block `console` of the page is commands, each with what it prints; a block `log` is lines of a worker's log. What
differs from run to run (times, spans, ids of workers) is compared as what it is; what the page calls otherwise than the
test does (hosts, processes, directories) is translated. All other words and numbers are compared as they stand.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.docs.conftest import FOREIGN, LIMIT_S, REPOSITORY
from tests.faults.fleet import WorkerProcess

if TYPE_CHECKING:
    from tests.conftest import Conn

PAGE = REPOSITORY / "docs" / "operating.md"
FIRST_ID = 4711

SETTINGS: dict[str, float] = {
    "worker_lease_s": 2.0,
    "beat_s": 0.5,
    "beat_deadline_s": 1.0,
    "tally_s": 0.5,
    "overview_s": 0.5,
}
"""The times of a worker, unless an incident says otherwise."""

_INCIDENT = re.compile(r"^## (?P<number>\d)\. .*?\n(?P<text>.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"^```(?P<language>console|log)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ ")

_DIFFERS = [
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d(:\d\d)?|Z)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?\b"), "SPAN"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b\d[\d,]*(\.\d+)? (ms|s|min|h|d)\b( \d+ (s|min|h)\b)?"), "SPAN"),
    (re.compile(r"(claims of \w+|settling)(?=: the database is )"), "LOOP"),  # whichever meets it first
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"-{2,}"), "--"),
]


class Block(NamedTuple):
    """What the page shows: a command and what it prints, or (*command* is empty) lines of a log."""

    command: str
    text: str


def blocks(incident: int) -> Iterator[Block]:
    """Yield what the page shows in one incident, in order."""
    for section in _INCIDENT.finditer(PAGE.read_text("utf-8")):
        if int(section["number"]) != incident:
            continue
        for fenced in _FENCED.finditer(section["text"]):
            if fenced["language"] == "log":
                yield Block("", fenced["text"])
            else:
                yield from _typed(fenced["text"].splitlines())


def _typed(lines: list[str]) -> Iterator[Block]:
    """Yield each command, which ends with its quotes, and what follows it."""
    command, printed = "", list[str]()
    for line in lines:
        if _COMMAND.match(line):
            if command:
                yield Block(command, "\n".join(printed))
            command, printed = line[2:], []
        elif command.count('"') % 2:
            command += f"\n{line}"
        else:
            printed.append(line)
    yield Block(command, "\n".join(printed))


def alike(text: str) -> list[str]:
    """Return the lines of *text* with what differs from run to run taken out."""
    for pattern, instead in _DIFFERS:
        text = pattern.sub(instead, text)
    return [line.strip() for line in text.strip().splitlines()]


class MailServer:
    """Takes a line, waits for its turn, and answers."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """What it answers to mails of which first word."""
        self.takes_s = 0.0
        self._turns = asyncio.Semaphore(0)

    def let_pass(self, mails: int = 100_000) -> None:
        """Answer so many more mails; the others wait."""
        for _ in range(mails):
            self._turns.release()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one mail."""
        with suppress(ConnectionError, asyncio.CancelledError):  # of those that still wait at the end of the test
            words = (await reader.readline()).decode().split()
            await self._turns.acquire()
            await asyncio.sleep(self.takes_s)
            writer.write(self.refused.get(words[0] if words else "", "250 ok").encode() + b"\n")
        writer.close()


class Night:
    """One incident: a database, a mail server, and workers."""

    def __init__(self, dsn: str, db: Conn, directory: Path, mail: MailServer, mail_port: int) -> None:
        self.dsn = dsn
        self.db = db
        self.mail = mail
        self._directory = directory
        self._mail_port = mail_port
        self._workers: list[WorkerProcess] = []
        self.told: dict[str, str] = {str(directory): "/srv/shop"}
        """What the page calls otherwise: as it is here, and as it is there."""
        shutil.copy(Path(__file__).with_name("night_app.py"), directory / "app.py")

    async def enqueue(self, kind: str, count: int, *, queue: str, field: str, minutes: int) -> None:
        """Add jobs that have been ready for so many minutes: nobody waits here for a backlog to grow old."""
        await self.db.execute(
            "select jobq.enqueue($1, jsonb_build_object($2::text, n), queue => $3) from generate_series(1, $4::int) n",
            *(kind, field, queue, count),
        )
        await self.db.execute(
            "update jobq.job set run_at = run_at - $2::interval, enqueued_at = enqueued_at - $2 where kind = $1",
            *(kind, timedelta(minutes=minutes)),
        )

    async def worker(
        self, told: str, *options: str, http: str | None = None, settings: Mapping[str, float] | None = None
    ) -> WorkerProcess:
        """Start a worker that the page calls *told*, with its probes at *http*, and wait until it works."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "jobq.cli.main", "run", "app:queue", *options),
            *(() if http is None else ("--http", "127.0.0.1:0")),
            cwd=self._directory,
            env={**self._environment(), "NIGHT_SETTINGS": json.dumps({**SETTINGS, **(settings or {})})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        worker = WorkerProcess(process, grace_s=25.0)
        self._workers.append(worker)
        self.told[f"{socket.gethostname()}:{worker.pid}"] = told
        await worker.says(" started: queues ", limit_s=LIMIT_S)
        if http is not None:
            (line,) = worker.lines("probes: http")
            self.told[re.findall(r"http://(\S+?)/healthz", line)[0]] = http
        return worker

    async def until(self, question: str, answer: object) -> None:
        """Wait until the database gives *answer*."""
        async with asyncio.timeout(LIMIT_S):
            while (now := await self.db.fetchval(question)) != answer:
                print(f"{question}: {now}")  # pytest shows it if the time is over
                await asyncio.sleep(0.05)

    async def until_printed(self, command: str, text: str) -> None:
        """Type *command* until it prints *text*."""
        async with asyncio.timeout(LIMIT_S):
            while text not in await self.run(command):
                await asyncio.sleep(0.05)

    async def run(self, command: str) -> str:
        """Type a command of the page, and return all that it prints."""
        for here, there in self.told.items():
            command = command.replace(there, here)
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-c", f'jobq() {{ "{sys.executable}" -P -m jobq.cli.main "$@"; }}; {command}'),
            cwd=self._directory,
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                return self.as_told((await shell.communicate())[0].decode())
        finally:
            if shell.returncode is None:
                shell.kill()
                await shell.wait()

    def as_told(self, text: str) -> str:
        """Return *text* with the names that the page uses."""
        for here, there in self.told.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(here)}(?!\w)", there, text)
        return text

    def _environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if name not in FOREIGN},
            "JOBQ_DSN": self.dsn,
            "MAIL_PORT": str(self._mail_port),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
        }

    async def discard(self) -> None:
        """Leave nothing of the workers."""
        for worker in self._workers:
            await worker.discard()


class Operator:
    """Follows one incident of the page, from one block to the next."""

    def __init__(self, night: Night, incident: int) -> None:
        self._night = night
        self._blocks = blocks(incident)

    async def types(self, command: str, *, in_any_order: bool = False) -> None:
        """Type the next command of the page, which begins with *command*: it prints what the page shows."""
        block = next(self._blocks)
        assert block.command.startswith(command)
        printed = await self._night.run(block.command)
        shown, real = alike(block.text), alike(printed)
        if in_any_order:
            shown, real = sorted(shown), sorted(real)
        if shown != real:
            differences = "\n".join(difflib.unified_diff(shown, real, "the page", "the command", lineterm="", n=1))
            pytest.fail(f"$ {block.command}\n{printed}\n{differences}", pytrace=False)

    def finds(self, *workers: WorkerProcess) -> None:
        """Find the next lines of the page in the logs of *workers*."""
        block = next(self._blocks)
        assert not block.command
        logs = "\n".join(self._night.as_told(worker.log) for worker in workers)
        missing = [line for line in alike(block.text) if line not in alike(logs)]
        assert missing == [], logs

    def ends(self) -> None:
        """Nothing is left that the page shows."""
        assert [*self._blocks] == []
