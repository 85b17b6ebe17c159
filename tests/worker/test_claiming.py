"""A claim loop takes what can start now, hears of new jobs at once, and asks nothing it need not ask."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from jobq import Job, Queue
from jobq.core.job import ClaimedJob
from jobq.core.states import State
from jobq.db.store import Sleeper, Store
from jobq.telemetry.measured import WakeUp
from jobq.worker.claimer import Claimer
from jobq.worker.supervisor import ExitCode
from tests.worker.conftest import Working
from tests.worker.observe import Jobs, Running, eventually, until_true, within

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]

NEVER_S = 30.0
"""A poll that is too late for any test: what starts earlier was notified."""


class Looks:
    """Counts the claims and the wake-ups of each queue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, jobs: Jobs) -> None:
        self.asked: Counter[str] = Counter()
        self.woken: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self._jobs = jobs
        claim, wake = Store.claim_jobs, Claimer.wake

        async def counted_claim(store: Store, conn: Conn, *, queue: str, **options: Any) -> list[ClaimedJob]:
            self.asked[queue] += 1
            found = await claim(store, conn, queue=queue, **options)
            self._answered[queue] += 1
            return found

        def counted_wake(claimer: Claimer, source: WakeUp) -> None:
            self.woken[claimer.queue] += 1
            wake(claimer, source)

        monkeypatch.setattr(Store, "claim_jobs", counted_claim)
        monkeypatch.setattr(Claimer, "wake", counted_wake)

    async def notify(self, queue: str) -> None:
        """Wake the loops of one queue, and wait until they have heard it."""
        before = self.woken[queue]
        await self._jobs.run("select @schema@.notify_sleepers(array[$1])", queue)
        await until_true(lambda: self.woken[queue] > before)

    async def look(self, queue: str) -> None:
        """Wake the loops of one queue, and wait until one has looked."""
        before = self._answered[queue]
        await self.notify(queue)
        await until_true(lambda: self._answered[queue] > before)

    async def calm(self, *queues: str) -> None:
        """Wait until the loops of these queues sleep and hear notifications."""
        await eventually(self._jobs.asleep, lambda asleep: asleep == sorted(queues))
        await eventually(lambda: self._jobs.backends("query ilike 'listen%' and state = 'idle'"))
        for queue in queues:
            await self.look(queue)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, jobs: Jobs) -> Looks:
    """Claims and wake-ups of the test's workers, by queue."""
    return Looks(monkeypatch, jobs)


async def test_no_more_run_than_there_are_slots(queue: Queue, jobs: Jobs, working: Working) -> None:
    """Each queue has its own slots: forty jobs in three of them, forty in one."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def work(job: Job) -> None:
        running[job.queue] += 1
        most[job.queue] = max(most[job.queue], running[job.queue])
        await asyncio.sleep(0.001)
        running[job.queue] -= 1

    for name in ("three", "one"):
        queue.task(name, queue=name)(work)
    await queue.enqueue_many([queue.job(name) for name in ("three", "one") for _ in range(40)])
    async with working(slots={"three": 3, "one": 1}):
        await jobs.all_become(State.DONE, 80)

    assert most == {"three": 3, "one": 1}


async def test_no_more_are_claimed_than_can_start(queue: Queue, jobs: Jobs, working: Working) -> None:
    """With both slots taken the other jobs wait in the database, where another worker can have them."""
    started, finish = asyncio.Semaphore(0), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.release()
        await finish.wait()

    await queue.enqueue_many([work.bind()] * 10)
    async with working(default_slots=2):
        for _ in range(2):
            await started.acquire()
        assert await jobs.count() == {State.RUNNING: 2, State.WAITING: 8}
        finish.set()
        await jobs.all_become(State.DONE, 10)


async def test_an_enqueue_wakes_a_sleeping_worker(queue: Queue, jobs: Jobs, working: Working, looks: Looks) -> None:
    """Handlers of both kinds on one queue start at once though the next poll is half a minute away."""

    @queue.task("async")
    async def in_loop() -> None: ...

    @queue.task("def")
    def in_thread() -> None: ...

    async with working(poll_s=NEVER_S):
        await looks.calm("default", "default")
        for new in (in_thread.bind(), in_loop.bind(), in_thread.bind()):
            job = await queue.enqueue(new)
            await within(5, jobs.become(job.id, State.DONE))


async def test_a_redrive_wakes_a_sleeping_worker(queue: Queue, jobs: Jobs, working: Working, looks: Looks) -> None:
    """What a person makes ready again starts at once, too."""

    @queue.task("work", max_attempts=1)
    async def work(job: Job) -> None:
        if job.fence == 1:
            raise OSError

    async with working(poll_s=NEVER_S):
        await looks.calm("default")
        job = await queue.enqueue(work.bind())
        await within(5, jobs.become(job.id, State.DEAD))
        await looks.calm("default")
        await queue.redrive(job.id)
        await within(5, jobs.become(job.id, State.DONE))


async def test_a_job_between_the_look_and_the_sleep_is_found(
    queue: Queue, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose enqueue saw no sleeper, because the loop had not asked yet, does not wait for the poll."""
    fall_asleep = Store.fall_asleep
    late: list[int] = []

    @queue.task("work")
    async def work() -> None: ...

    async def enqueue_and_fall_asleep(store: Store, conn: Conn, sleeper: Sleeper, for_s: float) -> None:
        if not late:
            late.append((await queue.enqueue(work.bind())).id)
        await fall_asleep(store, conn, sleeper, for_s)

    monkeypatch.setattr(Store, "fall_asleep", enqueue_and_fall_asleep)
    # Without a listener: the look that it causes when it is ready would find the job as well.
    monkeypatch.setattr(Claimer, "wake", lambda claimer, source: None)
    async with working(poll_s=NEVER_S):
        await within(5, until_true(lambda: late))
        await within(5, jobs.become(late[0], State.DONE))


