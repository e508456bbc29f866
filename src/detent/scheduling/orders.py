"""What a scheduler is told: orders beside jobs, and what each job asks for.

Orders: what a scheduler is asked besides running jobs. Each has a name and a canonical map, and is recorded as a command.

Replicas come, change and go; a worker confirms that it has stopped a job that was cut short; sessions get budgets, and
their use is settled. An order that is refused changes nothing.

What a job asks of the place where it runs, as a submission carries it: a map in which everything may be left out.

The id, kind, class and pin of a job are in its signed manifest and nowhere else, so here they are not fields. The rest
is that of `TaskRequest`, and what the job says about its own time: ``wall_ms``, and whether it reports progress, without
which silence does not end it (X-162).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from detent.canon import NotCanonical, decode, encode
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import DetentError, InvalidInput, Refused
from detent.kernel import Arrival
from detent.scheduling.checks import check_bool, check_id, exact_fields
from detent.scheduling.fleet import Fleet
from detent.scheduling.sessions import Budgets, Sessions, Used
from detent.scheduling.types import ENGINE_GENERIC, ModelRequirements, Pin, ReplicaStatus, TaskRequest
from detent.scheduling.watchdog import Limits, limits_of

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


TASK_FIELDS: Final = tuple(
    name for name in TaskRequest.FIELDS if name not in {"job_id", "priority", "job_kind", "pin", "requirements"}
)
FIELDS: Final = (
    *TASK_FIELDS,
    "requirements",
    "wall_ms",
    "idle_ms",
    "reports_progress",
    "last_good",
    "debited",
    "labels",
)
LABELS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, read: what is placed, its limits, and what another partition said of its session (X-030)."""

    task: TaskRequest
    limits: Limits
    last_good: str | None = None
    debited: bool = False
    """The session's own partition has taken the request's worst case from its budgets already."""
    labels: frozenset[str] = frozenset()
    """What the worker must offer that takes the job from the open pool."""

    @property
    def demands_nothing(self) -> bool:
        """Whether any worker would do: the request says nothing of the replica it needs."""
        task = self.task
        said = (task.requirements, task.device_mask, task.pin, task.sampler_profile_version, task.vram_mb)
        return task.engine in (None, ENGINE_GENERIC) and all(value is None for value in said)


def write_request(**fields: object) -> bytes:
    """The bytes of a request. Unknown fields are refused here, wrong values where the request is read."""
    if unknown := sorted(fields.keys() - set(FIELDS)):
        raise InvalidInput(
            f"a request has no field {', '.join(map(show, unknown))}", hint=f"it has {', '.join(FIELDS)}"
        )
    needs = fields.get("requirements")
    shown = needs.to_map() if isinstance(needs, ModelRequirements) else needs
    return encode({name: shown if name == "requirements" else value for name, value in fields.items()})


def read_request(arrival: Arrival, *, wall_ms: int | None, idle_ms: int | None, tick_ms: int) -> Asked | Refused:
    """Read what an arriving job asks for; ``wall_ms`` binds every job, ``idle_ms`` one that brings none of its own."""
    try:
        fields = _fields(arrival.request)
        return _asked(arrival, fields, wall_ms, idle_ms, tick_ms)
    except DetentError as exc:
        return Refused("INVALID_PARAMS", f"request: {exc}", {"job_id": arrival.job_id})


def _fields(data: bytes | None) -> Mapping[str, object]:
    if data is None:
        return {}
    try:
        fields = decode(data)
    except NotCanonical as exc:
        raise InvalidInput(f"not canonical CBOR: {exc}") from exc
    if not isinstance(fields, dict):
        raise InvalidInput(f"must be a map, not {show(fields)}")
    if unknown := sorted(fields.keys() - set(FIELDS)):
        raise InvalidInput(f"has unknown fields: {', '.join(map(show, unknown))}")
    return fields


def _asked(
    arrival: Arrival, fields: Mapping[str, object], wall_ms: int | None, idle_ms: int | None, tick_ms: int
) -> Asked:
    given = {name: fields[name] for name in TASK_FIELDS if name in fields}
    needs = fields.get("requirements")
    task = TaskRequest(
        job_id=arrival.job_id,
        priority=arrival.priority,
        job_kind=arrival.job_kind,
        pin=None if arrival.pool_pin is None else Pin(arrival.pool_pin),
        requirements=None if needs is None else ModelRequirements.from_map(needs),
        **given,  # type: ignore[arg-type]
    )
    for name in ("reports_progress", "debited"):
        check_bool(name, fields.get(name, False))
    limits = limits_of(
        [fields.get("wall_ms"), wall_ms],  # type: ignore[list-item]
        fields.get("idle_ms", idle_ms),  # type: ignore[arg-type]
        reports_progress=bool(fields.get("reports_progress")),
        tick_ms=tick_ms,
    )
    last_good = fields.get("last_good")
    if last_good is not None:
        check_id("last_good", last_good)
    labels = _labels(fields.get("labels", []))
    return Asked(task, limits, last_good, bool(fields.get("debited")), labels)  # type: ignore[arg-type]


def _labels(said: object) -> frozenset[str]:
    if type(said) is not list or len(said) > LABELS_MAX:
        raise InvalidInput(f"labels must be a list of at most {LABELS_MAX}, not {show(said)}")
    return frozenset(check_id("labels", label) for label in said)
