"""Placement: which replica a job runs on, or why it waits.

The filters run in the order of `STAGES`; a replica is counted by the first one that removes it. A pool that admission chose
restricts a job exactly as a pin does, so both are the first filter. Affinity is a filter too, the last one: if the replica
where the session last succeeded could take the job now, no other is considered (X-085). Then the fleet's order decides.

A device that a task's mask leaves out stays out, however long the task waits: nothing widens a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from detent.errors import InvalidInput
from detent.kernel import partition_of
from detent.scheduling.decisions import (
    CANDIDATES_MAX,
    FIRST_IN_ORDER,
    NO_FEASIBLE_REPLICA,
    NO_FREE_SLOT,
    NOT_READY,
    PLACED,
    SESSION_AFFINITY,
    STAGES,
    WAITING,
    Candidate,
    Decision,
)
from detent.scheduling.fleet import Fleet
from detent.scheduling.index import AFFINITY, FREE_SLOT, PASSED, Demand, Entry, View
from detent.scheduling.types import TaskRequest


class LastGood(Protocol):
    """What placement asks of sessions."""

    def last_good(self, session_id: str) -> str | None:
        """The replica where the session's last success ran."""


class Remembered:
    """One session's last good replica, as a decision recorded it or another partition's owner told it (X-030)."""

    def __init__(self, last_good: str | None) -> None:
        self._last_good = last_good

    def last_good(self, session_id: str) -> str | None:  # noqa: ARG002 - the protocol's
        """What was remembered."""
        return self._last_good


def place(
    request: TaskRequest, fleet: Fleet, sessions: LastGood | None = None, *, pool_id: str | None = None
) -> Decision:
    """Choose the replica a job runs on now: a ``placed`` decision, or a ``waiting`` one that says what is missing.

    ``pool_id`` is the pool the job was admitted to; without it the request's pin counts, and without a pin every pool.
    Takes no slot: the caller commits the lease first and then tells the fleet.
    """
    if fleet.partitions > 1 and partition_of(request.job_id, fleet.partitions) != fleet.partition_id:
        raise InvalidInput(
            f"job {request.job_id!r} belongs to another partition than {fleet.partition_id}", code="NOT_PARTITION_OWNER"
        )
    pool = pool_id if pool_id is not None or request.pin is None else request.pin.pool_id
    view = fleet.index.view(Demand.of(request, pool))
    last_good = None
    if sessions is not None and request.session_id is not None:
        last_good = sessions.last_good(request.session_id)
    kept = _kept_by_affinity(view, fleet, last_good)
    chosen = kept if kept is not None else view.open[0] if view.open else None
    if chosen is None:
        kind, reason = WAITING, _why_no_replica(view)
    else:
        kind, reason = PLACED, FIRST_IN_ORDER if kept is None else SESSION_AFFINITY
    return Decision(
        kind,
        request.job_id,
        reason,
        pool_id=pool if chosen is None else chosen.shape.pool_id,
        replica_id=None if chosen is None else chosen.replica_id,
        counts=(*view.counts, len(view.full), 0 if kept is None else len(view.open) - 1),
        candidates=shown_candidates(view, kept),
        candidate_count=len(view.open),
        feasible_unready=view.feasible_unready,
        order=fleet.order,
        request_digest=request.digest(),
        fleet_digest=fleet.digest(),
        last_good=last_good,
    )


def recompute(
    request: TaskRequest, snapshot: object, *, last_good: str | None = None, pool_id: str | None = None
) -> Decision:
    """Make a placement decision again from what it was made of: the request and the fleet's snapshot."""
    return place(request, Fleet.restore(snapshot), Remembered(last_good), pool_id=pool_id)


def stages(request: TaskRequest, fleet: Fleet, *, pool_id: str | None = None) -> Iterator[Candidate]:
    """Every replica in placement order with the filter that removes it; affinity, which comes last, is left to the reader.

    This is the part of a decision that is not stored: `explain` asks for it with the fleet as it was.
    """
    pool = pool_id if pool_id is not None or request.pin is None else request.pin.pool_id
    view = View(Demand.of(request, pool))
    for entry in fleet.index.order:
        stage = view.stage_of(entry)
        removed_by = None if stage == PASSED else STAGES[stage]
        yield Candidate(entry.replica_id, entry.free_vram_mb, entry.active_slots, removed_by)


def shown_candidates(view: View, kept: Entry | None) -> tuple[Candidate, ...]:
    """The best few: those that passed, in order, then those that lacked only room. One kept by affinity comes first."""
    shown = [entry.shown for entry in view.open[:CANDIDATES_MAX]]
    if kept is not None:
        beaten = [one._replace(removed_by=STAGES[AFFINITY]) for one in shown if one.replica_id != kept.replica_id]
        shown = [kept.shown, *beaten][:CANDIDATES_MAX]
    full = view.full[: CANDIDATES_MAX - len(shown)]
    return (*shown, *[entry.shown._replace(removed_by=STAGES[FREE_SLOT]) for entry in full])


def _kept_by_affinity(view: View, fleet: Fleet, last_good: str | None) -> Entry | None:
    # A replica of another partition is in another fleet, so it is not found here and the session moves on.
    entry = None if last_good is None else fleet.index.entries.get(last_good)
    return entry if entry is not None and view.stage_of(entry) == PASSED else None


def _why_no_replica(view: View) -> str:
    if view.full:
        return NO_FREE_SLOT
    return NOT_READY if view.feasible_unready else NO_FEASIBLE_REPLICA
