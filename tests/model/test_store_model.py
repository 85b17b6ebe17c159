"""Random operations against the store and a model of it in Python: after each step every job is where it should be.

Times are either now or an hour away; `an_hour_passes` lets them come. A lease holds, or lapses by a rule of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import asyncpg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobq.core.enqueue import make_row
from jobq.core.job import Enqueued, JobId, NewJob, WorkerId
from jobq.core.states import State
from jobq.core.worker import WorkerRow
from jobq.db import migrate
from jobq.db.statements import quote_identifier, render
from jobq.db.store import Owned, Store
from jobq.producer import add_jobs
from tests.model.model import Model, Place

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    Conn = Connection[Record]

T = TypeVar("T")

WORKERS = (WorkerId(UUID(int=1)), WorkerId(UUID(int=2)))
HOUR_S = 3600.0
ERROR = '{"type": "E", "message": "m", "traceback": "t", "fingerprint": "f"}'


# -- the operations ------------------------------------------------------------------------------------

KEYS = st.lists(st.none() | st.sampled_from("ab"), min_size=1, max_size=3)
PICKS = st.lists(st.integers(0, 5), min_size=1, max_size=3)
OFTEN = st.sampled_from([True, True, False])
HOWS = st.sampled_from(["done", "retry", "released", "dead", "uncalled"])

STORIES = settings(max_examples=100, stateful_step_count=30, deadline=None, print_blob=True)

WHERE_JOBS_ARE = """
select j.id, case when j.worker_id is null then 'waiting' else 'running' end, j.attempt, j.fence, j.worker_id,
    j.crashes, j.worker_id is null and j.run_at > clock_timestamp()
