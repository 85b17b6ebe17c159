"""A job that runs far longer than its kind usually does is named with the line at which it stands, and so are slots
that are all held by such jobs.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from jobq import Job, Queue
from jobq.core import usual
from jobq.core.histogram import bucket_of
from jobq.core.states import State
from jobq.db.store import KindCount
from jobq.telemetry.events import JobDied, JobSlow, SlotsStuck
from jobq.telemetry.log import describe
from jobq.worker import slow_jobs
from jobq.worker.stuck_slots import StuckSlots
from tests.db.rows import Rows, new_worker
from tests.worker.conftest import AT_ONCE, Working
from tests.worker.observe import DEADLINE_S, Events, Jobs, until_true

TIMEOUT_S = 40.0
"""Half of it is never over here."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs for a tenth of a second may be slow, and somebody looks all the time."""
    monkeypatch.setattr(slow_jobs, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(usual, "LEAST_S", 0.1)


@pytest.fixture
async def silent() -> AsyncIterator[asyncio.StreamReader]:
    """A connection on whose other end nobody ever says anything."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        yield reader
        writer.close()
        await writer.wait_closed()


def line(mark: str, function: str) -> str:
    """Return the location of the line of this file that bears a *mark*."""
    numbers = [
        number
        for number, text in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1)
        if text.endswith(f"# here: {mark}")
    ]
    assert len(numbers) == 1
    return f"{__file__}:{numbers[0]} in {function}"


async def took(rows: Rows, kind: str, ms: float, *, runs: int = 100) -> None:
    """Let so many attempts of a kind have taken so long."""
    counts = KindCount("default", kind, runs, 0, 0, {bucket_of(ms): runs})
    await rows.store.record_kind_stats(rows.conn, new_worker(), [counts])


# -- the line ------------------------------------------------------------------------------------------------


async def test_a_handler_that_waits_for_a_socket_is_named_with_its_line(
    queue: Queue, rows: Rows, seen: Events, working: Working, silent: asyncio.StreamReader
) -> None:
    """By the line of the application, not by those of asyncio below; with what is usual, and nothing of the payload."""

    @queue.task("fetch", timeout=TIMEOUT_S)
    async def fetch(card_number: str) -> None:
        await silent.read()  # here: socket

    await took(rows, "fetch", 16)
    job = await queue.enqueue(fetch.bind("4111111111111111"))
    async with working():
        slow = await seen(JobSlow)
        silent.feed_eof()

    assert (slow.id, slow.kind, slow.queue, slow.attempt) == (job.id, "fetch", "default", 1)
    assert slow.location == line("socket", "fetch")
    assert slow.usual_s == pytest.approx(0.016)
    assert 0.1 <= slow.ran_s < DEADLINE_S
    assert "4111" not in msgspec.json.encode(slow).decode()
    assert describe(slow)[1] == (
        f"fetch {job.id} has run for {slow.ran_s:.1f} s at attempt 1 (99 % of its kind take up to 16 ms) and stands at"
        f" {slow.location}"
    )


async def test_the_innermost_line_of_the_application_is_named(
    queue: Queue, rows: Rows, seen: Events, working: Working
) -> None:
    """What the handler calls, through a middleware, a coroutine and a context manager."""
    finish = asyncio.Event()

    async def innermost() -> None:
        async with asyncio.timeout(60):
            await finish.wait()  # here: innermost

    async def between() -> None:
        await innermost()

    @queue.middleware
    async def around(job: Job, call_next: Callable[[], Awaitable[object]]) -> object:
        return await call_next()

    @queue.task("nested", timeout=TIMEOUT_S)
    async def nested() -> None:
        await between()

    await took(rows, "nested", 1)
    await queue.enqueue(nested.bind())
    async with working():
        slow = await seen(JobSlow)
        finish.set()

    assert slow.location == line("innermost", "innermost")


async def test_a_thread_is_named_with_its_line(queue: Queue, rows: Rows, seen: Events, working: Working) -> None:
    """Each its own, of two in a handler of two lines."""
    first, second = threading.Event(), threading.Event()

    @queue.task("block", timeout=TIMEOUT_S)
    def block(which: int) -> None:
        if which == 1:
            first.wait(DEADLINE_S)  # here: first
        else:
            second.wait(DEADLINE_S)  # here: second

    await took(rows, "block", 1)
    one, two = await queue.enqueue_many([block.bind(1), block.bind(2)])
    async with working():
        await seen(JobSlow, nth=2)
        first.set()
        second.set()

    assert {event.id: event.location for event in seen.of(JobSlow)} == {
        one.id: line("first", "block"),
        two.id: line("second", "block"),
    }


async def test_an_installed_application_is_named_by_its_own_line(
    queue: Queue,
    rows: Rows,
    seen: Events,
    working: Working,
    silent: asyncio.StreamReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where every file lies among the installed packages, it is known by the package of its handler."""
    monkeypatch.setattr("jobq.worker.whereabouts._NOT_THE_APPLICATIONS", ("/",))

    @queue.task("fetch", timeout=TIMEOUT_S)
    async def fetch() -> None:
        await silent.read()  # here: installed

    await took(rows, "fetch", 16)
    await queue.enqueue(fetch.bind())
    async with working():
        slow = await seen(JobSlow)
        silent.feed_eof()

    assert slow.location == line("installed", "fetch")


# -- the rule ------------------------------------------------------------------------------------------------


async def test_a_job_that_is_as_slow_as_usual_is_not_named(
    queue: Queue, rows: Rows, seen: Events, working: Working
) -> None:
    """It ran for longer than one of a fast kind that is named."""
    finish = asyncio.Event()

    @queue.task("long", timeout=TIMEOUT_S)
    async def long() -> None:
        await finish.wait()

    @queue.task("short", timeout=TIMEOUT_S)
    async def short() -> None:
        await finish.wait()

    await took(rows, "long", 6_000)
    await took(rows, "short", 1)
    await queue.enqueue(long.bind())
    async with working() as running:
        await until_true(lambda: running.worker.is_stuck)  # something runs
        await queue.enqueue(short.bind())
        await seen(JobSlow)
        finish.set()

    assert [event.kind for event in seen.of(JobSlow)] == ["short"]


async def test_where_too_little_is_known_half_of_the_time_out_counts(
    queue: Queue, rows: Rows, seen: Events, jobs: Jobs, working: Working
) -> None:
    """Ninety-nine runs are too few to say what is usual."""
    finish = asyncio.Event()

    @queue.task("new", timeout=0.8, max_attempts=1)
    async def new() -> None:
        await finish.wait()

    await took(rows, "new", 1, runs=99)
    await queue.enqueue(new.bind())
    async with working():
        slow = await seen(JobSlow)
        await jobs.all_become(State.DEAD, 1)

    assert slow.usual_s is None
    assert slow.ran_s >= 0.4
    assert "(more than half of its time-out)" in describe(slow)[1]


async def test_an_attempt_is_named_once(queue: Queue, rows: Rows, seen: Events, jobs: Jobs, working: Working) -> None:
    """The next one of the same job again; meanwhile somebody looks many times."""
    gates = [asyncio.Event(), asyncio.Event()]

    @queue.task("again", timeout=TIMEOUT_S, backoff=AT_ONCE)
    async def again(job: Job) -> None:
        await gates[job.attempt - 1].wait()
        if job.attempt == 1:
            raise OSError

    @queue.task("clock", timeout=TIMEOUT_S)
    async def clock() -> None:
        await gates[1].wait()

    await took(rows, "again", 1)
    await took(rows, "clock", 1)
    first = await queue.enqueue(again.bind())
    async with working():
        await seen(JobSlow)
        await queue.enqueue(clock.bind())
        await seen(JobSlow, nth=2)  # at a later look
        gates[0].set()
        await seen(JobSlow, nth=3)
        gates[1].set()
        await jobs.all_become(State.DONE, 2)

    named = [(event.kind, event.attempt) for event in seen.of(JobSlow)]
    assert named == [("again", 1), ("clock", 1), ("again", 2)]
    assert seen.of(JobSlow)[0].id == first.id


async def test_many_at_once_are_named_a_few_a_look(
    queue: Queue, rows: Rows, seen: Events, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them in the end, each once."""
    monkeypatch.setattr(slow_jobs, "MOST_A_LOOK", 3)
    finish = asyncio.Event()

    @queue.task("hang", timeout=TIMEOUT_S)
    async def hang() -> None:
        await finish.wait()

    await took(rows, "hang", 1)
    added = await queue.enqueue_many([hang.bind()] * 10)
    async with working():
        await seen(JobSlow, nth=3)
        few = len(seen.of(JobSlow))
        await seen(JobSlow, nth=10)
        finish.set()

    assert few == 3
    assert sorted(event.id for event in seen.of(JobSlow)) == [job.id for job in added]


async def test_what_is_usual_need_not_be_known(
    queue: Queue, rows: Rows, seen: Events, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody gets at the durations, half of the time-out counts."""
    monkeypatch.setattr(slow_jobs, "DEADLINE_S", 0.05)
    finish = asyncio.Event()

    @queue.task("hang", timeout=1.0)
    async def hang() -> None:
        await finish.wait()

    await took(rows, "hang", 1)
    await queue.enqueue(hang.bind())
    async with rows.conn.transaction():
        await jobs.script("lock table @schema@.kind_stat in access exclusive mode")
        async with working():
            slow = await seen(JobSlow)
            finish.set()
            await jobs.script("rollback; begin")

    assert slow.usual_s is None


# -- all slots -----------------------------------------------------------------------------------------------


async def test_slots_that_are_all_held_by_hanging_handlers_are_named(
    queue: Queue, seen: Events, working: Working
) -> None:
    """F35: four wait for a socket that never answers, and nothing finishes: it is said once, with their lines."""

    @queue.task("fetch", timeout=TIMEOUT_S)
    async def fetch() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours, theirs:
            await asyncio.get_running_loop().sock_recv(ours, 1)  # here: held

    added = await queue.enqueue_many([fetch.bind()] * 5)
    async with working(default_slots=4, slots_stuck_s=0.2, grace_s=0.0):
        stuck = await seen(SlotsStuck)

    assert (stuck.queue, stuck.executor, stuck.slots) == ("default", "async", 4)
    assert stuck.still_s >= 0.2
    assert stuck.oldest == [f"fetch {job.id} at {line('held', 'fetch')}" for job in added[:3]]
    assert describe(stuck)[1] == (
        "all slots of queue default (4 async) have been busy for 0 s, and nothing finished; the oldest:"
        f" {', '.join(stuck.oldest)}"
    )
    assert len(seen.of(SlotsStuck)) == 1


async def test_slots_that_go_from_one_time_out_to_the_next_are_stuck(
    queue: Queue, seen: Events, working: Working
) -> None:
    """F35: an attempt that was cut off has freed its slot for the next one that hangs, and done no work."""

    @queue.task("hang", timeout=0.05, max_attempts=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    await queue.enqueue_many([hang.bind()] * 100)
    async with working(default_slots=1, slots_stuck_s=1.0, grace_s=0.0):
        stuck = await seen(SlotsStuck)

    before = seen.all[: seen.all.index(stuck)]
    assert [event.error_type for event in before if isinstance(event, JobDied)][:1] == ["TimeoutError"]
    assert stuck.still_s >= 1.0


async def test_it_is_said_again_after_something_has_finished(queue: Queue, seen: Events, working: Working) -> None:
    """Once a spell: a new one begins with what finishes, and with a slot that is free."""
    gates = [asyncio.Event() for _ in range(5)]
    entered: list[int] = []

    @queue.task("hang", timeout=TIMEOUT_S)
    async def hang(number: int) -> None:
        entered.append(number)
        await gates[number].wait()

    async with working(default_slots=2) as running:
        assert running.worker._parts is not None
        (executor,) = running.worker._parts.executors
        slots = StuckSlots(queue="default", executor=executor, after_s=300.0, emit=seen.emit)
        said: list[int] = []

        def look(*times: float) -> None:
            before = len(seen.of(SlotsStuck))
            for now in times:
                slots.look(now)
            said.append(len(seen.of(SlotsStuck)) - before)

        await queue.enqueue(hang.bind(0))
        await until_true(lambda: executor.running == 1)
        look(0, 1, 1000)  # one slot is free
        await queue.enqueue_many([hang.bind(1), hang.bind(2)])
        await until_true(lambda: executor.running == 2)
        look(1000, 1299)  # not yet
        look(1300, 1301, 5000)  # once
        gates[0].set()
        await until_true(lambda: set(entered) == {0, 1, 2})
        look(5000, 5299)  # a new spell
        look(5300, 9000)
        gates[1].set()
        await until_true(lambda: executor.running == 1)
        look(9000)  # one slot is free, maybe for a moment only
        look(9001)  # it is
        await queue.enqueue(hang.bind(3))
        await until_true(lambda: executor.running == 2)
        look(20_000, 20_299)
        look(20_300)
        gates[2].set()
        await until_true(lambda: executor.running == 1)
        look(20_301)  # between two jobs
        await queue.enqueue(hang.bind(4))
        await until_true(lambda: executor.running == 2)
        look(20_302, 20_601, 20_602)  # a new spell all the same: something has finished
        for gate in gates:
            gate.set()

    assert said == [0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1]
