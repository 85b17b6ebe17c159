"""Incidents: what begins one, what is still the same, who may tell of it, and what becomes of it then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobq.core.job import JobId
from jobq.db.incidents import Incident, Incidents
from tests.db.rows import KIND, QUEUE, Rows, error_json, new_worker

if TYPE_CHECKING:
    from tests.conftest import Conn

HOOK = "app.tell"
QUIET_S = 600.0
LEASE_S = 60.0
ME, ANOTHER = new_worker(), new_worker()


class Looks:
    """The looks of a hook's workers, and the letters that they find."""

    def __init__(self, rows: Rows, incidents: Incidents) -> None:
        self.rows = rows
        self.incidents = incidents

    async def died(self, ago_s: float, **stated: str) -> JobId:
        """Make a letter that has died so long ago."""
        job_id = await self.rows.dead(**stated)
        await self.rows.run(
            "update @schema@.dead_letter set died_at = now() - $2 * interval '1 s' where id = $1", job_id, ago_s
        )
        return job_id

    async def look(
        self, *kinds: str, hook: str = HOOK, lately_s: float = 0.0, limit: int = 100, conn: Conn | None = None
    ) -> bool:
        """Look for letters."""
        return await self.incidents.note_dead(
            conn or self.rows.conn, hook, kinds=kinds or None, quiet_s=QUIET_S, lately_s=lately_s, limit=limit
        )

    async def behind(self, *queues: str) -> None:
        """See that queues are behind."""
        facts = {queue: {"oldest_ready_s": 61.0, "ready": 3, "workers": 1} for queue in queues}
        await self.incidents.note_backlog(self.rows.conn, HOOK, facts, quiet_s=QUIET_S)

    async def take(
        self, what: str = "dead", *, by: object = ME, hook: str = HOOK, conn: Conn | None = None
    ) -> list[Incident]:
        """Take what is to be told."""
        worker_id = ME if by is ME else ANOTHER
        return await self.incidents.take_incidents(
            conn or self.rows.conn, hook, what, worker_id=worker_id, lease_s=LEASE_S, limit=100
        )

    async def close(self, *told: Incident, what: str = "dead") -> int:
        """Say that I have told of these."""
        return await self.incidents.close_incidents(self.rows.conn, HOOK, what, told, worker_id=ME)

    async def pass_by(self, seconds: float) -> None:
        """Let so many seconds pass for what is remembered."""
        await self.rows.run(
            """
            update @schema@.incident set
                since = since - $1 * interval '1 s', seen_at = seen_at - $1 * interval '1 s',
                told_at = told_at - $1 * interval '1 s', telling_until = telling_until - $1 * interval '1 s'
            """,
            seconds,
        )
        await self.rows.run("update @schema@.dead_letter set died_at = died_at - $1 * interval '1 s'", seconds)
        await self.rows.run(
            """
            update @schema@.dead_watch set
                looked_at = looked_at - $1 * interval '1 s', read_to = read_to - $1 * interval '1 s'
            """,
            seconds,
        )


@pytest.fixture
async def looks(rows: Rows) -> Looks:
    """The looks of a hook that is watched for two hours."""
    looks = Looks(rows, Incidents(rows.store.schema))
    await looks.incidents.watch_dead(rows.conn, HOOK)
    await looks.pass_by(7200.0)
    return looks


# -- what is noted -----------------------------------------------------------------------------------


async def test_letters_of_before_the_first_look_are_not_told(rows: Rows) -> None:
    """Whoever registers a hook is not told of a hundred thousand old letters; a second worker changes nothing."""
    looks = Looks(rows, Incidents(rows.store.schema))
    await rows.dead(kind="old")

    await looks.incidents.watch_dead(rows.conn, HOOK)
    await rows.dead(kind="new")
    await looks.incidents.watch_dead(rows.conn, HOOK)
    await looks.look()

    assert [one.subject for one in await looks.take()] == ["new"]


