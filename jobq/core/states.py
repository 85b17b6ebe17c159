"""The life of a job as one table: each allowed change once, with the statement that makes it.

`docs/concepts.md` shows the same table, and a test holds both it and every statement against this one.
*Scheduled* is not a state: it is `WAITING` with a `run_at` in the future, so nothing has to be promoted.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class State(StrEnum):
    """Where a job is. Each state is one place in the schema, so a job is never in two."""

    ABSENT = "absent"
    """No row: not enqueued yet, or deleted for good."""
    WAITING = "waiting"
    """A row of `job` without a worker: ready when `run_at` has come, scheduled before."""
    RUNNING = "running"
    """A row of `job` with a `worker_id`: that worker's attempt owns it while the fence matches."""
    DONE = "done"
    """A row of `done`, where history is kept."""
    DEAD = "dead"
    """A row of `dead_letter`: failed for good, kept for a person."""


class Event(StrEnum):
    """What makes a job change its state."""

    ENQUEUE = "enqueue"
    WITHDRAW = "withdraw"
    """Of a job that waits for the tick of a recurring entry, which is changed, paused or removed."""
    CLAIM = "claim"
    FINISH = "finish"
    RETRY = "retry"
    SNOOZE = "snooze"
    RELEASE = "release"
    RENEW = "renew"
    ISOLATE = "isolate"
    REAP = "reap"
    DIE = "die"
    REDRIVE = "redrive"
    DELETE = "delete"


class Transition(msgspec.Struct, frozen=True):
    """One allowed change; *statement* is the name of its file in `db/sql/`."""

    source: State
    event: Event
    target: State
    statement: str


TRANSITIONS = (
    Transition(State.ABSENT, Event.ENQUEUE, State.WAITING, "enqueue_job"),
    Transition(State.ABSENT, Event.ENQUEUE, State.WAITING, "enqueue_keyed"),
    Transition(State.ABSENT, Event.ENQUEUE, State.WAITING, "insert_jobs"),
    Transition(State.ABSENT, Event.ENQUEUE, State.WAITING, "fire_recurring"),
    Transition(State.ABSENT, Event.ENQUEUE, State.WAITING, "run_recurring"),
    Transition(State.WAITING, Event.WITHDRAW, State.ABSENT, "declare_recurring"),
    Transition(State.WAITING, Event.WITHDRAW, State.ABSENT, "pause_recurring"),
    Transition(State.WAITING, Event.WITHDRAW, State.ABSENT, "remove_recurring"),
    Transition(State.WAITING, Event.CLAIM, State.RUNNING, "claim_jobs"),
    Transition(State.RUNNING, Event.FINISH, State.DONE, "settle_done"),
    Transition(State.RUNNING, Event.RETRY, State.WAITING, "settle_retry"),
    Transition(State.RUNNING, Event.SNOOZE, State.WAITING, "settle_released"),
    Transition(State.RUNNING, Event.RELEASE, State.WAITING, "settle_released"),
    Transition(State.RUNNING, Event.RELEASE, State.WAITING, "release_strays"),
    Transition(State.RUNNING, Event.DIE, State.DEAD, "settle_dead"),
    Transition(State.RUNNING, Event.RENEW, State.RUNNING, "renew_jobs"),
    Transition(State.RUNNING, Event.ISOLATE, State.RUNNING, "isolate_job"),
    Transition(State.RUNNING, Event.REAP, State.WAITING, "reap_worker"),
    Transition(State.RUNNING, Event.REAP, State.WAITING, "reap_orphans"),
    Transition(State.DEAD, Event.REDRIVE, State.WAITING, "redrive_jobs"),
    Transition(State.DEAD, Event.DELETE, State.ABSENT, "delete_dead_letters"),
)

OWNED = frozenset({State.RUNNING})
"""States whose every change must prove id, fence and worker_id."""
