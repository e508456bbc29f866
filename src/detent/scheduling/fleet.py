"""The fleet: the replicas of one partition, kept in placement order, with their slots counted from live leases.

Two things make its state: what each replica said last, and which jobs hold a lease on which replica. Everything else (taken
slots, ready pools, the placement order, the digest) follows from these two, so a fleet rebuilt from them, in any order, is
the same fleet. There is no counter of slots that could go wrong on its own.

The slot of a cancelled job that was running stays taken: the worker may still be computing. It is given back when the
worker confirms, or when the lease would have run out (X-092).

A replica belongs to one partition, and a fleet takes no replica of another, so two owners never place on the same one
(X-045).

A digest of the fleet that costs a few hashes for each replica that has changed, however many there are.

Replicas are spread over 256 buckets by the hash of their id, sixteen times sixteen: a change hashes its bucket, the row of
sixteen buckets it is in, and the sixteen rows. The digest depends on the replicas alone, not on the order of events
that led to them; every level has its own label, so nothing can be read as something on another level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from detent.canon import check_uint64, digest, encode_trusted, sha256
from detent.canon.show import show
from detent.errors import InvalidInput, InvariantBroken, Refused
from detent.scheduling.checks import check_bool, check_id, exact_fields
from detent.scheduling.determinism import ReplicaSet
from detent.scheduling.index import LEAST_LOADED, ORDERS, Index
from detent.scheduling.types import ReplicaStatus

REPLICAS_MAX: Final = 100_000
SNAPSHOT_VERSION: Final = 1


class Fleet:
    """The replicas of one partition and the live leases on them.

    Registering, updating and removing answer with a `Refused` when they change nothing; leases are the owner's own doing,
    and one that does not fit is a broken invariant.
    """

    def __init__(
        self,
        replicas: Iterable[ReplicaStatus] = (),
        *,
        order: str = LEAST_LOADED,
        partition_id: int = 0,
        partitions: int = 1,
    ) -> None:
        if type(order) is not str or order not in ORDERS:
            raise InvalidInput(f"placement order must be one of {', '.join(ORDERS)}, not {show(order)}")
        check_uint64("partitions", partitions)
        if check_uint64("partition_id", partition_id) >= partitions:
            raise InvalidInput(f"partition_id {partition_id} is outside 0..{partitions - 1}")
        self.order = order
        self.partition_id = partition_id
        self.partitions = partitions
        self.index = Index(order)
        self._statuses: dict[str, ReplicaStatus] = {}
        self._descriptions: dict[str, bytes] = {}
        self._leases: dict[str, str] = {}
        self._held: dict[str, set[str]] = {}
        self._lapses: dict[str, int] = {}
        self._pools: dict[str, list[int]] = {}
        self._sets: dict[str, ReplicaSet] = {}
        self._digest = FleetDigest()
        for status in replicas:
            if refusal := self.register(status):
                raise InvalidInput(refusal.message, details=refusal.details)

    # -- replicas

    def register(self, status: ReplicaStatus) -> Refused | None:
        """Take in a replica. Refused: one that is known already, of another partition, or foreign to its set."""
        if status.replica_id in self._statuses:
            return _refused(f"replica {show(status.replica_id)} is registered already", status.replica_id)
        if len(self._statuses) >= REPLICAS_MAX:
            return _refused(f"a fleet has at most {REPLICAS_MAX} replicas", status.replica_id)
        return self._take(status)

    def update(self, status: ReplicaStatus) -> Refused | None:
        """Replace what is known of a replica. Its live leases stay as they are."""
        if status.replica_id not in self._statuses:
            return _refused(f"replica {show(status.replica_id)} is not registered", status.replica_id)
        return self._take(status)

    def set_ready(self, replica_id: str, ready: bool) -> Refused | None:
        """Let a replica take work, or stop it from taking any more."""
        check_bool("ready", ready)
        if (status := self._statuses.get(replica_id)) is None:
            return _refused(f"replica {show(replica_id)} is not registered", replica_id)
        return self._take(replace(status, ready=ready))

    def remove(self, replica_id: str) -> Refused | None:
        """Forget a replica. Leases on it stay: should it come back, their slots are still taken."""
        if (status := self._statuses.get(replica_id)) is None:
            return _refused(f"replica {show(replica_id)} is not registered", replica_id)
        self._uncount(status)
        del self._statuses[replica_id], self._descriptions[replica_id]
        self.index.drop(replica_id)
        self._digest.drop(replica_id)
        return None

    # -- leases

    def lease(self, replica_id: str, job_id: str) -> None:
        """Note that a job now holds a lease, and with it a slot, on a replica."""
        status = self._statuses.get(replica_id)
        if status is None or job_id in self._leases:
            raise InvariantBroken(f"job {show(job_id)} cannot be leased to {show(replica_id)}")
        if self._active(status) >= status.max_slots:
            raise InvariantBroken(f"replica {show(replica_id)} has no free slot for job {show(job_id)}")
        self._hold(job_id, replica_id)

    def adopt(self, replica_id: str, job_id: str) -> None:
        """Note a lease that has been committed, regardless of the replica's limit and of who chose it."""
        self.release(job_id)
        self._hold(job_id, replica_id)

    def cancel(self, job_id: str, lapse_tick: int) -> bool:
        """Note that a leased job was cancelled: its slot stays taken until `release`, or until ``lapse_tick``."""
        if job_id not in self._leases:
            return False
        self._lapses[job_id] = check_uint64("lapse_tick", lapse_tick)
        return True

    def release(self, job_id: str) -> bool:
        """Give a job's slot back: its attempt ended, or its worker confirmed the cancel. False: it held none."""
        replica_id = self._leases.pop(job_id, None)
        if replica_id is None:
            return False
        self._lapses.pop(job_id, None)
        held = self._held[replica_id]
        held.discard(job_id)
        if not held:
            del self._held[replica_id]
        self._recount(replica_id)
        return True

    def lapse(self, tick: int) -> tuple[str, ...]:
        """Give back the slots of cancelled jobs whose leases have run out by now; returns the jobs."""
        if not self._lapses:
            return ()
        due = sorted((at, job_id) for job_id, at in self._lapses.items() if at <= tick)
        for _, job_id in due:
            self.release(job_id)
        return tuple(job_id for _, job_id in due)

    def replica_of(self, job_id: str) -> str | None:
        """The replica on which a job holds a lease; None when it holds none."""
        return self._leases.get(job_id)

    def lapse_tick(self, job_id: str) -> int | None:
        """When the slot of a job that was cut short is given back at the latest; None when it holds no such slot."""
        return self._lapses.get(job_id)

    def lapses(self) -> dict[str, int]:
        """Every job that was cut short and still holds its slot, and until when."""
        return dict(self._lapses)

    def leases(self) -> dict[str, str]:
        """Every live lease: job and replica, cancelled jobs that still hold their slot included."""
        return dict(self._leases)

    # -- what is there

    def __len__(self) -> int:
        return len(self._statuses)

    def __contains__(self, replica_id: object) -> bool:
        return replica_id in self._statuses

    def __iter__(self) -> Iterator[ReplicaStatus]:
        """The replicas in placement order, as `get` shows them."""
        return (self._shown(self._statuses[entry.replica_id]) for entry in list(self.index.order))

    def get(self, replica_id: str) -> ReplicaStatus | None:
        """A replica with its taken slots: what it reported, and the live leases on it."""
        status = self._statuses.get(replica_id)
        return None if status is None else self._shown(status)

    def pools(self) -> list[str]:
        """Every pool that has a replica, in order."""
        return sorted(self._pools)

    def pool_ready(self, pool_id: str) -> bool | None:
        """Whether one of a pool's replicas is ready (CORE-X005); None for a pool that has no replica."""
        pool = self._pools.get(pool_id)
        return None if pool is None else pool[1] > 0

    def digest(self) -> bytes:
        """The digest of what placement reads: every replica as registered, and how many leases it carries."""
        return self._digest.value()

    # -- checkpoints

    def snapshot(self) -> dict[str, object]:
        """The whole fleet as a canonical value: its replicas and its live leases."""
        return {
            "version": SNAPSHOT_VERSION,
            "order": self.order,
            "partition_id": self.partition_id,
            "partitions": self.partitions,
            "replicas": [self._statuses[replica_id].to_map() for replica_id in sorted(self._statuses)],
            "leases": [[job_id, self._leases[job_id], self._lapses.get(job_id)] for job_id in sorted(self._leases)],
        }

    @classmethod
    def restore(cls, snapshot: object) -> Fleet:
        """The fleet that `snapshot` was taken of; refuses what no fleet could have given."""
        names = ("version", "order", "partition_id", "partitions", "replicas", "leases")
        parts = exact_fields("a fleet's snapshot", snapshot, names)
        if parts["version"] != SNAPSHOT_VERSION:
            raise InvalidInput(f"a fleet's snapshot of another version than {SNAPSHOT_VERSION} cannot be read")
        replicas, leases = parts["replicas"], parts["leases"]
        if not isinstance(replicas, list) or not isinstance(leases, list):
            raise InvalidInput("a fleet's snapshot holds a list of replicas and one of leases")
        fleet = cls(
            map(ReplicaStatus.from_map, replicas),
            order=parts["order"],  # type: ignore[arg-type]
            partition_id=parts["partition_id"],  # type: ignore[arg-type]
            partitions=parts["partitions"],  # type: ignore[arg-type]
        )
        for lease in leases:
            if not isinstance(lease, list) or len(lease) != 3:
                raise InvalidInput("a lease in a fleet's snapshot is a job, a replica and a tick or nothing")
            fleet._restore_lease(*lease)
        if fleet.snapshot() != snapshot:
            raise InvalidInput("not a fleet's snapshot: its replicas or leases are out of order")
        return fleet

    def _restore_lease(self, job_id: object, replica_id: object, lapse_tick: object) -> None:
        # Without the limit of slots: a replica may have lowered it while more of its slots were taken.
        job, replica_ = check_id("job_id", job_id), check_id("replica_id", replica_id)
        if job in self._leases:
            raise InvalidInput(f"job {show(job)} holds two leases")
        self._hold(job, replica_)
        if lapse_tick is not None:
            self.cancel(job, lapse_tick)  # type: ignore[arg-type]

    def _hold(self, job_id: str, replica_id: str) -> None:
        self._leases[job_id] = replica_id
        self._held.setdefault(replica_id, set()).add(job_id)
        self._recount(replica_id)

    # -- what follows from replicas and leases

    def _take(self, status: ReplicaStatus) -> Refused | None:
        replica_id = status.replica_id
        if status.partition_id != self.partition_id:
            return _refused(
                f"replica {show(replica_id)} belongs to partition {status.partition_id}, this is {self.partition_id}",
                replica_id,
            )
        old = self._statuses.get(replica_id)
        replica_set = self._sets.get(status.replica_set_id)
        # What the others of its set are pinned to binds a replica; alone in it, it may come back with another version.
        bound = replica_set is not None and len(replica_set) > (replica_id in replica_set)
        if replica_set is not None and bound and (refusal := replica_set.misfit(status)):
            return refusal
        if old is not None:
            self._uncount(old)
        self._statuses[replica_id] = status
        self._descriptions[replica_id] = sha256(encode_trusted(status.to_map()))
        pool = self._pools.setdefault(status.placement.pool_id, [0, 0])
        pool[0] += 1
        pool[1] += status.ready
        self._join_set(status)
        self.index.put(status, self._active(status))
        self._digest.put(replica_id, self._descriptions[replica_id], self._lease_count(replica_id))
        return None

    def _uncount(self, status: ReplicaStatus) -> None:
        pool = self._pools[status.placement.pool_id]
        pool[0] -= 1
        pool[1] -= status.ready
        if not pool[0]:
            del self._pools[status.placement.pool_id]
        replica_set = self._sets[status.replica_set_id]
        replica_set.leave(status.replica_id)
        if not len(replica_set):
            del self._sets[status.replica_set_id]

    def _join_set(self, status: ReplicaStatus) -> None:
        replica_set = self._sets.get(status.replica_set_id)
        if replica_set is None:
            replica_set = self._sets[status.replica_set_id] = ReplicaSet(
                status.replica_set_id,
                engine=status.placement.engine,
                engine_version=status.placement.engine_version,
                sampler_profile_version=status.sampler_profile_version,
            )
        if replica_set.join(status) is not None:
            raise InvariantBroken(f"replica {show(status.replica_id)} was let into a set it does not fit")

    def _lease_count(self, replica_id: str) -> int:
        return len(self._held.get(replica_id, ()))

    def _active(self, status: ReplicaStatus) -> int:
        return status.placement.active_slots + self._lease_count(status.replica_id)

    def _shown(self, status: ReplicaStatus) -> ReplicaStatus:
        active = self._active(status)
        if active == status.placement.active_slots:
            return status
        # More slots may be taken than there are, when a replica has lowered its limit: then it shows as full.
        placement = replace(status.placement, active_slots=min(active, status.max_slots))
        return replace(status, placement=placement)

    def _recount(self, replica_id: str) -> None:
        status = self._statuses.get(replica_id)
        if status is not None:
            self.index.move(replica_id, self._active(status))
            self._digest.put(replica_id, self._descriptions[replica_id], self._lease_count(replica_id))


