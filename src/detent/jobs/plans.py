"""Plans: how much each workspace may ask for, and whether its jobs may have a network (JOB-038, JOB-041, X-032).

An operator writes them into the settings of a home, ``[plans.NAME]``, with the workspaces that have each. The plan called
``default`` is for all other workspaces; without one they may ask for as much as a payload can say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.jobs.fields import Part
from detent.jobs.payload import ARTIFACTS_MAX, MEMORY_MB_MAX, OUTPUT_KB_MAX, TIME_MS_MAX, Environment, Limits
from detent.kernel.manifest import id_fault

DEFAULT: Final = "default"
"""The plan of every workspace that no plan names."""
WORKSPACES: Final = "workspaces"
NETWORK: Final = "network_access"


class Plan(Part):
    """What a workspace may ask for at most."""

    limits: Limits = Limits(
        timeout_ms=TIME_MS_MAX,
        cpu_ms=TIME_MS_MAX,
        memory_mb=MEMORY_MB_MAX,
        max_output_kb=OUTPUT_KB_MAX,
        max_artifacts=ARTIFACTS_MAX,
    )
    network_access: bool = False
    """Whether jobs may be given network access; it still has to be asked for."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The plans of a home, by name, and which workspace has which."""

    by_name: Mapping[str, Plan]
    of_workspace: Mapping[str, str]

    def of(self, workspace_id: str) -> tuple[str, Plan]:
        """The plan of a workspace, with its name."""
        name = self.of_workspace.get(workspace_id, DEFAULT)
        return name, self.by_name.get(name, Plan())


NO_PLANS: Final = Plans({}, {})


def read_plans(sections: Mapping[str, Any]) -> Plans:
    """The plans as settings write them, by name. Raises `InvalidInput` that begins with the key that does not fit."""
    plans: dict[str, Plan] = {}
    of_workspace: dict[str, str] = {}
    for name, section in sections.items():
        if not isinstance(section, Mapping):
            raise InvalidInput(f"plans.{name}: must be a section")
        plans[name] = _plan(name, section)
        for workspace in _workspaces(name, section.get(WORKSPACES, [])):
            if of_workspace.setdefault(workspace, name) != name:
                raise InvalidInput(
                    f"plans.{name}.{WORKSPACES}: {show(workspace)} has the plan {of_workspace[workspace]!r} already"
                )
    return Plans(plans, of_workspace)


def _plan(name: str, section: Mapping[str, Any]) -> Plan:
    known = [*Limits.model_fields, NETWORK, WORKSPACES]
    if unknown := sorted(section.keys() - set(known)):
        raise InvalidInput(f"plans.{name}: unknown key {unknown[0]!r:.80}; known: {', '.join(known)}")
    most = Plan().limits.model_dump()
    said = {key: value for key, value in section.items() if key in Limits.model_fields}
    try:
        limits = Limits.model_validate({**most, **said})
        return Plan(limits=limits, network_access=section.get(NETWORK, False))
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        raise InvalidInput(f"plans.{name}.{error['loc'][-1]}: {error['msg']}") from exc


def _workspaces(name: str, listed: Any) -> list[str]:
    if not isinstance(listed, list):
        raise InvalidInput(f"plans.{name}.{WORKSPACES}: must be a list of workspace ids")
    for workspace in listed:
        if fault := id_fault("a workspace id", workspace):
            raise InvalidInput(f"plans.{name}.{WORKSPACES}: {fault}")
    return listed


def within_plan(document: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """A draft with the limits that it leaves open: the contract's defaults, or the plan's where those are smaller."""
    given = document.get("limits", {})
    if not isinstance(given, Mapping):
        return dict(document)  # Refused where it is read.
    open_limits = {
        name: min(getattr(Limits(), name), getattr(plan.limits, name))
        for name in Limits.model_fields
        if name not in given
    }
    return {**document, "limits": {**open_limits, **given}}


def check_plan(limits: Limits, environment: Environment, plan: Plan, *, name: str = DEFAULT) -> Refused | None:
    """Refuse every limit above the plan's, and network access that the plan does not grant; None when all is well."""
    faults: list[dict[str, Any]] = []
    for limit in Limits.model_fields:
        asked, most = getattr(limits, limit), getattr(plan.limits, limit)
        if asked > most:
            message = f"limits.{limit} is {asked}; the plan {name!r} allows {most}"
            faults.append({"path": f"limits.{limit}", "message": message, "asked": asked, "allowed": most})
    if environment.network_access == "enabled" and not plan.network_access:
        path = "environment.network_access"
        faults.append({"path": path, "message": f"{path}: the plan {name!r} grants no network access"})
    if not faults:
        return None
    message = "; ".join(fault["message"] for fault in faults)
    return Refused("PLAN_EXCEEDED", message, {"plan": name, "path": faults[0]["path"], "errors": faults})
