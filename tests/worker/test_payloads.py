"""Rows that this process cannot run: payloads that do not fit, kinds that it does not know."""

from __future__ import annotations

from jobq import Queue
from jobq.core.states import State
from jobq.telemetry.events import JobDied
from tests.worker.conftest import Working
from tests.worker.observe import Events, Jobs


async def test_a_changed_signature_is_met_as_far_as_it_goes(
    queue: Queue, seen: Events, jobs: Jobs, working: Working
) -> None:
    """F66: unknown fields are ignored and defaults fill in; what does not fit is dead at once and never called."""
    calls: list[tuple[int, str]] = []

    @queue.task("greet", max_attempts=9)
    async def greet(n: int, word: str = "hello") -> None:
        calls.append((n, word))

    fits = ['{"n": 1, "gone": true}', '{"n": 2}', '{"n": 3, "word": "hi"}']
    misfits = ['{"word": "hi"}', '{"n": "4"}', '{"n": null}', '{"n": 1.5}']
    enqueued = [
        await jobs.run("select id from @schema@.enqueue('greet', $1::text::jsonb)", payload)
        for payload in fits + misfits
    ]
    async with working():
        await jobs.until({State.DONE: 3, State.DEAD: 4})
        await seen(JobDied, nth=4)

    assert sorted(calls) == [(1, "hello"), (2, "hello"), (3, "hi")]
    for job_id in enqueued[3:]:
        now = await jobs.get(job_id)
        assert (now.state, now.attempt, len(now.errors)) == (State.DEAD, 0, 1)
        assert "$.n" in now.errors[0]["message"]
    assert {event.reason for event in seen.of(JobDied)} == {"payload does not fit the handler"}
    assert {event.attempt for event in seen.of(JobDied)} == {0}


async def test_a_dead_misfit_succeeds_after_the_fix(
    queue: Queue, dsn: str, schema: str, jobs: Jobs, working: Working
) -> None:
    """F66: the payload is kept as it was, so a handler that takes it can run the job after a redrive."""
    got: list[str | int] = []

    @queue.task("greet")
    async def greet(n: int) -> None: ...

    job_id = await jobs.run("""select id from @schema@.enqueue('greet', '{"n": "four"}')""")
    async with working():
        await jobs.become(job_id, State.DEAD)
    fixed = Queue(dsn, schema=schema)

    @fixed.task("greet")
    async def greet_all(n: int | str) -> None:
        got.append(n)

    async with working(fixed):
        report = await fixed.redrive(job_id)
        now = await jobs.become(job_id, State.DONE)

    assert report.redriven == 1
    assert got == ["four"]
    assert now.attempt == 1


async def test_unknown_kinds_are_left_alone(queue: Queue, dsn: str, schema: str, jobs: Jobs, working: Working) -> None:
    """F65: a worker that does not know a kind neither fails nor charges it; one that knows it runs all of them."""
    ran: list[str] = []

    async def a() -> None:
        ran.append("a")

    async def b() -> None:
        ran.append("b")

    queue.task("a")(a)
    new = Queue(dsn, schema=schema)
    new.task("a")(a)
    new.task("b")(b)
    enqueued = await queue.enqueue_many([queue.job("b").with_options(queue="default") for _ in range(20)])
    last = await queue.enqueue("a", {})
    async with working():
        await jobs.become(last.id, State.DONE)

    assert ran == ["a"]
    untouched = {(now.state, now.attempt, now.fence) for now in [await jobs.get(job.id) for job in enqueued]}
    assert untouched == {(State.WAITING, 0, 0)}

    async with working(new):
        await jobs.all_become(State.DONE, 21)
    assert ran == ["a"] + ["b"] * 20