def _refused(message: str, replica_id: object) -> Refused:
    return Refused("INVALID_PARAMS", message, {"replica_id": str(replica_id)})


LEAF_LABEL: Final = b"detent/fleet-replica/v1\x00"
BUCKET_LABEL: Final = b"detent/fleet-bucket/v1\x00"
ROW_LABEL: Final = b"detent/fleet-row/v1\x00"
FLEET_LABEL: Final = b"detent/fleet/v1\x00"

_SIDE: Final = 16
_EMPTY_BUCKET: Final = digest(BUCKET_LABEL, b"")
_EMPTY_ROW: Final = digest(ROW_LABEL, _EMPTY_BUCKET * _SIDE)


class FleetDigest:
    """The digest of a set of replicas, each given by its description and its number of live leases."""

    __slots__ = ("_buckets", "_dirty", "_nodes", "_rows", "_whole")

    def __init__(self) -> None:
        self._buckets: list[dict[str, bytes]] = [{} for _ in range(_SIDE * _SIDE)]
        self._nodes = [_EMPTY_BUCKET] * (_SIDE * _SIDE)
        self._rows = [_EMPTY_ROW] * _SIDE
        self._dirty: set[int] = set()
        self._whole = digest(FLEET_LABEL, _EMPTY_ROW * _SIDE)

    def put(self, replica_id: str, description: bytes, live_leases: int) -> None:
        """Set a replica's leaf; ``description`` is the digest of its registered status."""
        number = sha256(replica_id.encode())[0]
        self._buckets[number][replica_id] = digest(LEAF_LABEL, description + live_leases.to_bytes(8, "big"))
        self._dirty.add(number)

    def drop(self, replica_id: str) -> None:
        """Take a replica out."""
        number = sha256(replica_id.encode())[0]
        del self._buckets[number][replica_id]
        self._dirty.add(number)

    def value(self) -> bytes:
        """The digest of the fleet as it is now."""
        if self._dirty:
            for number in self._dirty:
                leaves = self._buckets[number]
                self._nodes[number] = digest(BUCKET_LABEL, b"".join([leaves[name] for name in sorted(leaves)]))
            for row in {number // _SIDE for number in self._dirty}:
                self._rows[row] = digest(ROW_LABEL, b"".join(self._nodes[row * _SIDE : (row + 1) * _SIDE]))
            self._whole = digest(FLEET_LABEL, b"".join(self._rows))
            self._dirty.clear()
        return self._whole
