"""The claim position moves on with what was claimed, leaves no job behind, and costs an idle loop nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from jobq.core.job import ClaimedJob, JobId
from jobq.core.position import BEGINNING, CHEAP_S, FRONT, LOOK_EVERY_S, LOOK_SHARE, RECENT_S, Mark, Position
from tests.core.strategies import FEW

MIDNIGHT = datetime(2026, 11, 30, tzinfo=UTC)
OVERLAP_S = 1
"""How far before the clock `claim_jobs.sql` starts at least."""


def at(seconds: float) -> datetime:
    """A time of the database."""
    return MIDNIGHT + timedelta(seconds=seconds)


def claimed(job_id: int, seconds: float, *, priority: int = 5) -> ClaimedJob:
    """A job as a claim returns it."""
    return ClaimedJob(
        JobId(job_id), "mail", "send_receipt", priority, at(seconds), "{}", 1, 0, None, 1, at(seconds), None
    )


def claim(position: Position, *jobs: ClaimedJob, limit: int = 10, took_s: float = 0.001) -> None:
    """Let a claim be sent and answered."""
    position.before_claim()
    position.after_claim(jobs, limit=limit, took_s=took_s)


def test_a_new_position_passes_over_nothing() -> None:
    """The first claim starts at the front of every lane."""
    assert Position().before_claim() == FRONT


def test_a_full_claim_moves_only_the_lanes_that_it_took_from() -> None:
    """What lies in later lanes has not been asked for yet."""
    position = Position()

    claim(position, claimed(7, 1, priority=0), claimed(3, 2, priority=5), claimed(4, 2, priority=5), limit=3)

    expected = list(FRONT)
    expected[0], expected[5] = Mark(at(1), JobId(7)), Mark(at(2), JobId(4))
    assert position.marks == expected


def test_a_claim_that_found_less_than_it_could_take_moves_all_lanes() -> None:
    """Every lane was empty up to the newest job, so none starts earlier again."""
    position = Position()

    claim(position, claimed(9, 8, priority=0), claimed(4, 2, priority=5))

    assert position.marks == [Mark(at(8), JobId(9))] * 10


def test_a_late_job_moves_nothing_back() -> None:
    """A claim starts a second back and may bring older jobs only; the position stays where it was."""
    position = Position()
    claim(position, claimed(9, 8))

    claim(position, claimed(4, 7.5))

    assert position.marks == [Mark(at(8), JobId(9))] * 10


def test_a_full_claim_of_late_jobs_moves_its_lane_back() -> None:
    """There may be more of them between the last that it took and the old mark."""
    position = Position()
    claim(position, claimed(9, 8))

    claim(position, claimed(4, 7.5), limit=1)

    assert position.marks[5] == Mark(at(7.5), JobId(4))
    assert position.marks[4] == Mark(at(8), JobId(9))


def test_a_job_found_behind_sends_the_next_claim_to_the_front() -> None:
    """Also if a claim is under way, whose answer knows nothing of it."""
    position = Position()
    claim(position, claimed(9, 8))
    position.before_claim()

    position.after_look(None, since=FRONT, took_s=0.1, now=100.0)
    position.after_claim([claimed(10, 9)], limit=10, took_s=0.001)

    assert position.before_claim() == FRONT


def test_what_a_look_has_seen_counts_from_the_next_claim_on() -> None:
    """F65: whose kinds are rare walks no foreign backlog twice; a claim sent before the look proves nothing of it."""
    position = Position()
    position.before_claim()
    position.after_look(at(50), since=FRONT, took_s=0.1, now=100.0)
    position.after_claim([], limit=10, took_s=0.1)
    before = position.marks

    claim(position)

    assert before == FRONT
    assert position.marks == [Mark(at(50), JobId(0))] * 10


def test_looks_at_everything_are_as_rare_as_they_are_dear() -> None:
    """Once a second, or a twentieth of the time."""
    position = Position()

    position.after_look(at(1), since=FRONT, took_s=0.001, now=100.0)
    cheap = [position.next_look(is_asleep=False, now=100.0 + wait_s) for wait_s in (0.99, LOOK_EVERY_S)]
    position.after_look(at(1), since=FRONT, took_s=0.5, now=200.0)
    dear = [position.next_look(is_asleep=False, now=200.0 + wait_s) for wait_s in (0.99, 0.5 / LOOK_SHARE)]

    assert (cheap, dear) == ([None, FRONT], [None, FRONT])


def test_between_dear_looks_at_everything_there_are_looks_at_what_is_recent() -> None:
    """As often as they allow themselves: in each lane from a while before its mark, at the front where it has none."""
    position = Position()
    claim(position, claimed(7, 60, priority=0), claimed(4, 90), limit=2)
    position.after_look(at(91), since=FRONT, took_s=1.0, now=100.0)

    first = position.next_look(is_asleep=False, now=101.0)
    assert first is not None
    position.after_look(at(92), since=first, took_s=0.1, now=101.0)
    looks = [position.next_look(is_asleep=False, now=now) for now in (102.9, 103.0, 119.9, 120.0)]

    recent = list(FRONT)
    recent[0], recent[5] = Mark(at(60 - RECENT_S), JobId(0)), Mark(at(90 - RECENT_S), JobId(0))
    assert first == recent
    assert looks == [None, recent, recent, FRONT]


def test_a_job_found_behind_sends_the_next_claim_no_further_back_than_the_look_went() -> None:
    """Where a walk from the front is dear, what is found in each second must not cost one."""
    position = Position()
    claim(position, claimed(7, 90))
    position.after_look(at(91), since=FRONT, took_s=1.0, now=100.0)
    since = position.next_look(is_asleep=False, now=101.0)
    assert since is not None

    position.after_look(None, since=since, took_s=0.001, now=101.0)

    assert position.before_claim() == [Mark(at(90 - RECENT_S), JobId(0))] * 10


def test_a_sleeping_loop_forgets_its_position_instead_of_looking_behind() -> None:
    """While a walk from the front is cheap: an idle worker asks nothing more than its poll."""
    position = Position()
    claim(position, claimed(9, 8))
    position.after_look(at(9), since=FRONT, took_s=CHEAP_S, now=100.0)

    look = position.next_look(is_asleep=True, now=102.0)

    assert look is None
    assert position.marks == FRONT


def test_a_sleeping_loop_looks_behind_where_walks_are_dear() -> None:
    """Known from the last look, or from a claim at the front that found nothing."""
    looked, polled = Position(), Position()

    looked.after_look(at(9), since=FRONT, took_s=2 * CHEAP_S, now=100.0)
    claim(polled, took_s=2 * CHEAP_S)

    assert [one.next_look(is_asleep=True, now=102.0) for one in (looked, polled)] == [[BEGINNING] * 10, FRONT]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 9), st.integers(0, 30)),
        st.tuples(st.just("claim"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("claim and look meanwhile"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("look"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 5), st.just(0)),
    ),
    max_size=60,
)


class Lanes:
    """Ready jobs, a clock, and what the statements do with them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ready: list[ClaimedJob] = []
        self._ids = iter(range(1, 1000))

    def arrive(self, priority: int, late_s: int) -> None:
        """Let a job become visible whose `run_at` is *late_s* ago."""
        self.ready.append(claimed(next(self._ids), self.now - late_s, priority=priority))

    def claim(self, marks: list[Mark], limit: int) -> list[ClaimedJob]:
        """As `claim_jobs.sql`."""
        recent = at(self.now - OVERLAP_S)
        starts = [Mark(min(mark.run_at, recent), mark.id) for mark in marks]
        found = [job for job in self.ready if Mark(job.run_at, job.id) >= starts[job.priority]]
        taken = sorted(found, key=lambda job: (job.priority, job.run_at, job.id))[:limit]
        self.ready = [job for job in self.ready if job not in taken]
        return taken

    def find_passed(self, since: list[Mark], marks: list[Mark]) -> datetime | None:
        """As `find_passed.sql`."""
        passed = any(
            since[job.priority].run_at <= job.run_at and Mark(job.run_at, job.id) < marks[job.priority]
            for job in self.ready
        )
        return None if passed else at(self.now)


