"""Orders: what a scheduler is asked besides running jobs. Each has a name and a canonical map, and is recorded as a command.

Replicas come, change and go; a worker confirms that it has stopped a job that was cut short; sessions get budgets, and
their use is settled. An order that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from detent.canon import NotCanonical, decode, encode
from detent.canon.show import show
from detent.errors import DetentError, InvalidInput, Refused
from detent.scheduling.checks import check_bool, check_id, exact_fields
from detent.scheduling.fleet import Fleet
from detent.scheduling.sessions import Budgets, Sessions, Used
from detent.scheduling.types import ReplicaStatus, TaskRequest

Fields = Mapping[str, Any]


class Ordered(Protocol):
    """What orders change: a scheduler."""

    fleet: Fleet
    sessions: Sessions


def carry_out(scheduler: Ordered, name: str, data: bytes) -> bytes | Refused:
    """Read an order and do what it says; answers with a canonical value."""
    known = ORDERS.get(name)
    if known is None:
        return Refused("INVALID_PARAMS", f"there is no order {show(name)}", {"orders": ", ".join(sorted(ORDERS))})
    names, do = known
    try:
        answer = do(scheduler, exact_fields(f"order {name}", decode(data), names))
    except (DetentError, NotCanonical) as exc:
        return Refused("INVALID_PARAMS", f"order {name}: {exc}")
    return answer if isinstance(answer, Refused) else encode(answer)


def _register(scheduler: Ordered, fields: Fields) -> object:
    return scheduler.fleet.register(ReplicaStatus.from_map(fields["replica"]))


def _update(scheduler: Ordered, fields: Fields) -> object:
    return scheduler.fleet.update(ReplicaStatus.from_map(fields["replica"]))


def _ready(scheduler: Ordered, fields: Fields) -> object:
    check_bool("ready", fields["ready"])
    return scheduler.fleet.set_ready(check_id("replica_id", fields["replica_id"]), fields["ready"])


def _remove(scheduler: Ordered, fields: Fields) -> object:
    return scheduler.fleet.remove(check_id("replica_id", fields["replica_id"]))


def _stopped(scheduler: Ordered, fields: Fields) -> object:
    """A worker confirms that a job that was cut short no longer runs there. A live lease is not ended by that."""
    job_id = check_id("job_id", fields["job_id"])
    if scheduler.fleet.lapse_tick(job_id) is None:
        return Refused("INVALID_PARAMS", f"job {show(job_id)} holds no slot that could be given back")
    scheduler.fleet.release(job_id)
    return None


def _open_session(scheduler: Ordered, fields: Fields) -> object:
    budgets = Budgets(fields["tokens"], fields["time_ms"], fields["cost"])
    return scheduler.sessions.open(check_id("session_id", fields["session_id"]), budgets)


def _close_session(scheduler: Ordered, fields: Fields) -> object:
    return scheduler.sessions.close(check_id("session_id", fields["session_id"]))


def _debit(scheduler: Ordered, fields: Fields) -> object:
    """Pay for a job of another partition; answers with the replica its session would like to stay on (X-030)."""
    task = TaskRequest.from_map(fields["task"])
    if task.session_id is None:
        raise InvalidInput("a debit names the session that pays")
    refusal = scheduler.sessions.debit(task)
    return scheduler.sessions.last_good(task.session_id) if refusal is None else refusal


def _settle(scheduler: Ordered, fields: Fields) -> object:
    """Say what a job really used. What was taken for it and not used comes back to its session."""
    used = Used(fields["tokens"], fields["time_ms"], fields["cost"])
    return scheduler.sessions.settle(check_id("job_id", fields["job_id"]), used)


ORDERS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Ordered, Fields], object]]]] = {
    "replica_register": (("replica",), _register),
    "replica_update": (("replica",), _update),
    "replica_ready": (("replica_id", "ready"), _ready),
    "replica_remove": (("replica_id",), _remove),
    "job_stopped": (("job_id",), _stopped),
    "session_open": (("session_id", "tokens", "time_ms", "cost"), _open_session),
    "session_close": (("session_id",), _close_session),
    "session_debit": (("task",), _debit),
    "session_settle": (("job_id", "tokens", "time_ms", "cost"), _settle),
}
"""Every order, the fields of its map, and what it does."""
