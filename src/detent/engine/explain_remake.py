"""Decisions made again: the recorded commands are decided once more, and the scheduler is looked at as it decides.

A decision record holds counts and the best few candidates; of a fleet of thousands the rest is not stored, but follows from
the commands (X-181). So does a decision record that was erased or lost. What is made again is believed only if it has the
digest that the ledger names, so nothing here needs to check the ledger itself.

It costs what `detent replay` costs, up to the job's last decision.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from detent.canon import sha256
from detent.canon.late import dataclass
from detent.engine.history import StoreHistory
from detent.errors import DetentError, InvariantBroken, Refused, StoreCorrupt
from detent.kernel import Arrival, Command, Enqueued, Kernel, KernelConfig, Placed, RaiseEpoch, decode_commands
from detent.scheduling import Candidate, Decision, Scheduler, TaskRequest, stages
from detent.store.api import StoreReader


@dataclass(frozen=True, slots=True)
class Remade:
    """A decision made again, with every replica that was looked at, in placement order."""

    decision: Decision
    replicas: tuple[Candidate, ...] = ()


def remake(reader: StoreReader, partition: int, job_id: str, wanted: Collection[bytes]) -> dict[bytes, Remade]:
    """Make the decisions about a job again, by digest; those that do not come out again are left out.

    Raises `StoreCorrupt` when the commands cannot be decided again.
    """
    found: dict[bytes, Remade] = {}
    missing = set(wanted)
    history = StoreHistory(reader, partition)
    kernel: Kernel | None = None
    for batch in reader.batches(partition):
        if not missing:
            break
        history.horizon = batch.batch_no
        try:
            commands = decode_commands(batch.commands)
            kernel = kernel or _kernel(commands, history, job_id, found)
            for command in commands:
                kernel.apply(command)
        except (DetentError, InvariantBroken, TypeError, ValueError) as exc:
            raise StoreCorrupt(
                f"the commands of batch {batch.batch_no} cannot be decided again: {exc}",
                hint="run `detent verify` to see what was changed",
            ) from exc
        kernel.drain_touched()
        history.committed()
        missing -= found.keys()
    return {digest: found[digest] for digest in wanted if digest in found}


def _kernel(commands: Sequence[Command], history: StoreHistory, job_id: str, found: dict[bytes, Remade]) -> Kernel:
    """A kernel at the ledger's beginning; its configuration stands in the first epoch."""
    epochs = [command for command in commands if isinstance(command, RaiseEpoch)]
    config = KernelConfig.decode(epochs[0].config) if epochs else KernelConfig()
    return Kernel(config, make_queue=partial(_Watched, job_id=job_id, found=found), history=history)


class _Watched(Scheduler):
    """The scheduler, with a look at the fleet whenever something is decided about one job."""

    def __init__(self, config: KernelConfig, *, job_id: str, found: dict[bytes, Remade]) -> None:
        super().__init__(config)
        self._job_id = job_id
        self._found = found

    def admit(self, arrival: Arrival) -> Enqueued | Refused:
        """Admit, and keep what was decided about the job: that it came in, or that it had to go for another."""
        admitted = super().admit(arrival)
        if isinstance(admitted, Enqueued):
            if arrival.job_id == self._job_id:
                # A pin is part of the request; admission chooses among all pools otherwise.
                self._keep(admitted.decision, None)
            for evicted, why in zip(admitted.evicted, admitted.evictions, strict=False):
                if evicted == self._job_id:
                    self._found[sha256(why)] = Remade(Decision.decode(why))
        return admitted

    def take(self, replica_id: str | None) -> Placed | Refused | None:
        """Place, and keep it; the slot is taken later, so the fleet is still the one that was looked at."""
        placed = super().take(replica_id)
        if isinstance(placed, Placed) and placed.job_id == self._job_id:
            known = self.known.get(placed.job_id)
            self._keep(placed.decision, None if known is None or not known.pool_id else known.pool_id)
        return placed

    def _keep(self, data: bytes | None, pool_id: str | None) -> None:
        if data is None:
            return
        known = self.known.get(self._job_id)
        task = TaskRequest(self._job_id) if known is None else known.asked.task
        self._found[sha256(data)] = Remade(Decision.decode(data), tuple(stages(task, self.fleet, pool_id=pool_id)))
