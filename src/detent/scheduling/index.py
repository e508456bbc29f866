"""Replicas kept in placement order, and for each kind of request the answer kept up to date.

Requests differ in their ids and tokens, hardly in what they demand of a replica. For each `Demand` that was asked for lately
there is a `View`: the counts of every filter, the replicas that could take such a job now, and those that could but for want
of room, both in order. A change of one replica is written to a log; a view that is asked again reads what it has missed and
moves just those replicas. So a first placement walks the whole fleet once, and the next one pays for what has changed.

A view is a cache and nothing else: a fresh index over the same replicas gives the same answers, and the tests hold every
view against a plain walk.

What a request demands of a replica, and which filter removes the replicas that can never meet it.

What does not change from hour to hour about a replica (its pool, devices, engine, model, limits) is its `Shape`. Fleets have
few of them, and a demand judges each shape once; readiness and room are checked on the replica itself.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from detent.canon.late import NamedTuple
from detent.errors import InvariantBroken
from detent.scheduling.checks import devices_of
from detent.scheduling.decisions import STAGES, Candidate
from detent.scheduling.types import ENGINE_GENERIC, ModelRequirements, ReplicaStatus, TaskRequest

PIN, READINESS, DEVICE_MASK, ENGINE_MODEL, CONTEXT, FEATURES, FREE_SLOT, AFFINITY = range(len(STAGES))
PASSED: Final = len(STAGES)


class Shape:
    """What a demand can judge once for all replicas that share it. Compared by identity: an index makes each one once."""

    __slots__ = (
        "__weakref__",
        "ctx_max_supported",
        "devices",
        "engine",
        "features",
        "model_digest",
        "model_id",
        "pool_id",
        "sampler_profile_version",
    )

    def __init__(self, status: ReplicaStatus) -> None:
        self.pool_id = status.placement.pool_id
        self.devices = devices_of(status.device_mask)
        self.engine = status.placement.engine
        self.model_id = status.model_id
        self.model_digest = status.model_digest
        self.sampler_profile_version = status.sampler_profile_version
        self.ctx_max_supported = status.placement.ctx_max_supported
        self.features = frozenset(status.placement.features)


class Demand(NamedTuple):
    """What a request asks of a replica, without what makes it one request."""

    pool_id: str | None
    device_mask: str | None
    engine: str | None
    requirements: ModelRequirements | None
    sampler_profile_version: str | None
    vram_mb: int

    @classmethod
    def of(cls, request: TaskRequest, pool_id: str | None) -> Demand:
        """The demand of a request that may only go to ``pool_id``, or anywhere."""
        return cls(
            pool_id,
            request.device_mask,
            request.engine,
            request.requirements,
            request.sampler_profile_version,
            request.vram_mb or 0,
        )

    def judge(self, shape: Shape) -> int:
        """The filter that removes every replica of this shape, ready or not; `PASSED` if none does."""
        if self.pool_id is not None and shape.pool_id != self.pool_id:
            return PIN
        # Inside the mask means on no device outside of it; a replica without devices is inside no mask.
        if self.device_mask is not None and not (shape.devices and shape.devices <= devices_of(self.device_mask)):
            return DEVICE_MASK
        if not self._engine_and_model_match(shape):
            return ENGINE_MODEL
        needs = self.requirements
        if needs is None:
            return PASSED
        if shape.ctx_max_supported < needs.ctx_max:
            return CONTEXT
        return PASSED if shape.features.issuperset(needs.extensions) else FEATURES

    def _engine_and_model_match(self, shape: Shape) -> bool:
        if self.engine not in (None, shape.engine):
            return False
        if self.sampler_profile_version not in (None, shape.sampler_profile_version):
            return False
        if self.requirements is None:
            return shape.engine == ENGINE_GENERIC
        return self.requirements.model_id == shape.model_id and self.requirements.model_digest in (
            None,
            shape.model_digest,
        )


LEAST_LOADED: Final = "least-loaded"
PACK: Final = "pack"
ORDERS: Final[dict[str, Callable[[int, int], tuple[int, int]]]] = {
    LEAST_LOADED: lambda free_vram_mb, active_slots: (-free_vram_mb, active_slots),
    PACK: lambda free_vram_mb, active_slots: (free_vram_mb, -active_slots),
}
"""Sort keys before ``replica_id``. The contract's order (OC-CORE-1017) is the default. Packing fills the replica with the
least free memory that still fits, the busier of two, and so keeps whole replicas free for large jobs."""

VIEWS_MAX: Final = 64
LOG_MAX: Final = 4096


class Entry(NamedTuple):
    """A replica in the order. The first three fields are its place, and no two replicas share the third."""

    first: int
    second: int
    replica_id: str
    shape: Shape
    ready: bool
    active_slots: int
    max_slots: int
    free_vram_mb: int
    shown: Candidate
    """How a decision shows the replica when no filter removed it: made once for each change, not for each decision."""


class View:
    """The replicas as one demand sees them, as of one position in the index's log."""

    __slots__ = ("counts", "demand", "feasible_unready", "full", "open", "position", "verdicts")

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.position = -1
        self.verdicts: dict[Shape, int] = {}
        self.counts: list[int] = []
        """Replicas removed by each filter before the one for a free slot; those are in ``full``."""
        self.feasible_unready = 0
        self.open: list[Entry] = []
        self.full: list[Entry] = []

    def rebuild(self, order: list[Entry]) -> None:
        """Walk all replicas. They come in order, so the two lists are in order as well."""
        counts = [0] * FREE_SLOT
        open_: list[Entry] = []
        full: list[Entry] = []
        verdicts: dict[Shape, int] = {}
        feasible_unready = 0
        needed = self.demand.vram_mb
        for entry in order:
            # By number and only as far as needed: to unpack an entry is to touch all it holds, and in a large fleet that
            # memory is cold. Most of the cost of this walk is fetching.
            shape = entry[3]
            verdict = verdicts.get(shape)
            if verdict is None:
                verdict = verdicts[shape] = self.demand.judge(shape)
            if verdict == PIN:
                counts[PIN] += 1
            elif not entry[4]:
                counts[READINESS] += 1
                feasible_unready += verdict == PASSED
            elif verdict != PASSED:
                counts[verdict] += 1
            elif entry[5] < entry[6] and (not needed or entry[7] >= needed):
                open_.append(entry)
            else:
                full.append(entry)
        self.counts, self.open, self.full = counts, open_, full
        self.verdicts, self.feasible_unready = verdicts, feasible_unready

    def stage_of(self, entry: Entry) -> int:
        """The filter that removes this replica, `PASSED` if none does; affinity is not looked at."""
        verdict = self.verdicts.get(entry.shape)
        if verdict is None:
            verdict = self.verdicts[entry.shape] = self.demand.judge(entry.shape)
        if verdict == PIN:
            return PIN
        if not entry.ready:
            return READINESS
        if verdict != PASSED:
            return verdict
        # Room is a slot and, where the job says how much it needs, memory: both come back when another job ends.
        has_room = entry.active_slots < entry.max_slots and entry.free_vram_mb >= self.demand.vram_mb
        return PASSED if has_room else FREE_SLOT

    def take_out(self, entry: Entry) -> None:
        """Forget a replica as it was."""
        stage = self._count(entry, -1)
        if stage >= FREE_SLOT:
            line = self.open if stage == PASSED else self.full
            place = bisect_left(line, entry)
            if place == len(line) or line[place] is not entry:
                raise InvariantBroken(f"replica {entry.replica_id} is not where its own order puts it")
            del line[place]

    def put_in(self, entry: Entry) -> None:
        """Count a replica as it is."""
        stage = self._count(entry, 1)
        if stage >= FREE_SLOT:
            insort(self.open if stage == PASSED else self.full, entry)

    def _count(self, entry: Entry, change: int) -> int:
        stage = self.stage_of(entry)
        if stage < FREE_SLOT:
            self.counts[stage] += change
        if stage == READINESS and self.verdicts[entry.shape] == PASSED:
            self.feasible_unready += change
        return stage


