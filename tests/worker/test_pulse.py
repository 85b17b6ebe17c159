"""What counts as alive and as working, and how a loop waits for a database that is away."""

from __future__ import annotations

import pytest

from jobq.errors import ConflictError, DatabaseUnavailableError
from jobq.telemetry.events import DatabaseAway, DatabaseBack, Event
from jobq.worker import pulse
from jobq.worker.pulse import Pulse, Vitals

AWAY = DatabaseUnavailableError("the database is not available: no answer")
CONFLICT = ConflictError("a concurrent transaction was in the way")

BOUND_S = 10.0


class Clock:
    """What a pulse sees of `time` and `anyio`: the time passes when the test says so, and by pauses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let *seconds* pass at once, and note them."""
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that pulses look at."""
    clock = Clock()
    monkeypatch.setattr(pulse, "time", clock)
    monkeypatch.setattr(pulse, "anyio", clock)
    return clock


@pytest.fixture
def said() -> list[Event]:
    """What the pulse of the test has said."""
    return []


@pytest.fixture
def beating(clock: Clock, said: list[Event]) -> Pulse:
    """A pulse whose turns may take ten seconds."""
    return Pulse("claims of mail", bound_s=BOUND_S, emit=said.append)


def test_a_loop_that_has_just_been_made_is_both(beating: Pulse) -> None:
    """Its first turn has as long as every other."""
    assert (beating.is_alive, beating.is_working) == (True, True)


def test_a_loop_that_does_not_come_round_is_neither(beating: Pulse, clock: Clock) -> None:
    """It hangs in something that has no deadline: only a new process helps."""
    clock.now += BOUND_S

    assert (beating.is_alive, beating.is_working) == (False, False)


def test_each_turn_counts_from_its_end(beating: Pulse, clock: Clock) -> None:
    """The bound is one turn's, not the loop's life."""
    for _ in range(5):
        clock.now += BOUND_S - 1
        beating.worked()

    assert (beating.is_alive, beating.is_working) == (True, True)


def test_a_loop_that_waits_for_work_is_both_for_as_long_as_it_likes(beating: Pulse, clock: Clock) -> None:
    """An idle worker is no broken one."""
    beating.rest()
    clock.now += 1000 * BOUND_S

    assert (beating.is_alive, beating.is_working) == (True, True)


def test_after_a_rest_the_turn_has_its_bound(beating: Pulse, clock: Clock) -> None:
    """How long it rested does not count against it, but it must come to an end now."""
    beating.rest()
    clock.now += 1000 * BOUND_S
    beating.begin()

    clock.now += BOUND_S - 1
    assert beating.is_alive
    clock.now += 1
    assert not beating.is_alive


async def test_a_loop_whose_database_is_away_is_alive_and_does_not_work(beating: Pulse, clock: Clock) -> None:
    """Restarting the process brings no database back."""
    for _ in range(100):
        await beating.pause(AWAY)
        assert (beating.is_alive, beating.is_working) == (True, False)


async def test_a_loop_that_rests_while_its_database_is_away_does_not_work(beating: Pulse) -> None:
    """It failed last, and that it waits now says nothing else."""
    await beating.pause(AWAY)
    beating.rest()

    assert (beating.is_alive, beating.is_working) == (True, False)


async def test_the_first_success_ends_an_outage(beating: Pulse, clock: Clock, said: list[Event]) -> None:
    """Said once at its begin and once at its end, however many turns it took."""
    before = clock.now
    for _ in range(20):
        await beating.pause(AWAY)
    beating.worked()
    beating.worked()

    assert beating.is_working
    assert said == [DatabaseAway("claims of mail", str(AWAY)), DatabaseBack("claims of mail", clock.now - before)]


async def test_the_pauses_of_an_outage_grow_to_five_seconds(beating: Pulse, clock: Clock) -> None:
    """Exponential, so that a short one costs little; jittered, so that a fleet does not come back at one moment."""
    for _ in range(50):
        await beating.pause(AWAY)

    bounds = [min(5.0, 0.1 * 2**failures) for failures in range(50)]
    assert all(bound / 2 <= paused <= bound for paused, bound in zip(clock.pauses, bounds, strict=True))
    assert len({round(paused, 6) for paused in clock.pauses[10:]}) > 10


async def test_every_outage_begins_with_a_short_pause(beating: Pulse, clock: Clock) -> None:
    """What the last outage has taught does not hold for the next."""
    for _ in range(10):
        await beating.pause(AWAY)
    beating.worked()
    await beating.pause(AWAY)

    assert clock.pauses[-1] <= pulse.FIRST_PAUSE_S


async def test_a_conflict_is_no_outage(beating: Pulse, clock: Clock, said: list[Event]) -> None:
    """Another transaction was in the way: a moment later it is gone."""
    for _ in range(3):
        await beating.pause(CONFLICT)

    assert (beating.is_alive, beating.is_working, said) == (True, True, [])
    assert max(clock.pauses) <= 0.05


async def test_conflicts_without_end_are_an_outage(beating: Pulse, said: list[Event]) -> None:
    """Whatever holds the lock, the loop does not get its work done."""
    for _ in range(4):
        await beating.pause(CONFLICT)

    assert not beating.is_working
    assert said == [DatabaseAway("claims of mail", str(CONFLICT))]


async def test_conflicts_that_a_success_has_interrupted_are_none_in_a_row(beating: Pulse) -> None:
    """Under load a loop meets one now and then, for ever."""
    for _ in range(20):
        await beating.pause(CONFLICT)
        beating.worked()

    assert beating.is_working


async def test_conflicts_alone_do_not_work_for_ever(beating: Pulse, clock: Clock) -> None:
    """Between two conflicts nothing succeeds: the bound counts, outage or not."""
    await beating.pause(CONFLICT)
    clock.now += BOUND_S

    assert not beating.is_working


async def test_the_vitals_name_the_loops(clock: Clock, said: list[Event]) -> None:
    """Who is woken at night needs a name to look for."""
    names = ["well", "rests", "away", "stuck"]
    well, rests, away, stuck = (Pulse(name, bound_s=BOUND_S, emit=said.append) for name in names)
    vitals = Vitals([well, rests, away, stuck])
    rests.rest()
    clock.now += BOUND_S
    well.worked()
    await away.pause(AWAY)

    assert vitals.stuck() == ["stuck"]
    assert vitals.failing() == ["away", "stuck"]


def test_a_loop_that_could_not_come_round_has_its_bound_anew(beating: Pulse, clock: Clock) -> None:
    """A handler blocked the event loop for longer than the bound: nobody else is to blame."""
    vitals = Vitals([beating])
    clock.now += 5 * BOUND_S
    unblocked_at = clock.now

    assert vitals.stuck() == ["claims of mail"]
    assert vitals.stuck(since=unblocked_at) == []
    clock.now += BOUND_S
    assert vitals.stuck(since=unblocked_at) == ["claims of mail"]
