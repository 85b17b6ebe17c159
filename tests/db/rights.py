"""Who may do what: each statement of jobq, some that are none of jobq's, and each object of the schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jobq.core.job import JobId
from jobq.core.position import FRONT
from jobq.core.recurring import DueEntry
from jobq.core.states import State
from jobq.db import migrate
from jobq.db.facts import FactReports
from jobq.db.incidents import Incident, Incidents
from jobq.db.overview import Overview
from jobq.db.reports import DeadFilter, JobFilter, Reports
from jobq.db.store import KindCount, Owned, Sleeper
from tests.db.entries import NAME, add_entry, ahead, due, entries, entry_row, fire
from tests.db.rows import KIND, QUEUE, Rows, error_json, new_job, new_worker, worker_row

if TYPE_CHECKING:
    from tests.conftest import Conn

EVERYBODY = frozenset({"producer", "worker", "reader", "operator"})
PRODUCERS = frozenset({"producer", "worker"})
WORKERS = frozenset({"worker"})
READERS = frozenset({"reader", "operator"})
OPERATORS = frozenset({"operator"})
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NOBODYS = Owned(JobId(1), 1)


class Actor:
    """One role at its connection, beside *rows*, which may do everything."""

    def __init__(self, conn: Conn, rows: Rows) -> None:
        self.conn = conn
        self.rows = rows
        self.store = rows.store
        self.reports = Reports(rows.store.schema)
        self.incidents = Incidents(rows.store.schema)
        self.entries = entries(rows)

    async def settle(self, name: str, *values: object) -> object:
        """Write about a running attempt."""
        attempt = await self.rows.running()
        return await getattr(self.store, name)(self.conn, attempt.worker_id, [attempt], *([one] for one in values))

    async def list_jobs(self, state: State) -> object:
        """List the jobs in one state."""
        return await self.reports.list_jobs(self.conn, JobFilter(), states=[state], limit=5)


Work = Callable[[Actor], Awaitable[object]]


async def _take_keys(actor: Actor, key: str) -> object:
    return await actor.store.take_keys(actor.conn, [await actor.rows.waiting()], [KIND], [key], 60.0)


async def _purge_keys(actor: Actor) -> object:
    await actor.rows.waiting(idempotency_key="gone")
    await actor.rows.run("update @schema@.idempotency_key set until = now() - interval '1 hour'")
    await actor.rows.run("delete from @schema@.job")
    return await actor.store.purge_keys(actor.conn, LONG_AGO, 10)


async def _empty_slot(actor: Actor) -> object:
    await actor.rows.run(
        """
        insert into @schema@.done (
            id, enqueued_at, finished_at, run_ms, attempt, crashes, slot, priority, queue, kind, outcome, payload
        )
        select 1, now() - interval '9 days', now() - interval '9 days', 1, 1, 0,
            (floor(extract(epoch from clock_timestamp()) / slot_s)::bigint + 2) % 8, 5, 'mail', 'old', 'done', '{}'
        from @schema@.history
        """
    )
    given_back = await actor.store.empty_oldest_slot(actor.conn)
    assert given_back
    return given_back


async def _note_dead(actor: Actor) -> object:
    await actor.rows.run(
        "insert into @schema@.dead_watch (hook, looked_at, read_to)"
        " values ('a.hook', now() - interval '1 min', now() - interval '1 min')"
        " on conflict do nothing"
    )
    await actor.rows.dead(kind="dying")
    noted = await actor.incidents.note_dead(actor.conn, "a.hook", kinds=None, quiet_s=60.0, lately_s=0.0, limit=99)
    assert await actor.rows.count("incident", "subject = 'dying'") == 1
    return noted


async def _redrive(actor: Actor) -> object:
    letters = [await actor.rows.dead(idempotency_key="again"), await actor.rows.dead()]
    redriven = await actor.store.redrive_jobs(actor.conn, letters)
    assert [one.owner_id for one in redriven] == letters
    return redriven


async def _fire(actor: Actor) -> object:
    entry = await _entry(actor)
    return await actor.entries.fire_recurring(actor.conn, entry, ahead(entry))


async def _fault(actor: Actor) -> object:
    return await actor.entries.fault_recurring(actor.conn, await _entry(actor), "x", pause_s=1.0)


async def _entry(actor: Actor) -> DueEntry:
    await actor.rows.run("delete from @schema@.recurring")
    await add_entry(actor.rows)
    return await due(actor.rows)


def _with_tick(change: Work) -> Work:
    """A change of an entry whose next tick has its job already."""

    async def work(actor: Actor) -> object:
        await _entry(actor)
        await fire(actor.rows)
        return await change(actor)

    return work


def _keyed(key: str) -> Work:
    job = new_job(idempotency_key=key)
    return lambda a: a.store.enqueue_job(a.conn, job, answers_for_s=60.0, notify=True)


def _sleeper() -> Sleeper:
    return Sleeper(QUEUE, new_worker(), "async")


NOBODYS_INCIDENT = Incident("mail", 1, LONG_AGO, LONG_AGO, {})
HOOK = ("a.hook", "backlog")
COUNTS = [KindCount(QUEUE, KIND, 1, 0, 0, {3: 1})]

CHANGES: dict[str, tuple[frozenset[str], Work]] = {
    # Who may redrive adds jobs, so operators may too, but for the SQL function.
    "enqueue_job": (
        PRODUCERS | OPERATORS,
        lambda a: a.store.enqueue_job(a.conn, new_job(), answers_for_s=60.0, notify=True),
    ),
    "enqueue_job, new key": (PRODUCERS, _keyed("fresh")),
    "enqueue_job, headers": (
        PRODUCERS,
        lambda a: a.store.enqueue_job(a.conn, new_job(), answers_for_s=60.0, notify=True, headers="{}"),
    ),
    "draw_ids": (PRODUCERS, lambda a: a.store.draw_ids(a.conn, 3)),
    "take_keys": (PRODUCERS | OPERATORS, lambda a: _take_keys(a, "bulk")),
    "insert_jobs": (PRODUCERS | OPERATORS, lambda a: a.store.insert_jobs(a.conn, [JobId(10**9)], [new_job()])),
    "notify_sleepers": (PRODUCERS | OPERATORS, lambda a: a.store.notify_sleepers(a.conn, [QUEUE])),
    "claim_jobs": (
        WORKERS,
        lambda a: a.store.claim_jobs(
            a.conn, queue=QUEUE, kinds=[KIND], limit=5, worker_id=new_worker(), lease_s=60.0, marks=FRONT
        ),
    ),
    "find_passed": (
        WORKERS,
        lambda a: a.store.find_passed(a.conn, queue=QUEUE, kinds=[KIND], since=FRONT, marks=FRONT),
    ),
    "settle_done": (WORKERS, lambda a: a.settle("settle_done", 7)),
    "settle_retry": (WORKERS, lambda a: a.settle("settle_retry", 0.0, error_json())),
    "settle_released": (WORKERS, lambda a: a.settle("settle_released", 0.0, error_json())),
    "settle_dead": (WORKERS, lambda a: a.settle("settle_dead", True, "permanent failure", error_json())),
    "fall_asleep": (WORKERS, lambda a: a.store.fall_asleep(a.conn, _sleeper(), 5.0)),
    "wake_up": (WORKERS, lambda a: a.store.wake_up(a.conn, _sleeper())),
    # PostgreSQL lets every session notify every channel; all that it can do here is to wake a worker.
    "try_listener": (EVERYBODY, lambda a: a.store.try_listener(a.conn, "?")),
    "beat": (WORKERS, lambda a: a.store.beat(a.conn, worker_row(new_worker()), 20.0)),
    "say_goodbye": (WORKERS, lambda a: a.store.say_goodbye(a.conn, new_worker())),
    "renew_jobs": (WORKERS, lambda a: a.store.renew_jobs(a.conn, new_worker(), [NOBODYS], 60.0)),
    "isolate_job": (WORKERS, lambda a: a.store.isolate_job(a.conn, new_worker(), NOBODYS)),
    "release_strays": (WORKERS, lambda a: a.store.release_strays(a.conn, new_worker(), [])),
    "list_lapsed_workers": (WORKERS | READERS, lambda a: a.store.list_lapsed_workers(a.conn)),
    "reap_worker": (WORKERS, lambda a: a.store.reap_worker(a.conn, new_worker(), pause_s=1.0, limit=5)),
    "forget_worker": (WORKERS, lambda a: a.store.forget_worker(a.conn, new_worker())),
    "list_orphans": (WORKERS | READERS, lambda a: a.store.list_orphans(a.conn, 5)),
    "reap_orphans": (WORKERS, lambda a: a.store.reap_orphans(a.conn, [NOBODYS], pause_s=1.0)),
    "redrive_jobs": (OPERATORS, _redrive),
    "delete_dead_letters": (OPERATORS, lambda a: a.store.delete_dead_letters(a.conn, [])),
    "empty_oldest_slot": (WORKERS, _empty_slot),
    "purge_keys": (WORKERS, _purge_keys),
    "record_kind_stats": (WORKERS, lambda a: a.store.record_kind_stats(a.conn, new_worker(), COUNTS)),
    "purge_kind_stats": (WORKERS, lambda a: a.store.purge_kind_stats(a.conn, 5)),
    "purge_sleepers": (WORKERS, lambda a: a.store.purge_sleepers(a.conn, 5)),
    "declare_recurring": (
        WORKERS,
        _with_tick(lambda a: a.entries.declare_recurring(a.conn, entry_row(zone="Europe/Berlin"), is_code=True)),
    ),
    "confirm_recurring": (WORKERS, lambda a: a.entries.confirm_recurring(a.conn, [NAME])),
    "fire_recurring": (WORKERS, _fire),
    "fault_recurring": (WORKERS, _fault),
    "pause_recurring": (
        WORKERS | OPERATORS,
        _with_tick(lambda a: a.entries.pause_recurring(a.conn, NAME, by="ann", why="x")),
    ),
    "resume_recurring": (WORKERS | OPERATORS, lambda a: a.entries.resume_recurring(a.conn, NAME)),
    "run_recurring": (WORKERS | OPERATORS, _with_tick(lambda a: a.entries.run_recurring(a.conn, NAME))),
    "remove_recurring": (WORKERS | OPERATORS, _with_tick(lambda a: a.entries.remove_recurring(a.conn, NAME))),
    "list_due_recurring": (WORKERS | READERS, lambda a: a.entries.list_due_recurring(a.conn, 5)),
    "foresee_recurring": (WORKERS | READERS, lambda a: a.entries.foresee_recurring(a.conn)),
    "list_recurring": (WORKERS | READERS, lambda a: a.entries.list_recurring(a.conn)),
    # It concerns nobody but the transaction of whoever asks.
    "limit_transaction": (EVERYBODY, lambda a: a.store.limit_transaction(a.conn, 5.0)),
}
"""Every method of the stores, and who may call it."""

ALERTS: dict[str, tuple[frozenset[str], Work]] = {
    "watch_dead": (WORKERS, lambda a: a.incidents.watch_dead(a.conn, "another.hook")),
    "note_dead": (WORKERS, _note_dead),
    "note_backlog": (
        WORKERS,
        lambda a: a.incidents.note_backlog(a.conn, "a.hook", {"mail": {"ready": 1}}, quiet_s=60.0),
    ),
    "take_incidents": (
        WORKERS,
        lambda a: a.incidents.take_incidents(a.conn, *HOOK, worker_id=new_worker(), lease_s=60.0, limit=5),
    ),
    "close_incidents": (
        WORKERS,
        lambda a: a.incidents.close_incidents(a.conn, *HOOK, [NOBODYS_INCIDENT], worker_id=new_worker()),
    ),
    "postpone_incidents": (
        WORKERS,
        lambda a: a.incidents.postpone_incidents(
            a.conn, *HOOK, [NOBODYS_INCIDENT], worker_id=new_worker(), pause_s=60.0
        ),
    ),
    "purge_incidents": (WORKERS, lambda a: a.incidents.purge_incidents(a.conn, 5)),
}
"""Every method of the incidents, and who may call it."""

QUESTIONS: dict[str, tuple[frozenset[str], Work]] = {
    "list_dead": (READERS, lambda a: a.reports.list_dead(a.conn, DeadFilter(), limit=5)),
    # Workers count dead letters for their metrics, and tell alerts of them; the payload in one they cannot read.
    "count_dead": (WORKERS | READERS, lambda a: a.reports.count_dead(a.conn, DeadFilter())),
    "page_dead_ids": (
        WORKERS | READERS,
        lambda a: a.reports.page_dead_ids(a.conn, DeadFilter(), after=JobId(0), upto=JobId(9), limit=5),
    ),
    "show_dead": (READERS, lambda a: a.reports.show_dead(a.conn, JobId(1))),
    "list_jobs, waiting": (WORKERS | READERS, lambda a: a.list_jobs(State.WAITING)),
    "list_jobs, running": (WORKERS | READERS, lambda a: a.list_jobs(State.RUNNING)),
    "list_jobs, done": (READERS, lambda a: a.list_jobs(State.DONE)),
    "show_job": (READERS, lambda a: a.reports.show_job(a.conn, JobId(1))),
    "explain_job": (READERS, lambda a: a.reports.explain_job(a.conn, JobId(1))),
    "has_ready": (WORKERS | READERS, lambda a: a.reports.has_ready(a.conn, [QUEUE], [KIND])),
    "glance": (WORKERS | READERS, lambda a: Overview(a.store.schema).glance(a.conn)),
    "durations": (WORKERS | READERS, lambda a: Overview(a.store.schema).durations(a.conn)),
    "look": (READERS, lambda a: Overview(a.store.schema).look(a.conn)),
    # What a role may not see is left out: tests/db/test_doctor.py.
    "gather": (EVERYBODY, lambda a: FactReports(a.store.schema).gather(a.conn)),
    "check_version": (EVERYBODY, lambda a: migrate.check_version(a.conn, a.store.schema)),
}
"""Every method of the reports and of the overview, and who may call it."""

FORGERIES = {
    "read a payload": (WORKERS | READERS, "select payload from @schema@.job"),
    "read a dead letter's payload": (READERS, "select payload from @schema@.dead_letter"),
    "read the history's payloads": (READERS, "select payload from @schema@.done"),
    "change a payload": (frozenset[str](), "update @schema@.job set payload = '{}'"),
    "move a job to another queue": (frozenset[str](), "update @schema@.job set queue = 'mine'"),
    "enqueue a job as running": (frozenset[str](), "insert into @schema@.job (worker_id) values (gen_random_uuid())"),
    "drop jobs": (WORKERS | OPERATORS, "delete from @schema@.job"),
    "change what an entry enqueues": (WORKERS, "update @schema@.recurring set payload = '{}'"),
    "add an entry": (WORKERS, "insert into @schema@.recurring (name, expression, kind) values ('a', '@daily', 'a')"),
    "empty the jobs": (frozenset[str](), "truncate @schema@.job"),
    "change a dead letter": (frozenset[str](), "update @schema@.dead_letter set payload = '{}'"),
    "rewrite the history": (frozenset[str](), "update @schema@.done set outcome = 'done'"),
    "switch the history off": (frozenset[str](), "update @schema@.history set slot_s = 0"),
    "pretend a migration": (frozenset[str](), "insert into @schema@.migration values (99, 'x')"),
    "create a table": (frozenset[str](), "create table @schema@.mine (id int)"),
    "drop a table": (frozenset[str](), "drop table @schema@.done"),
}
"""What no statement of jobq does, and who could do it all the same."""

COMPUTED_VIEWS = ("v1_queue_depth", "v1_oldest_ready", "v1_unserved", "v1_rates", "v1_dead_by_kind")
WATCHED_VIEWS = ("v1_queue_depth", "v1_oldest_ready", "v1_unserved", "v1_oldest_dead", "v1_workers", "v1_recurring")
"""Those whose figures are among a worker's metrics."""
PLAIN_VIEWS = ("v1_dead_letters", "v1_oldest_dead", "v1_workers", "v1_table_sizes", "v1_recurring")

