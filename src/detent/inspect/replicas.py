"""The replicas that are registered in a home, and what that means for its own workers.

From the first registered replica on, only registered replicas get jobs (`detent.scheduling`): the workers of `detent run` get
none. A home in that state has to say so wherever a person looks, because from outside it only stands still.

Registering leaves no record of its own, so the scheduler is rebuilt from the newest checkpoint and the commands after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detent.canon import encode
from detent.canon.late import dataclass
from detent.errors import InvalidInput, error_of
from detent.kernel import Kernel, KernelConfig, Order
from detent.kernel.table import State
from detent.owner.recovery import recover
from detent.owner.session import Session
from detent.scheduling import Scheduler
from detent.scheduling.types import ReplicaStatus
from detent.store.api import StoreReader
from detent.words.quantities import count_text

NAMED_MAX: Final = 3
"""Replicas that a sentence names; `detent replicas` lists all."""
HINT: Final = (
    "start the workers of those replicas, or `detent replicas remove REPLICA`: without any registered replica this home's own"
    " workers run its jobs"
)


@dataclass(frozen=True, slots=True)
class RegisteredReplica:
    """One registered replica and the jobs that wait for its pool."""

    status: ReplicaStatus
    waiting: int

    def to_map(self) -> dict[str, object]:
        """One object of `detent replicas -o json`."""
        status, placement = self.status, self.status.placement
        return {
            "replica_id": status.replica_id,
            "pool_id": placement.pool_id,
            "partition": status.partition_id,
            "engine": placement.engine,
            "engine_version": placement.engine_version,
            "model_id": status.model_id,
            "ready": status.ready,
            "slots_taken": placement.active_slots,
            "slots": status.max_slots,
            "free_vram_mb": placement.free_vram_mb,
            "jobs_waiting": self.waiting,
        }


def kernels(reader: StoreReader) -> list[Kernel]:
    """Every partition's kernel as the ledger leaves it; to look at and nothing else."""
    return [
        recover(reader, partition, KernelConfig(), make_queue=Scheduler).kernel
        for partition in range(reader.partitions)
    ]


def registered(reader: StoreReader) -> list[RegisteredReplica]:
    """Every registered replica, by partition and name."""
    found: list[RegisteredReplica] = []
    for kernel in kernels(reader):
        scheduler = kernel.queue
        assert isinstance(scheduler, Scheduler)
        for status in sorted(scheduler.fleet, key=lambda one: one.replica_id):
            waiting = sum(scheduler.queues.depths(status.placement.pool_id).values())
            found.append(RegisteredReplica(status, waiting))
    return found


def standstill(reader: StoreReader) -> str | None:
    """Why jobs of this home wait although nothing runs: replicas are registered. None when that is not the case.

    Looks at the scheduler only while jobs are queued and none runs: that is cheap to know, and rebuilding it is not.
    """
    counts = reader.job_counts()
    queued = counts.get(State.QUEUED.value, 0)
    if not queued or counts.get(State.RUNNING.value):
        return None
    replicas = registered(reader)
    if not replicas:
        return None
    waits = count_text(queued, "queued job waits", "queued jobs wait")
    return f"{waits} for a replica, not for a worker of this home: {registered_text([one.status for one in replicas])}. To change that, {HINT}"


def registered_text(replicas: Sequence[ReplicaStatus]) -> str:
    """Which replicas are registered, and what follows for the home's own workers."""
    names = ", ".join(f"{one.replica_id}{'' if one.ready else ' (not ready)'}" for one in replicas[:NAMED_MAX])
    more = f" and {len(replicas) - NAMED_MAX:,} more" if len(replicas) > NAMED_MAX else ""
    said = count_text(len(replicas), "replica is", "replicas are")
    return f"{said} registered ({names}{more}), and only registered replicas get jobs"


def remove(session: Session, reader: StoreReader, replica_id: str) -> RegisteredReplica:
    """Remove a replica; the last one gone, the home's own workers get the jobs that ask for nothing special."""
    replicas = registered(reader)
    found = next((one for one in replicas if one.status.replica_id == replica_id), None)
    if found is None:
        known = ", ".join(one.status.replica_id for one in replicas) or "none"
        raise InvalidInput(
            f"no replica {replica_id!r} is registered here; registered: {known:.400}",
            hint="`detent replicas` lists them",
        )
    order = Order(0, "replica_remove", encode({"replica_id": replica_id}))
    (answer,) = session.ask([order], partition=found.status.partition_id)
    if answer.refusal is not None:
        raise error_of(answer.refusal)
    return found