@given(STEPS)
@FEW
def test_no_job_is_left_behind(steps: list[tuple[str, int, int]]) -> None:
    """Whatever comes late, whenever looks are answered, however dear they are: a look at everything finds the rest."""
    lanes, position = Lanes(), Position()

    def look(took_s: float) -> None:
        since = position.next_look(is_asleep=False, now=lanes.now)
        if since is not None:
            answer = lanes.find_passed(since, position.marks)
            position.after_look(answer, since=since, took_s=took_s, now=lanes.now)

    for step, number, late_s in steps:
        match step:
            case "arrive":
                lanes.arrive(number, late_s)
            case "wait":
                lanes.now += number
            case "look":
                look(took_s=number)
            case _:
                taken = lanes.claim(position.before_claim(), number)
                if step == "claim and look meanwhile":
                    lanes.now += 3
                    look(took_s=0.1)
                position.after_claim(taken, limit=number, took_s=0.0)
    lanes.now += 2 / LOOK_SHARE  # when a look at everything is due again
    look(took_s=0.0)
    while taken := lanes.claim(position.before_claim(), 2):
        position.after_claim(taken, limit=2, took_s=0.0)

    assert lanes.ready == []


def test_the_beginning_is_before_every_job() -> None:
    """The table refuses earlier times."""
    assert Mark(datetime(2000, 1, 1, tzinfo=UTC), JobId(-(2**63))) > BEGINNING