RIGHTS = {
    "counted(bigint,text,text,bigint)": {"reader": "EXECUTE"},
    "dead_letter": {
        "worker": "INSERT SELECT(died_at) SELECT(error_message) SELECT(error_type) SELECT(id) SELECT(kind)"
        " SELECT(queue) SELECT(reason)",
        "reader": "SELECT",
        "operator": "DELETE UPDATE(redrives)",
    },
    "dead_watch": {"worker": "DELETE INSERT SELECT UPDATE(looked_at) UPDATE(read_to)", "reader": "SELECT"},
    "done": {"worker": "INSERT", "reader": "SELECT"},
    **{f"done_{slot}": {"worker": "SELECT TRUNCATE"} for slot in range(8)},
    "empty_oldest_slot()": {"worker": "EXECUTE"},
    "enqueue(text,jsonb,text,timestamp with time zone,integer,text,interval,integer,jsonb,boolean)": {
        "producer": "EXECUTE"
    },
    "explain(bigint)": {"reader": "EXECUTE"},
    "follow_recurring()": {},
    "history": {"worker": "SELECT", "reader": "SELECT"},
    "idempotency_key": {
        "producer": "INSERT SELECT UPDATE(job_id) UPDATE(until)",
        "worker": "DELETE",
        "operator": "INSERT SELECT UPDATE(job_id) UPDATE(until)",
    },
    "incident": {
        "worker": "DELETE INSERT SELECT UPDATE(facts) UPDATE(seen_at) UPDATE(since) UPDATE(telling_by)"
        " UPDATE(telling_until) UPDATE(told_at) UPDATE(tries)",
        "reader": "SELECT",
    },
    "job": {
        "producer": "INSERT(enqueued_at) INSERT(headers) INSERT(id) INSERT(idempotency_key) INSERT(kind)"
        " INSERT(max_attempts) INSERT(payload) INSERT(priority) INSERT(queue) INSERT(run_at) SELECT(enqueued_at)"
        " SELECT(id) SELECT(run_at)",
        "worker": "DELETE SELECT UPDATE(alone_fence) UPDATE(attempt) UPDATE(claimed_at) UPDATE(crashes) UPDATE(errors)"
        " UPDATE(fence) UPDATE(first_failed_at) UPDATE(lease_until) UPDATE(lone_crashes) UPDATE(run_at)"
        " UPDATE(worker_id)",
        "reader": "SELECT",
        "operator": "DELETE INSERT(enqueued_at) INSERT(errors) INSERT(fence) INSERT(first_failed_at) INSERT(headers)"
        " INSERT(id) INSERT(idempotency_key) INSERT(kind) INSERT(max_attempts) INSERT(payload) INSERT(priority)"
        " INSERT(queue) INSERT(redrives) INSERT(run_at)",
    },
    "job_id_seq": {"producer": "USAGE"},
    "kind_stat": {"worker": "DELETE INSERT SELECT UPDATE(counts)", "reader": "SELECT"},
    "migration": {"producer": "SELECT", "worker": "SELECT", "reader": "SELECT"},
    "moment(timestamp with time zone,timestamp with time zone)": {"reader": "EXECUTE"},
    "notify_sleepers(text[])": {"producer": "EXECUTE", "operator": "EXECUTE"},
    "recurring": {
        "worker": "DELETE INSERT SELECT UPDATE",
        "reader": "SELECT",
        "operator": "DELETE UPDATE(last_job_id) UPDATE(paused_at) UPDATE(paused_by) UPDATE(paused_why)"
        " UPDATE(revision)",
    },
    "sleeper": {
        "producer": "SELECT(queue) SELECT(until)",
        "worker": "DELETE INSERT SELECT UPDATE(until)",
        "operator": "SELECT(queue) SELECT(until)",
    },
    "spell(double precision)": {"reader": "EXECUTE"},
    "take_key(text,text,bigint,interval)": {"producer": "EXECUTE", "operator": "EXECUTE"},
    "told(text,text)": {"reader": "EXECUTE"},
    **{f"{view}()": {"reader": "EXECUTE"} for view in COMPUTED_VIEWS},
    **{f"{view}()": {"worker": "EXECUTE", "reader": "EXECUTE"} for view in COMPUTED_VIEWS if view in WATCHED_VIEWS},
    **{view: {"reader": "SELECT"} for view in (*COMPUTED_VIEWS, *PLAIN_VIEWS)},
    **{view: {"worker": "SELECT", "reader": "SELECT"} for view in WATCHED_VIEWS},
    "waiting_queues()": {"worker": "EXECUTE", "reader": "EXECUTE"},
    "with_error(jsonb,jsonb)": {"worker": "EXECUTE"},
    "worker": {"worker": "DELETE INSERT SELECT UPDATE(lease_until)", "reader": "SELECT"},
}
"""The decision about each object: what each role may do with it, beside what it has as a member of another."""