async def test_an_incident_says_how_many_since_when_and_what_the_latest_died_of(looks: Looks) -> None:
    """The latest's own record, its first line, and nothing of the payload."""
    await looks.died(50.0)
    await looks.died(40.0)
    error = error_json("no such card\nand its number was on this line", type="pay.Declined")
    latest = await looks.died(30.0, error=error, reason="attempts used up")

    await looks.look()
    (one,) = await looks.take()

    assert (one.subject, one.tries) == (KIND, 1)
    assert 19.0 < (one.seen_at - one.since).total_seconds() < 21.0
    assert one.facts == {
        "letters": 3,
        "job_id": latest,
        "queue": QUEUE,
        "reason": "attempts used up",
        "error_type": "pay.Declined",
        "error_message": "no such card",
    }


async def test_a_long_message_is_shortened(looks: Looks) -> None:
    """An alert is a line."""
    await looks.died(5.0, error=error_json("x" * 1000))

    await looks.look()
    (one,) = await looks.take()

    assert one.facts["error_message"] == "x" * 200


async def test_a_letter_counts_once_and_one_that_was_committed_late_is_found(looks: Looks) -> None:
    """Each look goes a minute back; there a letter of another kind may have appeared meanwhile."""
    await looks.died(5.0)
    await looks.look()
    await looks.died(20.0, kind="late")
    await looks.died(0.0)

    await looks.look()
    await looks.look()

    assert {one.subject: one.facts["letters"] for one in await looks.take()} == {KIND: 2, "late": 1}


async def test_only_the_kinds_that_a_hook_is_about_are_noted(looks: Looks) -> None:
    """What others die of is read, and passed over."""
    await looks.died(5.0, kind="mine")
    await looks.died(5.0, kind="yours")

    await looks.look("mine", "ours")

    assert [one.subject for one in await looks.take()] == ["mine"]


async def test_a_full_page_is_followed_by_the_next(looks: Looks) -> None:
    """A thousand letters cost no more at once than a page, and none is left out."""
    for ago_s in range(300, 200, -10):
        await looks.died(float(ago_s), kind=f"k{ago_s}")

    pages = [await looks.look(limit=4) for _ in range(3)]

    assert pages == [True, True, False]
    assert len(await looks.take()) == 10


async def test_a_page_full_of_the_last_minute_is_not_read_for_ever(looks: Looks) -> None:
    """The look does not go beyond what may still be committed late, so it goes on at its next time."""
    for _ in range(4):
        await looks.died(10.0)

    assert await looks.look(limit=2) is False


async def test_workers_look_in_turns(looks: Looks, other: Conn) -> None:
    """While one looks, and shortly after, the others have nothing to do: none waits, none notes twice."""
    await looks.died(5.0)

    async with looks.rows.conn.transaction():
        await looks.look()
        await looks.look(conn=other)
        at_once = await looks.take(conn=other)
    await looks.died(0.0, kind="next")
    await looks.look(lately_s=60.0)
    soon = await looks.take()
    await looks.look()
    later = await looks.take()

    assert at_once == []
    assert [one.subject for one in soon] == [KIND]
    assert [one.subject for one in later] == ["next"]


# -- what is one incident ----------------------------------------------------------------------------


async def test_what_goes_on_is_one_incident_and_after_quiet_it_is_another(looks: Looks) -> None:
    """Told once, however long it lasts; the next one counts anew."""
    await looks.died(5.0)
    await looks.look()
    assert await looks.close(*await looks.take()) == 1

    for _ in range(3):
        await looks.pass_by(QUIET_S - 30.0)
        await looks.died(0.0)
        await looks.look()
        assert await looks.take() == []
    await looks.pass_by(QUIET_S + 30.0)
    last = await looks.died(0.0)
    await looks.look()

    (again,) = await looks.take()
    assert (again.facts["letters"], again.facts["job_id"], again.tries) == (1, last, 1)
    assert again.since == again.seen_at


async def test_an_incident_that_nobody_was_told_of_does_not_end(looks: Looks) -> None:
    """All workers were down for an hour: what died before is told, and from its first letter on."""
    await looks.died(3600.0)
    await looks.look()
    await looks.died(0.0)
    await looks.look()

    (one,) = await looks.take()

    assert one.facts["letters"] == 2
    assert (one.seen_at - one.since).total_seconds() > 3590.0


