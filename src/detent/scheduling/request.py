"""What a job asks of the place where it runs, as a submission carries it: a map in which everything may be left out.

The id, kind, class and pin of a job are in its signed manifest and nowhere else, so here they are not fields. The rest
is that of `TaskRequest`, and what the job says about its own time: ``wall_ms``, and whether it reports progress, without
which silence does not end it (X-162).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from detent.canon import NotCanonical, decode, encode
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import DetentError, InvalidInput, Refused
from detent.kernel import Arrival
from detent.scheduling.checks import check_bool, check_id
from detent.scheduling.types import ENGINE_GENERIC, ModelRequirements, Pin, TaskRequest
from detent.scheduling.watchdog import Limits, limits_of

TASK_FIELDS: Final = tuple(
    name for name in TaskRequest.FIELDS if name not in {"job_id", "priority", "job_kind", "pin", "requirements"}
)
FIELDS: Final = (*TASK_FIELDS, "requirements", "wall_ms", "idle_ms", "reports_progress", "last_good", "debited")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, read: what is placed, its limits, and what another partition said of its session (X-030)."""

    task: TaskRequest
    limits: Limits
    last_good: str | None = None
    debited: bool = False
    """The session's own partition has taken the request's worst case from its budgets already."""

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
    return Asked(task, limits, last_good, bool(fields.get("debited")))  # type: ignore[arg-type]
