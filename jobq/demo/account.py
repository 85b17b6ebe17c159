"""The account: what must be true when all is done, from what the database and the mail server know. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from jobq.demo.mail_server import Delivery


class Duplicate(msgspec.Struct, frozen=True):
    """A receipt that was delivered again: by which attempt, and why, or None if nothing explains it."""

    order_id: int
    attempt: int
    why: str | None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. *lost* are committed orders without a receipt, *wrong* receipts without a committed order."""

    orders_committed: int
    orders_rolled_back: int
    receipts: int
    lost: int
    wrong: int
    duplicates: list[Duplicate]
    in_flight_at_kill: int
    dead: int
    redriven: int
    unfinished: int
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        return (
            self.orders_committed > 0
            and self.receipts == self.orders_committed
            and self.lost == self.wrong == self.unfinished == 0
            and self.dead == self.redriven
            and all(duplicate.why for duplicate in self.duplicates)
        )


def duplicates_of(deliveries: Sequence[Delivery], killed_pid: int) -> list[Duplicate]:
    """Return the deliveries, in order, of what had been delivered before.

    One thing explains a duplicate in this play: the process that had delivered it was killed before it could write down
    that it had.
    """
    before: dict[int, Delivery] = {}
    found: list[Duplicate] = []
    for delivery in deliveries:
        if earlier := before.get(delivery.order_id):
            why = "its worker was killed after sending it, before saying so"
            found.append(Duplicate(delivery.order_id, delivery.attempt, why if earlier.pid == killed_pid else None))
        before[delivery.order_id] = delivery
    return found


def draw_up(
    *,
    committed: Collection[int],
    rolled_back: int,
    deliveries: Sequence[Delivery],
    killed_pid: int,
    in_flight_at_kill: int,
    dead: int,
    redriven: int,
    unfinished: int,
    seconds: float,
) -> Account:
    """Compare the orders with what was delivered."""
    delivered = {delivery.order_id for delivery in deliveries}
    return Account(
        orders_committed=len(committed),
        orders_rolled_back=rolled_back,
        receipts=len(delivered),
        lost=len(set(committed) - delivered),
        wrong=len(delivered - set(committed)),
        duplicates=duplicates_of(deliveries, killed_pid),
        in_flight_at_kill=in_flight_at_kill,
        dead=dead,
        redriven=redriven,
        unfinished=unfinished,
        seconds=round(seconds, 1),
    )
