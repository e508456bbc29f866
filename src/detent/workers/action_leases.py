"""The action lease of a step's job, as its worker checks it: the run that owns the action is the one on the ledger (X-013).

A run's recorded operation and its contract give the ids of every action and of its lease, so a worker can tell without asking
whether an order was made by that run: an order of another orchestrator, or of an operation that the run no longer is, names
another lease and is refused. The epoch counts successful executions of the job (X-014, X-125): an order that is older than what was
executed is refused, too. The job lease, by which the kernel knows the worker, has nothing to do with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from detent.canon.late import dataclass
from detent.kernel import Run, same_partition
from detent.store.api import StoreReader
from detent.workflow.identity import ids_of, uuid8
from detent.workflow.target import ActionLease
from detent.workflow.vocabulary import LeaseExpiredError

RUNS_KNOWN_MAX: Final = 256
"""Runs whose operation is remembered."""


@dataclass(frozen=True, slots=True)
class HeldAction:
    """An order's action and the lease that it has to hold: from when its work begins until its result is reported."""

    lease: ActionLease
    action_id: UUID
    lease_id: UUID
    epoch: int

    def check(self) -> None:
        """Refuse, with `LeaseExpiredError` or `EpochConflictError`, an action that is not under the lease."""
        self.lease.check(self)


def workflow_id_of(contract_digest: bytes) -> UUID:
    """The same contract is the same workflow; every operation on it draws its own ids (X-011)."""
    return uuid8(contract_digest)


class ActionLeases:
    """The leases of the runs that a supervisor works for. For its thread."""

    def __init__(self, reader: Callable[[], StoreReader]) -> None:
        self._reader = reader
        self._ids: OrderedDict[str, Callable[[str], tuple[UUID, UUID]]] = OrderedDict()
        """How a run's steps get the ids of their actions and leases: fixed when it starts."""

    def held(self, run_id: str | None, said: Mapping[str, Any]) -> HeldAction | None:
        """The action of an order, checked; None for an order without one, as of single jobs and of earlier versions.

        A job that was granted has not succeeded: its action was executed 0 times.
        """
        if not said:
            return None
        try:
            step_id, epoch = str(UUID(said["step_id"])), said["epoch"]
            action_id, lease_id = UUID(said["action_id"]), UUID(said["lease_id"])
            if type(epoch) is not int or epoch < 0:
                raise ValueError(f"epoch {epoch!r}")
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise LeaseExpiredError(f"the order names no action lease that can be read: {exc}") from exc
        action = HeldAction(ActionLease(*self._ids_of(run_id)(step_id)), action_id, lease_id, epoch)
        action.check()
        return action

    def _ids_of(self, run_id: str | None) -> Callable[[str], tuple[UUID, UUID]]:
        known = None if run_id is None else self._ids.get(run_id)
        if known is not None:
            return known
        row = None if run_id is None else self._reader().run(run_id)
        if row is None or run_id is None:
            raise LeaseExpiredError(f"no run {run_id!r} owns the action of this order")
        run = Run.decode(row.body)
        suits = same_partition(run_id, self._reader().partitions)
        known = self._ids[run_id] = ids_of(None, workflow_id_of(run.contract_digest), UUID(run.operation_id), suits)
        if len(self._ids) > RUNS_KNOWN_MAX:
            self._ids.popitem(last=False)
        return known