GRANTED = """
with instance as (
    select n.oid from pg_catalog.pg_namespace n where n.nspname = $1
), object (name, owner, acl, suffix) as (
    select c.relname::text, c.relowner, c.relacl, ''
    from pg_catalog.pg_class c where c.relnamespace = (table instance) and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
    union all
    select c.relname::text, c.relowner, a.attacl, format('(%s)', a.attname)
    from pg_catalog.pg_class c
    join pg_catalog.pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = (table instance) and a.attacl is not null
    union all
    select format('%s(%s)', p.proname, (
        select string_agg(pg_catalog.format_type(t.oid, null), ',' order by t.place)
        from unnest(p.proargtypes::oid[]) with ordinality as t (oid, place)
    )), p.proowner, coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), ''
    from pg_catalog.pg_proc p where p.pronamespace = (table instance)
)
select
    o.name,
    case when a.grantee = 0 then 'public' else r.rolname::text end as role,
    a.privilege_type || o.suffix as right
from object o
left join lateral pg_catalog.aclexplode(o.acl) a on a.grantee <> o.owner
left join pg_catalog.pg_roles r on r.oid = a.grantee
"""


async def granted(conn: Conn, schema: str, prefix: str) -> dict[str, dict[str, str]]:
    """Return what each role whose name begins with *prefix* may do with each object, as in `RIGHTS`."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, role, right in await conn.fetch(GRANTED, schema):
        rights = found.setdefault(name, {})
        if role is not None:
            rights.setdefault(role.removeprefix(prefix), []).append(right)
    return {name: {role: " ".join(sorted(one)) for role, one in rights.items()} for name, rights in found.items()}
