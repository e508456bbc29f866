"""A contract with the planner's answer to it, gathered for `detent plan`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from detent.cli.binding_text import runs_text
from detent.cli.contract_file import load_models

if TYPE_CHECKING:
    from detent.cli.coming import Coming
    from detent.contract import Contract
    from detent.inspect.plan_preview import PlanPreview
    from detent.workflow.models import ModelAction, ModelWorkflowStep

PLAN_LABEL = b"detent/plan/v1\0"


@dataclass(frozen=True, slots=True)
class Planned:
    """What a contract would run."""

    contract: Contract
    values: Mapping[str, Any]
    """The parameters that have a value."""
    given: frozenset[str]
    """Those of them that were given one; the others have their default."""
    missing: tuple[str, ...]
    """Those that a run must be given."""
    actions: Mapping[UUID, ModelAction]
    """By step, in canonical order; a skipped step has none."""
    waves: tuple[tuple[ModelWorkflowStep, ...], ...]
    """The enabled steps in canonical order. For the page alone: no output of the planner names waves (WF-105)."""
    skipped: tuple[ModelWorkflowStep, ...]
    """Disabled steps, as declared."""


def planned(contract: Contract, assignments: Sequence[str]) -> Planned:
    """Plan a contract with parameters as they were typed; raises `InvalidInput` for those that do not fit.

    A plan is for looking: a parameter without a value leaves a gap in it, and only a run must refuse.
    """
    load_models()
    from detent.contract import bindings_digest, contract_digest  # noqa: PLC0415 - keeps `--help` fast
    from detent.contract.params import parse_assignment, refuse_misfits  # noqa: PLC0415
    from detent.workflow.executor import plan_workflow  # noqa: PLC0415
    from detent.workflow.identity import uuid8  # noqa: PLC0415

    given = dict(parse_assignment(text, contract) for text in assignments)
    defaults = {name: param.default for name, param in contract.params.items() if not param.required}
    refuse_misfits(contract, defaults | given)
    # The same contract gives the same plan, ids included; every run draws its own.
    both = f"{contract_digest(contract)} {bindings_digest(contract)}"
    workflow_id = uuid8(hashlib.sha256(PLAN_LABEL + both.encode()).digest())
    # A step that says no priority has 100 to the planner and 5 to the queue; a plan shows what its jobs will have.
    steps = [step.model_copy(update={"priority": _priority(contract, step)}) for step in contract.steps]
    result = plan_workflow(contract.definition, steps, workflow_id)
    return Planned(
        contract,
        defaults | given,
        frozenset(given),
        tuple(name for name in contract.params if name not in defaults and name not in given),
        {UUID(action.payload["step_id"]): action for action in result.actions_emitted},
        _waves(contract),
        tuple(step for step in contract.steps if not step.enabled),
    )


def plan_map(
    plan: Planned, file: str, coming: Coming | None = None, foresight: PlanPreview | None = None
) -> dict[str, Any]:
    """The plan as JSON: the contract in its long form, the actions, and the steps in order as people call them."""
    from detent.contract import bindings_digest, contract_digest, long_form  # noqa: PLC0415

    contract = plan.contract
    steps = [step for wave in plan.waves for step in wave]
    return {
        "ok": True,
        "file": file,
        "name": contract.definition.workflow_metadata.workflow_name,
        "contract_digest": contract_digest(contract),
        "bindings_digest": bindings_digest(contract),
        "schedule": None if coming is None else coming.map(),
        "params": dict(plan.values),
        "params_missing": list(plan.missing),
        "home": None if foresight is None else foresight.home,
        "resumes": None if foresight is None else foresight.resumes,
        "warnings": [] if foresight is None else list(foresight.warnings),
        "steps": [_step_map(plan, step, foresight) for step in (*steps, *plan.skipped)],
        "actions": [action.model_dump(mode="json") for action in plan.actions.values()],
        "contract": long_form(contract),
    }


def _step_map(plan: Planned, step: ModelWorkflowStep, foresight: PlanPreview | None) -> dict[str, Any]:
    from detent.contract.step_limits import retries_of, timeout_ms_of  # noqa: PLC0415

    contract = plan.contract
    binding = contract.bindings.get(step.step_id)
    action = plan.actions.get(step.step_id)
    retries = retries_of(step, binding)
    place = contract.places.get(step.step_id)
    foreseen = None if foresight is None else foresight.steps.get(contract.keys[step.step_id])
    return {
        "key": contract.keys[step.step_id],
        "step_id": str(step.step_id),
        "action_id": None if action is None else str(action.action_id),
        "enabled": step.enabled,
        "needs": [contract.keys[need] for need in step.depends_on],
        "target": None if action is None else action.target_node_type,
        "runs": None if binding is None else runs_text(binding, plan.values),
        "priority": _priority(contract, step),
        "timeout_ms": timeout_ms_of(step, binding),
        "retry": None if retries is None else {"max": retries[0], "on": list(retries[1])},
        "line": None if place is None else place.line,
        "foreseen": None if foreseen is None else foreseen.to_map(),
    }


def _priority(contract: Contract, step: ModelWorkflowStep) -> int:
    """The class of a step's jobs; of a step without `run:`, which has none, that of its action."""
    from detent.contract.step_limits import priority_of  # noqa: PLC0415
    from detent.workflow.routes import priority_of as action_priority_of  # noqa: PLC0415

    binding = contract.bindings.get(step.step_id)
    return action_priority_of(step) if binding is None else priority_of(step, binding)


def _waves(contract: Contract) -> tuple[tuple[ModelWorkflowStep, ...], ...]:
    """The enabled steps, grouped by the longest chain of enabled steps before them."""
    from detent.workflow.ordering import get_execution_order  # noqa: PLC0415

    steps = {step.step_id: step for step in contract.steps}
    wave_of: dict[UUID, int] = {}
    waves: list[list[ModelWorkflowStep]] = []
    for step_id in get_execution_order(list(contract.steps)):
        step = steps[step_id]
        if not step.enabled:
            continue
        wave = max((wave_of[need] + 1 for need in step.depends_on if need in wave_of), default=0)
        wave_of[step_id] = wave
        if wave == len(waves):
            waves.append([])
        waves[wave].append(step)
    return tuple(tuple(wave) for wave in waves)