async def test_a_notification_during_a_look_is_not_lost(
    queue: Queue, jobs: Jobs, working: Working, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is committed after the look's snapshot, and notified before its answer, starts at once."""
    late: list[int] = []

    @queue.task("work")
    async def work() -> None: ...

    async with working(poll_s=NEVER_S):
        await looks.calm("default")
        claim = Store.claim_jobs

        async def claim_and_enqueue(store: Store, conn: Conn, **options: Any) -> list[ClaimedJob]:
            found = await claim(store, conn, **options)
            if not late:
                before = looks.woken["default"]
                late.append((await queue.enqueue(work.bind())).id)
                await until_true(lambda: looks.woken["default"] > before)
            return found

        monkeypatch.setattr(Store, "claim_jobs", claim_and_enqueue)
        await looks.notify("default")
        await within(5, until_true(lambda: late))
        await within(5, jobs.become(late[0], State.DONE))


async def test_a_notification_for_another_queue_asks_nothing(queue: Queue, working: Working, looks: Looks) -> None:
    """F82: only the loops of the queue that has a new job look."""

    @queue.task("mail", queue="mail")
    async def mail() -> None: ...

    @queue.task("reports", queue="reports")
    async def reports() -> None: ...

    async with working(poll_s=NEVER_S):
        await looks.calm("mail", "reports")
        before = looks.asked["reports"]
        for _ in range(3):
            await looks.look("mail")

        assert looks.asked["reports"] == before


async def test_a_notification_asks_nothing_while_all_slots_are_taken(
    queue: Queue, jobs: Jobs, working: Working, looks: Looks
) -> None:
    """F82: it is remembered: the look comes with the next free slot."""
    started, finish = asyncio.Event(), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.set()
        await finish.wait()

    async with working(poll_s=NEVER_S, default_slots=1):
        await looks.calm("default")
        await queue.enqueue(work.bind())
        await started.wait()
        before = looks.asked["default"]
        for _ in range(3):
            await queue.enqueue(work.bind())
            await looks.notify("default")
        assert looks.asked["default"] == before
        finish.set()
        await within(5, jobs.all_become(State.DONE, 4))


async def test_a_stream_of_jobs_takes_the_flag_away_for_a_while(
    queue: Queue, jobs: Jobs, working: Working, looks: Looks
) -> None:
    """F79: above fifty a second nobody is asked to notify; when it is over the loop sleeps and hears again."""

    @queue.task("work")
    async def work() -> None: ...

    async with working(poll_s=NEVER_S):
        await looks.calm("default")
        await queue.enqueue_many([work.bind()] * 120)
        await eventually(jobs.asleep, lambda asleep: asleep == [])
        unheard = await queue.enqueue(work.bind(), notify=False)
        await within(5, jobs.become(unheard.id, State.DONE))
        await eventually(jobs.asleep, lambda asleep: asleep == ["default"])
        await looks.calm("default")
        job = await queue.enqueue(work.bind())
        await within(5, jobs.become(job.id, State.DONE))


async def test_a_poll_finds_what_was_not_notified(queue: Queue, jobs: Jobs, working: Working, looks: Looks) -> None:
    """F08: nothing but latency depends on a notification."""

    @queue.task("work")
    async def work() -> None: ...

    async with working(poll_s=0.05):
        await looks.calm("default")
        job = await queue.enqueue(work.bind(), notify=False)
        await jobs.become(job.id, State.DONE)


async def test_a_flood_on_one_queue_does_not_hold_up_another(queue: Queue, jobs: Jobs, working: Working) -> None:
    """Slots are never shared, so the other queue's jobs run while the first one's fill all of theirs."""
    started, finish = asyncio.Event(), asyncio.Event()

    @queue.task("slow", queue="reports")
    async def slow() -> None:
        started.set()
        await finish.wait()

    @queue.task("quick", queue="mail")
    async def quick() -> None: ...

    await queue.enqueue_many([slow.bind()] * 50)
    async with working(slots={"reports": 2, "mail": 2}):
        await started.wait()
        await queue.enqueue_many([quick.bind()] * 10)
        await jobs.until({State.RUNNING: 2, State.WAITING: 48, State.DONE: 10})
        finish.set()
        await jobs.all_become(State.DONE, 60)


async def test_a_kind_runs_in_whatever_queue_it_was_enqueued(
    dsn: str, schema: str, queue: Queue, jobs: Jobs, working: Working
) -> None:
    """In that of another handler, and in one that only `queues=` names: a backfill of the kind that has its own."""
    ran: list[str] = []
    declared = Queue(dsn, schema=schema, queues={"backfill": 1})

    @declared.task("reset", queue="passwords")
    async def reset(job: Job) -> None:
        ran.append(f"reset in {job.queue}")

    @declared.task("resize", queue="images")
    def resize(job: Job) -> None:
        ran.append(f"resize in {job.queue}")

    for name in ("passwords", "images", "backfill"):
        await queue.enqueue("reset", queue=name)
        await queue.enqueue("resize", queue=name)
    async with working(declared):
        await jobs.all_become(State.DONE, 6)

    assert sorted(ran) == [f"{kind} in {name}" for kind in ("reset", "resize") for name in sorted(declared.served)]


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_claim_under_way_at_the_stop_is_handed_back(
    queue: Queue, jobs: Jobs, working: Working, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """F17: the stop comes just before or just after the server commits the claim: nothing starts, nothing is lost."""
    ran: list[int] = []
    claim = Store.claim_jobs

    @queue.task("work")
    async def work(n: int) -> None:
        ran.append(n)

    async def claim_and_stop(store: Store, conn: Conn, **options: Any) -> list[ClaimedJob]:
        worker = (await entered).worker
        if moment == "before":
            worker.stop()
        found = await claim(store, conn, **options)
        worker.stop()
        return found

    enqueued = await queue.enqueue_many([work.bind(n) for n in range(5)])
    monkeypatch.setattr(Store, "claim_jobs", claim_and_stop)
    for round_ in range(1, 16):
        entered: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        async with working() as running:
            entered.set_result(running)
            assert await running.ended() is ExitCode.DRAINED
        for job in enqueued:
            now = await jobs.get(job.id)
            assert (now.state, now.attempt, now.fence) == (State.WAITING, 0, round_)
    assert ran == []


async def test_idle_connections_hold_no_transaction(queue: Queue, jobs: Jobs, working: Working) -> None:
    """F80, F94: while twenty handlers run, none of the worker's connections is in one."""
    started, finish = asyncio.Semaphore(0), asyncio.Event()

    @queue.task("work")
    async def work() -> None:
        started.release()
        await finish.wait()

    await queue.enqueue_many([work.bind()] * 20)
    async with working():
        for _ in range(20):
            await started.acquire()
        await eventually(lambda: jobs.backends("state <> 'idle'"), lambda found: found == [])
        finish.set()
        await jobs.all_become(State.DONE, 20)
