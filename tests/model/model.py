"""What the store is to do, in Python: no SQL, no clock, no locks.

A job has a state, an attempt, a fence, an owner and its crashes, and is due or not; a lease holds or has lapsed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from jobq.core.job import JobId
from jobq.core.states import State


@dataclass(frozen=True)
class Place:
    """Where a job is. A finished job has no fence any more."""

    state: State
    attempt: int = 0
    fence: int | None = 0
    owner: UUID | None = None
    crashes: int = 0


@dataclass
class Key:
    """Which job answers for an idempotency key: while it lives, or for good if *lasting*."""

    owner: JobId
    lasting: bool


class Model:
    """What the store is to do."""

    def __init__(self) -> None:
        self.places: dict[JobId, Place] = {}
        self.scheduled: set[JobId] = set()
        self.lapsed: set[JobId] = set()
        self.is_alive: dict[UUID, bool] = {}
        self.keys: dict[str, Key] = {}
        self.key_of: dict[JobId, str | None] = {}

    def of(self, state: State) -> list[JobId]:
        return [job_id for job_id, place in self.places.items() if place.state is state]

    def lives(self, job_id: JobId) -> bool:
        return job_id in self.places and self.places[job_id].state in (State.WAITING, State.RUNNING)

    def take(self, key: str | None, taker: JobId, lasting: bool) -> JobId:
        if key is None:
            return taker
        held = self.keys.get(key)
        if held is not None and held.owner != taker and (held.lasting or self.lives(held.owner)):
            return held.owner
        self.keys[key] = Key(taker, lasting or (held is not None and held.lasting))
        return taker

    def enqueue(self, job_id: JobId, key: str | None, lasting: bool, is_due: bool) -> JobId:
        owner = self.take(key, job_id, lasting)
        if owner == job_id:
            self.key_of[job_id] = key
            self._wait(job_id, Place(State.WAITING), is_due)
        return owner

    def ready(self) -> set[JobId]:
        return set(self.of(State.WAITING)) - self.scheduled

    def claim(self, job_id: JobId, worker: UUID) -> None:
        old = self.places[job_id]
        assert old.fence is not None
        self.places[job_id] = Place(State.RUNNING, old.attempt + 1, old.fence + 1, worker, old.crashes)
        self.lapsed.discard(job_id)

    def owns(self, job_id: JobId, fence: int, worker: UUID) -> bool:
        place = self.places[job_id]
        return place.state is State.RUNNING and (place.fence, place.owner) == (fence, worker)

    def held_by(self, worker: UUID) -> set[JobId]:
        return {job_id for job_id in self.of(State.RUNNING) if self.places[job_id].owner == worker}

    @property
    def orphans(self) -> set[JobId]:
        """Running jobs whose own lease has lapsed, or whose worker has no row."""
        running = self.of(State.RUNNING)
        return {one for one in running if one in self.lapsed or self.places[one].owner not in self.is_alive}

    def reap(self, job_id: JobId) -> None:
        old = self.places[job_id]
        self._wait(job_id, replace(old, state=State.WAITING, owner=None, crashes=old.crashes + 1), is_due=True)

    def settle(self, job_id: JobId, how: str, is_due: bool) -> None:
        old = replace(self.places[job_id], owner=None)
        match how:
            case "done":
                self.places[job_id] = replace(self.places[job_id], state=State.DONE, fence=None)
            case "retry":
                self._wait(job_id, replace(old, state=State.WAITING), is_due)
            case "released":
                self._wait(job_id, replace(old, state=State.WAITING, attempt=old.attempt - 1), is_due)
            case "dead":
                self.places[job_id] = replace(self.places[job_id], state=State.DEAD)
            case _:
                self.places[job_id] = replace(self.places[job_id], state=State.DEAD, attempt=old.attempt - 1)

    def redrive(self, job_id: JobId) -> JobId:
        owner = self.take(self.key_of[job_id], job_id, lasting=False)
        if owner == job_id:
            self._wait(job_id, Place(State.WAITING, fence=self.places[job_id].fence), is_due=True)
        return owner

    def purge(self) -> None:
        self.keys = {key: held for key, held in self.keys.items() if held.lasting or self.lives(held.owner)}

    def _wait(self, job_id: JobId, place: Place, is_due: bool) -> None:
        self.places[job_id] = place
        self.scheduled.discard(job_id)
        if not is_due:
            self.scheduled.add(job_id)
