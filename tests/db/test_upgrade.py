"""From each older version, a migration gives the same schema as from empty, and every job stays where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobq.core.job import JobId
from jobq.core.states import State
from jobq.db import migrate
from jobq.db.statements import quote_identifier, render
from jobq.db.store import Store
from tests.db.catalogue import catalogue
from tests.db.rows import Attempt, Rows, settle

if TYPE_CHECKING:
    from tests.conftest import Conn

# A job in every state, as the first version stores them.
OLD_ROWS = """
insert into @schema@.job (id, queue, kind, run_at, enqueued_at, payload) values (1, 'mail', 'k', now(), now(), '{}');
insert into @schema@.job (
    id, queue, kind, run_at, enqueued_at, payload, worker_id, attempt, crashes, fence, lease_until, errors
) values (
    2, 'mail', 'k', now(), now(), '{}', gen_random_uuid(), 2, 1, 9, now() + interval '1 min',
    '["what was said before"]'
);
insert into @schema@.done (
    id, enqueued_at, finished_at, run_ms, attempt, crashes, slot, priority, queue, kind, outcome, payload
) values (3, now(), now(), 1, 1, 0, 0, 5, 'mail', 'k', 'done', '{}');
insert into @schema@.dead_letter (
    id, run_at, enqueued_at, first_failed_at, died_at, attempt, crashes, fence, redrives, priority, queue, kind, reason,
    error_type, error_message, fingerprint, payload, errors
) values (4, now(), now(), now(), now(), 10, 0, 10, 0, 5, 'mail', 'k', 'attempts used up', 'E', 'no', 'f', '{}', '[]');
"""


@pytest.fixture
async def another(empty_conn: Conn, schema: str) -> object:
    """The name of a second schema, which is dropped after the test."""
    yield f"{schema} too"
    await empty_conn.execute(f"drop schema if exists {quote_identifier(f'{schema} too')} cascade")


async def test_an_upgrade_gives_the_same_schema_and_keeps_the_jobs(
    empty_conn: Conn, schema: str, another: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each older version, with a job in every place, it is what an empty database gets (F91)."""
    everything = migrate.migrations()
    await migrate.migrate(empty_conn, another)
    wanted = await catalogue(empty_conn, another)

    for version in range(1, len(everything)):
        await empty_conn.execute(f"drop schema if exists {quote_identifier(schema)} cascade")
        monkeypatch.setattr(migrate, "migrations", lambda version=version: everything[:version])
        await migrate.migrate(empty_conn, schema)
        await empty_conn.execute(render(OLD_ROWS, schema))

        monkeypatch.setattr(migrate, "migrations", lambda: everything)
        done = await migrate.migrate(empty_conn, schema)

        rows = Rows(empty_conn, Store(schema))
        assert [each.version for each in done] == list(range(version + 1, len(everything) + 1))
        assert await catalogue(empty_conn, schema) == wanted
        assert [await rows.state_of(JobId(id)) for id in range(1, 5)] == [
            State.WAITING,
            State.RUNNING,
            State.DONE,
            State.DEAD,
        ]
        job = await rows.job(JobId(2))
        assert (job["fence"], job["crashes"], job["alone_fence"], job["lone_crashes"]) == (9, 1, None, 0)
        owner = Attempt(JobId(2), 9, job["worker_id"])
        assert await settle(rows, "settle_done", owner) == {owner.id}
        errors = "select array(select errors ->> 0 from @schema@.done order by id)"
        assert await rows.value(errors) == ["what was said before", None]