class Index:
    """All replicas in placement order, a log of their changes, and the views of the latest demands."""

    def __init__(self, order: str) -> None:
        self.rank = ORDERS[order]
        self.entries: dict[str, Entry] = {}
        self.order: list[Entry] = []
        self._known_shapes: WeakValueDictionary[tuple[object, ...], Shape] = WeakValueDictionary()
        self._log: list[tuple[Entry | None, Entry | None]] = []
        self._log_begins = 0
        self._views: OrderedDict[Demand, View] = OrderedDict()

    def put(self, status: ReplicaStatus, active_slots: int) -> None:
        """Add a replica, or give a known one its new place."""
        placement = status.placement
        first, second = self.rank(placement.free_vram_mb, active_slots)
        old = self.entries.get(status.replica_id)
        new = Entry(
            first,
            second,
            status.replica_id,
            self._shape(status),
            status.ready,
            active_slots,
            status.max_slots,
            placement.free_vram_mb,
            Candidate(status.replica_id, placement.free_vram_mb, active_slots),
        )
        self._replace(old, new)

    def move(self, replica_id: str, active_slots: int) -> None:
        """Give a replica the place that its number of taken slots asks for; nothing else about it has changed."""
        old = self.entries[replica_id]
        _, _, _, shape, ready, _, max_slots, free_vram_mb, _ = old
        first, second = self.rank(free_vram_mb, active_slots)
        shown = Candidate(replica_id, free_vram_mb, active_slots)
        self._replace(old, Entry(first, second, replica_id, shape, ready, active_slots, max_slots, free_vram_mb, shown))

    def drop(self, replica_id: str) -> None:
        """Forget a replica."""
        self._replace(self.entries[replica_id], None)
        del self.entries[replica_id]

    def view(self, demand: Demand) -> View:
        """The replicas as this demand sees them now."""
        view = self._views.get(demand)
        if view is None:
            view = self._views[demand] = View(demand)
            if len(self._views) > VIEWS_MAX:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(demand)
        end = self._log_begins + len(self._log)
        missed = end - view.position
        # Moving one replica costs about as much as walking past ten. Verdicts on shapes that no replica has any more go as well.
        if (
            view.position < self._log_begins
            or missed * 10 > len(self.order) + 100
            or len(view.verdicts) > 2 * len(self.order) + 100
        ):
            view.rebuild(self.order)
        elif missed:
            for old, new in self._log[view.position - self._log_begins :]:
                if old is not None:
                    view.take_out(old)
                if new is not None:
                    view.put_in(new)
        view.position = end
        return view

    def shapes(self) -> list[Shape]:
        """Every shape that a replica has now."""
        return list({entry.shape: None for entry in self.order})

    def _replace(self, old: Entry | None, new: Entry | None) -> None:
        if old is not None:
            place = bisect_left(self.order, old)
            if self.order[place] is not old:
                raise InvariantBroken(f"replica {old.replica_id} is not where its own order puts it")
            del self.order[place]
        if new is not None:
            insort(self.order, new)
            self.entries[new.replica_id] = new
        self._log.append((old, new))
        if len(self._log) > LOG_MAX:
            half = len(self._log) // 2
            del self._log[:half]
            self._log_begins += half

    def _shape(self, status: ReplicaStatus) -> Shape:
        placement = status.placement
        key = (
            placement.pool_id,
            status.device_mask,
            placement.engine,
            status.model_id,
            status.model_digest,
            status.sampler_profile_version,
            placement.ctx_max_supported,
            placement.features,
        )
        known = self._known_shapes.get(key)
        if known is None:
            known = self._known_shapes[key] = Shape(status)
        return known