async def test_a_letter_that_is_redriven_and_dies_again_dies_anew(looks: Looks) -> None:
    """Soon it belongs to the incident; after quiet it begins one."""
    job_id = await looks.died(5.0)
    await looks.look()
    assert await looks.close(*await looks.take()) == 1

    async def dies_again() -> list[Incident]:
        rows = looks.rows
        await rows.store.redrive_jobs(rows.conn, [job_id])
        attempt = await rows.reclaimed(job_id, new_worker())
        await rows.store.settle_dead(rows.conn, attempt.worker_id, [attempt], [True], ["again"], [error_json()])
        await looks.look()
        return await looks.take()

    assert await dies_again() == []
    await looks.pass_by(QUIET_S + 1.0)
    (again,) = await dies_again()
    assert again.facts["reason"] == "again"


async def test_a_backlog_is_told_once_and_again_after_it_went_away(looks: Looks) -> None:
    """It is seen at each look; a queue beside it is another incident."""
    await looks.behind("mail", "pdf")
    assert await looks.close(*await looks.take("backlog"), what="backlog") == 2

    await looks.pass_by(QUIET_S - 1.0)
    await looks.behind("mail")
    in_time = await looks.take("backlog")
    await looks.pass_by(QUIET_S - 1.0)
    await looks.behind("mail", "pdf")
    (again,) = await looks.take("backlog")

    assert in_time == []
    assert again.subject == "pdf"
    assert again.facts == {"oldest_ready_s": 61.0, "ready": 3, "workers": 1}


async def test_hooks_do_not_share_incidents(looks: Looks) -> None:
    """Whoever mails and whoever pages are both told, and each has a quiet period of its own."""
    await looks.incidents.watch_dead(looks.rows.conn, "app.page")
    await looks.pass_by(100.0)
    await looks.died(5.0)

    await looks.look()
    await looks.look(hook="app.page")

    assert len(await looks.take()) == len(await looks.take(hook="app.page")) == 1


# -- who tells ---------------------------------------------------------------------------------------


async def test_one_worker_takes_an_incident_and_after_its_lease_another(looks: Looks) -> None:
    """At once nobody else does, and whoever comes back after the lease has nothing to say any more."""
    await looks.behind("mail")

    (mine,) = await looks.take("backlog")
    at_once = await looks.take("backlog", by=ANOTHER)
    await looks.pass_by(LEASE_S + 1.0)
    (theirs,) = await looks.take("backlog", by=ANOTHER)
    too_late = await looks.close(mine, what="backlog")

    assert at_once == []
    assert (mine.tries, theirs.tries) == (1, 2)
    assert too_late == 0
    assert await looks.rows.value("select told_at from @schema@.incident") is None


async def test_a_worker_passes_over_what_another_is_taking(looks: Looks, other: Conn) -> None:
    """Neither waits for the other, and none is told twice."""
    await looks.behind("mail")

    async with looks.rows.conn.transaction():
        mine = await looks.take("backlog")
        theirs = await looks.take("backlog", by=ANOTHER, conn=other)

    assert (len(mine), theirs) == (1, [])


async def test_after_a_failure_anybody_may_tell_when_the_pause_is_over(looks: Looks) -> None:
    """The tries go on counting; once it was told they begin anew."""
    await looks.behind("mail")
    failed = await looks.take("backlog")
    await looks.incidents.postpone_incidents(looks.rows.conn, HOOK, "backlog", failed, worker_id=ME, pause_s=30.0)

    before = await looks.take("backlog", by=ANOTHER)
    await looks.pass_by(31.0)
    (after,) = await looks.take("backlog", by=ME)
    await looks.close(after, what="backlog")

    assert before == []
    assert after.tries == 2
    assert await looks.rows.value("select tries from @schema@.incident") == 0


async def test_what_is_long_over_is_forgotten_and_what_was_not_told_only_after_a_week(looks: Looks) -> None:
    """And so is how far a hook has read that nobody has any more."""
    await looks.behind("told", "untold")
    told = [one for one in await looks.take("backlog") if one.subject == "told"]
    await looks.close(*told, what="backlog")

    async def purged() -> tuple[int, int, int]:
        count = await looks.incidents.purge_incidents(looks.rows.conn, 100)
        return count, await looks.rows.count("incident"), await looks.rows.count("dead_watch")

    assert await purged() == (0, 2, 1)
    await looks.pass_by(86_401.0)
    assert await purged() == (1, 1, 1)
    await looks.pass_by(6 * 86_401.0)
    assert await purged() == (1, 0, 0)
