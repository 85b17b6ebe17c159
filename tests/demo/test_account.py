"""The demo's account holds only if every promise was kept."""

from __future__ import annotations

import msgspec
import pytest

from jobq.demo.account import Account, Duplicate, draw_up
from jobq.demo.mail_server import Delivery

KILLED, OTHER = 17, 18


def account(*deliveries: Delivery, committed: set[int], **changes: int) -> Account:
    """Draw up the account of a play in which the worker `KILLED` was killed."""
    counts = {"rolled_back": 1, "in_flight_at_kill": 2, "dead": 1, "redriven": 1, "unfinished": 0, **changes}
    return draw_up(committed=committed, deliveries=deliveries, killed_pid=KILLED, seconds=1.26, **counts)


def test_one_receipt_for_each_committed_order_holds() -> None:
    """The counts are those of different orders."""
    drawn_up = account(Delivery(1, 1, OTHER), Delivery(3, 2, KILLED), committed={1, 3})

    assert drawn_up.holds
    assert (drawn_up.orders_committed, drawn_up.receipts, drawn_up.lost, drawn_up.wrong) == (2, 2, 0, 0)
    assert drawn_up.duplicates == []
    assert drawn_up.seconds == 1.3


def test_an_order_without_a_receipt_is_lost() -> None:
    """Nothing makes up for it."""
    drawn_up = account(Delivery(1, 1, OTHER), committed={1, 3})

    assert not drawn_up.holds
    assert drawn_up.lost == 1


def test_a_receipt_without_an_order_is_wrong() -> None:
    """It is that of an order that was rolled back."""
    drawn_up = account(Delivery(1, 1, OTHER), Delivery(2, 1, OTHER), committed={1})

    assert not drawn_up.holds
    assert drawn_up.wrong == 1


def test_a_receipt_that_is_sent_again_because_of_the_kill_is_explained() -> None:
    """The first was delivered by the process that was killed."""
    drawn_up = account(Delivery(1, 1, KILLED), Delivery(1, 2, OTHER), committed={1})

    assert drawn_up.holds
    assert drawn_up.receipts == 1
    assert drawn_up.duplicates == [
        Duplicate(1, 2, "its worker was killed after sending it, before saying so"),
    ]


@pytest.mark.parametrize("again", [KILLED, OTHER])
def test_a_receipt_that_is_sent_again_for_no_known_reason_does_not_hold(again: int) -> None:
    """Nobody was killed between the two."""
    drawn_up = account(Delivery(1, 1, OTHER), Delivery(1, 2, again), committed={1})

    assert not drawn_up.holds
    assert drawn_up.duplicates == [Duplicate(1, 2, None)]


@pytest.mark.parametrize("changes", [{"redriven": 0}, {"unfinished": 1}, {"dead": 2}])
def test_what_is_left_dead_or_undone_does_not_hold(changes: dict[str, int]) -> None:
    """All receipts are there, but jobq says otherwise."""
    good = account(Delivery(1, 1, OTHER), committed={1})

    assert good.holds
    assert not account(Delivery(1, 1, OTHER), committed={1}, **changes).holds
    assert not msgspec.structs.replace(good, orders_committed=0, receipts=0).holds
