"""From a run's contract to its steps, each with the action that the planner made for it (X-023)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from detent.contract.model import priority_of
from detent.errors import InvalidInput
from detent.kernel import same_partition
from detent.runs.record.inputs import RunIdentity, RunInputs, digests_of
from detent.runs.record.step_run import StepRun, Suits
from detent.words.states import SKIPPED
from detent.workers.action_leases import workflow_id_of
from detent.workflow.context import ExecutionContext
from detent.workflow.walk import PlainPlan, plan_plain


def plan(
    inputs: RunInputs, identity: RunIdentity, failures: Mapping[UUID, str] | None = None, suits: Suits = None
) -> PlainPlan:
    """What the planner makes of the contract in this operation, given what has failed so far (A.9)."""
    contract = inputs.contract
    workflow_id = workflow_id_of(digests_of(contract)[0])
    context = ExecutionContext(operation_id=identity.operation_id, reported_failures=failures or {}, suits=suits)
    return plan_plain(contract.plain_steps, workflow_id, context, timeout_ms=contract.outline.timeout_ms)


def steps_of(inputs: RunInputs, identity: RunIdentity, partitions: int) -> list[StepRun]:
    """The steps in canonical order, each with its action; disabled ones come last, and no step waits for them."""
    suits = same_partition(identity.run_id, partitions)
    contract = inputs.contract
    steps: dict[UUID, StepRun] = {}
    for place, (step, action_id, _, lease_id) in enumerate(plan(inputs, identity, suits=suits).planned):
        binding = contract.bindings.get(step.step_id)
        if binding is None:
            raise InvalidInput(
                f"step {contract.keys[step.step_id]!r} says nothing to run",
                hint="give it a `run:`; `detent plan` shows steps without one",
            )
        key, priority = contract.keys[step.step_id], priority_of(step, binding)
        steps[step.step_id] = StepRun(key, step, binding, action_id, priority, place, lease_id, suits=suits)
    for step_run in steps.values():
        for need in step_run.step.depends_on:
            if (needed := steps.get(need)) is not None:
                needed.dependents.append(step_run)
                step_run.unmet += 1
    for step in contract.plain_steps:
        if not step.enabled and (binding := contract.bindings.get(step.step_id)) is not None:
            steps[step.step_id] = StepRun(contract.keys[step.step_id], step, binding, step.step_id, 1, state=SKIPPED)
    return list(steps.values())
