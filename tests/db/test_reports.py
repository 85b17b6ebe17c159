"""What people and tools are told of dead letters and ready jobs."""

from __future__ import annotations

import pytest

from jobq.core.job import JobId
from jobq.db.reports import DeadFilter, DeadLetter, DeadLetterDetail, Reports
from tests.db.rows import KIND, QUEUE, Rows


@pytest.fixture
def reports(schema: str) -> Reports:
    """The reads of this test's schema."""
    return Reports(schema)


async def test_a_listed_letter_is_the_row(rows: Rows, reports: Reports) -> None:
    """Every field stands in its column, so that the order of columns in both statements is right."""
    job_id = await rows.dead(priority=3, max_attempts=4, idempotency_key="a")
    await rows.run("""update @schema@.dead_letter set crashes = 1, redrives = 2, headers = '{"a": 1}', attempt = 5""")

    (listed,) = await reports.list_dead(rows.conn, DeadFilter(), limit=10)
    shown = await reports.show_dead(rows.conn, job_id)

    letter = await rows.dead_letter(job_id)
    assert listed == DeadLetter(*(letter[name] for name in DeadLetter.__struct_fields__))
    assert shown == DeadLetterDetail(*(letter[name] for name in DeadLetterDetail.__struct_fields__))
    assert await reports.show_dead(rows.conn, JobId(job_id + 1)) is None


async def test_the_newest_are_listed_first(rows: Rows, reports: Reports) -> None:
    """By death, then by id, as many as asked for."""
    old, _, newer = [await rows.dead() for _ in range(3)]
    await rows.run("update @schema@.dead_letter set died_at = now()")
    await rows.run("update @schema@.dead_letter set died_at = now() + interval '1 s' where id = $1", old)

    listed = await reports.list_dead(rows.conn, DeadFilter(), limit=2)

    assert [letter.id for letter in listed] == [old, newer]
    assert await reports.count_dead(rows.conn, DeadFilter()) == (3, newer)


async def test_an_empty_instance_is_reported(rows: Rows, reports: Reports) -> None:
    """No dead letters, no job: nothing, rather than null."""
    assert await reports.list_dead(rows.conn, DeadFilter(), limit=2) == []
    assert await reports.count_dead(rows.conn, DeadFilter()) == (0, 0)
    assert not await reports.has_ready(rows.conn, [QUEUE], [KIND])


async def test_ready_is_what_a_claim_would_take(rows: Rows, reports: Reports) -> None:
    """Of these queues and kinds, waiting, and due."""
    await rows.scheduled()
    await rows.running()
    await rows.waiting(queue="another")
    await rows.waiting(kind="another")
    before = await reports.has_ready(rows.conn, [QUEUE], [KIND])

    await rows.waiting(priority=9)

    assert (before, await reports.has_ready(rows.conn, ["empty", QUEUE], ["x", KIND])) == (False, True)
