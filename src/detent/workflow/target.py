"""The other side of an action's lease: what a target node checks before it executes, and counts after (WF-058, WF-059).

An action lease says which orchestrator owns an action; it is a UUID and has nothing to do with the digest that names a
worker's lease on a job (X-013). The epoch counts successful executions of an action, not attempts (X-014, X-125).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from detent.canon.late import dataclass
from detent.workflow.vocabulary import EpochConflictError, LeaseExpiredError

if TYPE_CHECKING:
    from detent.workflow.models import ModelAction

T = TypeVar("T")


class Leased(Protocol):
    """What a lease is checked for: an action, or what an order says of one."""

    @property
    def action_id(self) -> UUID: ...

    @property
    def lease_id(self) -> UUID: ...

    @property
    def epoch(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ActionLease:
    """Who owns an action, and how often it was executed successfully."""

    action_id: UUID
    lease_id: UUID
    epoch: int = 0

    def check(self, action: Leased) -> None:
        """Refuse an action under another lease, or older than what was already executed."""
        if action.action_id != self.action_id or action.lease_id != self.lease_id:
            raise LeaseExpiredError(f"action {action.action_id} does not hold the lease {action.lease_id}")
        if action.epoch < self.epoch:
            raise EpochConflictError(
                f"action {action.action_id} comes with epoch {action.epoch}, its lease is at {self.epoch}",
                details={"epoch": action.epoch, "current": self.epoch},
            )

    def after_success(self, action: ModelAction) -> ActionLease:
        """The lease once the action was executed."""
        return replace(self, epoch=action.epoch + 1)


class TargetNode:
    """A node that executes actions under the leases it knows."""

    def __init__(self) -> None:
        self._leases: dict[UUID, ActionLease] = {}

    def grant(self, action: ModelAction) -> None:
        """Take note of an action's lease; granting it again changes nothing, another lease replaces it."""
        known = self._leases.get(action.action_id)
        if known is None or known.lease_id != action.lease_id:
            epoch = action.epoch if known is None else known.epoch
            self._leases[action.action_id] = ActionLease(action.action_id, action.lease_id, epoch)

    def revoke(self, action_id: UUID) -> None:
        """Forget a lease: the action is refused from now on."""
        self._leases.pop(action_id, None)

    def epoch_of(self, action_id: UUID) -> int:
        """How often an action was executed; 0 for one never heard of."""
        lease = self._leases.get(action_id)
        return 0 if lease is None else lease.epoch

    def execute(self, action: ModelAction, work: Callable[[ModelAction], T]) -> T:
        """Check the lease, do the work, raise the epoch. If the work raises, the epoch stays and so does the lease."""
        lease = self._leases.get(action.action_id)
        if lease is None:
            raise LeaseExpiredError(f"no lease is known for action {action.action_id}")
        lease.check(action)
        outcome = work(action)
        self._leases[action.action_id] = lease.after_success(action)
        return outcome
