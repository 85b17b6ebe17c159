"""How a claim loop rests, and how far ahead it claims: the rules alone, with times that are given to them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jobq.worker.pace import ASLEEP_BELOW_PER_S, BUSY_ABOVE_PER_S, Ahead, Pace, Rest

FEW = settings(max_examples=60)


def stream(pace: Pace, per_s: float, *, start: float, for_s: float = 10.0) -> Rest:
    """Let *pace* find jobs at an even rate, ten times a second, and return how it rests in the end."""
    rest = Rest.SLEEP
    for turn in range(round(for_s * 10)):
        rest = pace.after(round(per_s / 10 * (turn + 1)) - round(per_s / 10 * turn), 1000, now=start + turn / 10)
    return rest


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 500), st.floats(0, 1e6)), max_size=20))
@FEW
def test_a_full_claim_is_followed_by_another(looks: list[tuple[int, int, float]]) -> None:
    """Whatever was before and whatever the clock says, what was all that was asked for may not be all there is."""
    pace = Pace()

    for found, limit, now in looks:
        rest = pace.after(min(found, limit), limit, now=now)
        assert (rest is Rest.LOOK_AGAIN) == (found >= limit)


def test_a_worker_that_finds_nothing_sleeps() -> None:
    """From the first look on."""
    pace = Pace()

    assert [pace.after(0, 10, now=100.0 + turn) for turn in range(3)] == [Rest.SLEEP] * 3


def test_few_jobs_keep_it_asleep() -> None:
    """Ten a second are notified one by one."""
    assert stream(Pace(), 10, start=0.0) is Rest.SLEEP


def test_many_jobs_keep_it_polling() -> None:
    """Above fifty a second it looks by itself, also between two that it finds."""
    pace = Pace()

    assert stream(pace, BUSY_ABOVE_PER_S * 2, start=0.0) is Rest.POLL
    assert pace.after(0, 10, now=9.95) is Rest.POLL


def test_a_rate_around_the_bound_does_not_change_its_mind() -> None:
    """Between the two bounds it stays what it was: asleep coming from below, polling coming from above."""
    between = (ASLEEP_BELOW_PER_S + BUSY_ABOVE_PER_S) / 2

    assert stream(Pace(), between, start=0.0) is Rest.SLEEP

    pace = Pace()
    stream(pace, BUSY_ABOVE_PER_S * 2, start=0.0)
    assert stream(pace, between, start=10.0) is Rest.POLL


def test_a_burst_is_forgotten_within_seconds() -> None:
    """After five hundred jobs at once it polls for about three seconds, then sleeps."""
    pace = Pace()
    pace.after(500, 1000, now=10.0)

    assert pace.after(0, 1000, now=12.9) is Rest.POLL
    assert pace.after(0, 1000, now=13.1) is Rest.SLEEP


def test_a_clock_that_stands_still_is_no_harm() -> None:
    """Looks without time between them count as one."""
    pace = Pace()

    assert pace.after(60, 100, now=5.0) is Rest.POLL
    assert pace.after(0, 100, now=5.0) is Rest.POLL
    assert pace.after(0, 100, now=4.0) is Rest.POLL


# -- ahead -------------------------------------------------------------------------------------------


def claims(ahead: Ahead, per_s: float, took_s: float, *, for_s: float = 5.0) -> int:
    """Let claims follow each other while attempts finish at an even rate. Returns how many are claimed ahead then."""
    for turn in range(round(for_s / took_s)):
        found = ahead.after(finished=round(per_s * took_s * turn), took_s=took_s, now=7.0 + took_s * turn)
    return found


def test_nothing_is_claimed_ahead_before_anything_is_known() -> None:
    """The first claim is for the free slots."""
    assert Ahead(500).after(finished=0, took_s=0.01, now=7.0) == 0


def test_twice_what_finishes_during_a_claim_is_claimed_ahead() -> None:
    """10,000 a second finish, and a claim takes 10 ms."""
    assert 190 <= claims(Ahead(500), 10_000, 0.01) <= 205  # what was, counts for about a second


def test_slow_jobs_are_not_claimed_ahead() -> None:
    """100 a second finish: in a claim of 4 ms, less than half a one does."""
    assert claims(Ahead(500), 100, 0.004) == 0


def test_what_is_claimed_ahead_is_bounded() -> None:
    """However slow the database answers."""
    assert claims(Ahead(500), 10_000, 1.0) == 500


def test_a_flood_that_ends_is_forgotten() -> None:
    """After seconds in which nothing finished."""
    ahead = Ahead(500)
    claims(ahead, 10_000, 0.01)

    assert ahead.after(finished=49_900, took_s=0.01, now=20.0) == 0