from @schema@.job j
union all
select d.id, 'done', d.attempt, null, d.worker_id, d.crashes, false from @schema@.done d
union all
select d.id, 'dead', d.attempt, d.fence, d.worker_id, d.crashes, false from @schema@.dead_letter d
"""


def picked(picks: list[int], ids: list[JobId]) -> list[JobId]:
    """Return different ones of *ids*, chosen by *picks*."""
    return list({ids[pick % len(ids)]: None for pick in picks}) if ids else []


class StoreMachine(RuleBasedStateMachine):
    """One schema, two workers, every operation that changes a job."""

    def __init__(self, runner: asyncio.Runner, conn: Conn, store: Store) -> None:
        super().__init__()
        self._runner = runner
        self._conn = conn
        self._store = store
        self._model = Model()
        self._fences: dict[JobId, int] = {}
        for table in ("job", "done", "dead_letter", "idempotency_key", "worker"):
            self._run(conn.execute(self._sql(f"delete from @schema@.{table}")))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def _sql(self, text: str) -> str:
        return render(text, self._store.schema)

    def _pick(self, picks: list[int], likely: State) -> list[JobId]:
        """Return different jobs, first those in the state that the operation is for."""
        others = [job_id for job_id in self._model.places if self._model.places[job_id].state is not likely]
        return picked(picks, [*self._model.of(likely), *others])

    @initialize(keys=KEYS)
    def begin(self, keys: list[str | None]) -> None:
        self.enqueue(keys, lasting=False, is_due=True, in_bulk=False)

    @rule(keys=KEYS, lasting=st.booleans(), is_due=OFTEN, in_bulk=st.booleans())
    def enqueue(self, keys: list[str | None], lasting: bool, is_due: bool, in_bulk: bool) -> None:
        run_at = None if is_due else timedelta(seconds=HOUR_S)
        news = [NewJob(kind="work", payload=b"{}", home="default", run_at=run_at, idempotency_key=key) for key in keys]
        rows = [make_row(new, now=datetime.now(UTC)) for new in news]
        answers_for_s = HOUR_S if lasting else 0.0

        async def add() -> list[Enqueued]:
            async with self._conn.transaction():
                if in_bulk:
                    return await add_jobs(self._store, self._conn, rows, answers_for_s=answers_for_s, notify=True)
                return [
                    await self._store.enqueue_job(self._conn, row, answers_for_s=answers_for_s, notify=True)
                    for row in rows
                ]

        for key, answer in zip(keys, self._run(add()), strict=True):
            if answer.created:
                assert answer.id not in self._model.places
                assert self._model.enqueue(answer.id, key, lasting, is_due) == answer.id
            else:
                assert self._model.take(key, JobId(-1), lasting) == answer.id

    @precondition(lambda self: self._model.of(State.WAITING))
    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 3))
    def claim(self, worker: WorkerId, limit: int) -> None:
        self._claim(worker, limit)

    @precondition(lambda self: self._model.ready())
    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 3), how=HOWS, is_due=OFTEN)
    def claim_and_settle(self, worker: WorkerId, limit: int, how: str, is_due: bool) -> None:
        owned = self._claim(worker, limit)

        assert self._settle(worker, owned, how, is_due) == {one.id for one in owned}

    def _claim(self, worker: WorkerId, limit: int) -> list[Owned]:
        ready = self._model.ready()

        claimed = self._run(
            self._store.claim_jobs(
                self._conn, queue="default", kinds=["work"], limit=limit, worker_id=worker, lease_s=HOUR_S
            )
        )

        assert len(claimed) == min(limit, len(ready))
        assert {job.id for job in claimed} <= ready
        for job in claimed:
            self._model.claim(job.id, worker)
            assert (job.attempt, job.fence) == (self._model.places[job.id].attempt, self._model.places[job.id].fence)
        return [Owned(job.id, job.fence) for job in claimed]

    @precondition(lambda self: self._model.of(State.RUNNING))
    @rule(picks=PICKS, how=HOWS, is_due=OFTEN)
    def settle(self, picks: list[int], how: str, is_due: bool) -> None:
        running = picked(picks, self._model.of(State.RUNNING))
        owned = [Owned(job_id, self._fences[job_id]) for job_id in running]
        owner = self._model.places[owned[0].id].owner

        matched = self._settle(WORKERS[owner == WORKERS[1]], owned, how, is_due)

        assert owned[0].id in matched

    @rule(worker=st.sampled_from(WORKERS), picks=PICKS, staleness=st.sampled_from([-1, 0, 1]), how=HOWS)
    def settle_perhaps_stale(self, worker: WorkerId, picks: list[int], staleness: int, how: str) -> None:
        ids = self._pick(picks, State.RUNNING)
        self._settle(worker, [Owned(job_id, self._fences[job_id] - staleness) for job_id in ids], how, is_due=True)

    def _settle(self, worker: WorkerId, owned: list[Owned], how: str, is_due: bool) -> set[JobId]:
        store, conn, count = self._store, self._conn, len(owned)
        delays_s = [0.0 if is_due else HOUR_S] * count
        match how:
            case "done":
                work = store.settle_done(conn, worker, owned, [1] * count)
            case "retry":
                work = store.settle_retry(conn, worker, owned, delays_s, [ERROR] * count)
            case "released":
                work = store.settle_released(conn, worker, owned, delays_s, [ERROR] * count)
            case _:
                work = store.settle_dead(conn, worker, owned, [how == "dead"] * count, ["r"] * count, [ERROR] * count)

        matched = self._run(work)

        assert matched == {one.id for one in owned if self._model.owns(one.id, one.fence, worker)}
        for job_id in matched:
            self._model.settle(job_id, how, is_due)
        return matched

    # -- leases ----------------------------------------------------------------------------------------

    @rule(worker=st.sampled_from(WORKERS), lease_s=st.sampled_from([HOUR_S, -1.0]))
    def beat_or_fall_silent(self, worker: WorkerId, lease_s: float) -> None:
        row = WorkerRow(worker, 1, "host", "0", ["default"], ["work"])
        self._run(self._store.beat(self._conn, row, lease_s))
        self._model.is_alive[worker] = lease_s > 0

        lapsed = self._run(self._store.list_lapsed_workers(self._conn))

        assert set(lapsed) == {worker for worker, is_alive in self._model.is_alive.items() if not is_alive}

    @precondition(lambda self: False in self._model.is_alive.values())
    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 3))
    def reap_worker(self, worker: WorkerId, limit: int) -> None:
        held = self._model.held_by(worker) if self._model.is_alive.get(worker) is False else set()

        reaped = self._run(self._store.reap_worker(self._conn, worker, pause_s=0.0, limit=limit))

        assert {job.id for job in reaped} <= held
        assert len(reaped) == min(limit, len(held))
        for job in reaped:
            assert job.attempt == self._model.places[job.id].attempt
            self._model.reap(job.id)

    @rule(worker=st.sampled_from(WORKERS))
    def forget_worker(self, worker: WorkerId) -> None:
        may_go = self._model.is_alive.get(worker) is False and not self._model.held_by(worker)

        assert self._run(self._store.forget_worker(self._conn, worker)) == may_go
        if may_go:
            del self._model.is_alive[worker]

    @precondition(lambda self: self._model.of(State.RUNNING))
    @rule(picks=PICKS)
    def leases_lapse(self, picks: list[int]) -> None:
        ids = picked(picks, self._model.of(State.RUNNING))
        lapse = "update @schema@.job set lease_until = now() - interval '1 s' where id = any($1)"
        self._run(self._conn.execute(self._sql(lapse), ids))
        self._model.lapsed |= set(ids)

        listed = self._run(self._store.list_orphans(self._conn, 100))

        assert {(one.id, one.fence) for one in listed} == {
            (one, self._model.places[one].fence) for one in self._model.orphans
        }

    @precondition(lambda self: self._model.of(State.RUNNING))
    @rule(picks=PICKS, staleness=st.sampled_from([-1, 0, 0, 1]))
    def reap_orphans(self, picks: list[int], staleness: int) -> None:
        orphans = [Owned(one, self._fences[one] - staleness) for one in self._pick(picks, State.RUNNING)]

        reaped = self._run(self._store.reap_orphans(self._conn, orphans, pause_s=0.0))

        assert {job.id for job in reaped} == {
            one.id for one in orphans if one.id in self._model.orphans and staleness == 0
        }
        for job in reaped:
            self._model.reap(job.id)

    @precondition(lambda self: self._model.of(State.RUNNING))
    @rule(worker=st.sampled_from(WORKERS), picks=PICKS, staleness=st.sampled_from([-1, 0, 0, 1]))
    def renew(self, worker: WorkerId, picks: list[int], staleness: int) -> None:
        owned = [Owned(one, self._fences[one] - staleness) for one in self._pick(picks, State.RUNNING)]

        kept = self._run(self._store.renew_jobs(self._conn, worker, owned, HOUR_S))

        assert kept == {one.id for one in owned if self._model.owns(one.id, one.fence, worker)}
        self._model.lapsed -= kept

    @precondition(lambda self: self._model.of(State.RUNNING))
    @rule(worker=st.sampled_from(WORKERS), picks=PICKS)
    def release_strays(self, worker: WorkerId, picks: list[int]) -> None:
        in_hand = self._pick(picks, State.RUNNING)

        released = self._run(self._store.release_strays(self._conn, worker, in_hand))

        assert set(released) == self._model.held_by(worker) - set(in_hand)
        for job_id in released:
            self._model.settle(job_id, "released", is_due=True)

    # -- dead letters, keys, time ----------------------------------------------------------------------

    @precondition(lambda self: self._model.of(State.DEAD))
    @rule(picks=PICKS)
    def redrive(self, picks: list[int]) -> None:
        ids = self._pick(picks, State.DEAD)
        dead = [job_id for job_id in ids if self._model.places[job_id].state is State.DEAD]

        redriven = self._run(self._store.redrive_jobs(self._conn, ids))

        assert {one.id for one in redriven} == set(dead)
        for one in redriven:
            assert one.owner_id == self._model.redrive(one.id)

    @precondition(lambda self: self._model.of(State.DEAD))
    @rule(picks=PICKS)
    def delete(self, picks: list[int]) -> None:
        ids = self._pick(picks, State.DEAD)
        dead = {job_id for job_id in ids if self._model.places[job_id].state is State.DEAD}

        assert set(self._run(self._store.delete_dead_letters(self._conn, ids))) == dead
        for job_id in dead:
            del self._model.places[job_id]

    @precondition(lambda self: self._model.keys)
    @rule()
    def purge(self) -> None:
        self._run(self._store.purge_keys(self._conn, datetime.min.replace(tzinfo=UTC), 100))
        self._model.purge()

    @precondition(lambda self: self._model.scheduled)
    @rule()
    def an_hour_passes(self) -> None:
        self._run(self._conn.execute(self._sql("update @schema@.job set run_at = now() where run_at > now()")))
        self._model.scheduled.clear()

    @invariant()
    def every_job_is_where_it_should_be(self) -> None:
        rows = self._run(self._conn.fetch(self._sql(WHERE_JOBS_ARE)))

        places = {row[0]: Place(State(row[1]), *row[2:6]) for row in rows}
        assert len(places) == len(rows), "a job is in two places"
        assert places == self._model.places
        assert {row[0] for row in rows if row[6]} == self._model.scheduled & set(self._model.of(State.WAITING))
        for job_id, place in places.items():
            if place.fence is not None:
                assert place.fence >= self._fences.get(job_id, 0), "a fence went back"
                self._fences[job_id] = place.fence

    @invariant()
    def keys_are_held_by_whom_the_model_says(self) -> None:
        rows = self._run(self._conn.fetch(self._sql("select k.key, k.job_id from @schema@.idempotency_key k")))

        assert {row[0]: row[1] for row in rows} == {key: held.owner for key, held in self._model.keys.items()}


@pytest.mark.timeout(360)  # a failure is told by the shortest story that shows it, which takes minutes to find
def test_the_store_does_what_the_model_does(dsn: str, schema: str) -> None:
    """A hundred random stories of up to thirty operations each."""
    with asyncio.Runner() as runner:
        conn = runner.run(asyncpg.connect(dsn, server_settings={"search_path": ""}))
        try:
            runner.run(migrate.migrate(conn, schema))

            class Bound(StoreMachine):
                def __init__(self) -> None:
                    super().__init__(runner, conn, Store(schema))

            run_state_machine_as_test(Bound, settings=STORIES)
        finally:
            runner.run(conn.execute(f"drop schema if exists {quote_identifier(schema)} cascade"))
            runner.run(conn.close())
