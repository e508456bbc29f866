"""How one step is limited and retried, from what its model and its binding say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from detent.canon.policies import unknown_policies
from detent.canon.priority import PRIORITY_DEFAULT, PRIORITY_NAMES
from detent.contract.findings import ContractInvalid, Report, Spot, invalid
from detent.contract.model import RETRY_ON_DEFAULT, Binding, Contract, Kind
from detent.workflow.plain import PlainStep
from detent.workflow.routes import priority_of as action_priority_of

if TYPE_CHECKING:
    from detent.workflow.step import ModelWorkflowStep


PAYLOAD_LIMITS: Final = MappingProxyType({"timeout_ms": 30_000, "memory_mb": 512})
"""Of a payload that says nothing, as the job contract has them (`detent.jobs.limits`, which is not loaded for every contract)."""
TIMEOUT: Final = "timeout of the step"
TIMEOUT_MS: Final = "timeout_ms of the step"
MEMORY_MB: Final = "max_memory_mb of the step"


def wall_limit_of(
    step: PlainStep | ModelWorkflowStep, binding: Binding | None, payload: Mapping[str, Any] | None = None
) -> tuple[int | None, str | None]:
    """The wall limit of one attempt, the smallest that was written down, and which one that is (A.6, X-019, X-162).

    ``payload`` is a platform job's with values in the place of references; its limit counts as it will be when it is completed.
    """
    given: list[tuple[int, str]] = []
    if binding is not None and binding.timeout_ms is not None:
        given.append((binding.timeout_ms, TIMEOUT))
    if "timeout_ms" in step.model_fields_set:
        given.append((step.timeout_ms, TIMEOUT_MS))
    return _smallest(given, payload, "timeout_ms")


def memory_limit_of(
    step: PlainStep | ModelWorkflowStep, payload: Mapping[str, Any] | None = None
) -> tuple[int | None, str | None]:
    """The memory in MB that one attempt may use, and where that was set; the smallest as for its time (X-194)."""
    return _smallest([] if step.max_memory_mb is None else [(step.max_memory_mb, MEMORY_MB)], payload, "memory_mb")


def timeout_ms_of(step: PlainStep | ModelWorkflowStep, binding: Binding | None) -> int | None:
    """The wall limit of one attempt that the contract sets, without the payload's; None: it sets none."""
    return wall_limit_of(step, binding)[0]


def _smallest(
    given: list[tuple[int, str]], payload: Mapping[str, Any] | None, name: str
) -> tuple[int | None, str | None]:
    """The smallest of some limits and of a payload's own, unless only the payload's completion can tell that one."""
    limits = {} if payload is None else payload.get("limits", {})
    own = limits.get(name, PAYLOAD_LIMITS[name]) if payload is not None and type(limits) is dict else None
    if type(own) is int and own > 0:
        given = [*given, (own, f"limits.{name} of the payload")]
    return min(given, key=itemgetter(0), default=(None, None))


def priority_of(step: PlainStep | ModelWorkflowStep, binding: Binding | None) -> int:
    """The class of a step's jobs: its own, else its payload's, else that of all work which says nothing (X-010).

    The workflow contract has 100 where a step says nothing, which would put it before all that says nothing elsewhere.
    """
    if "priority" in step.model_fields_set:
        return action_priority_of(step)
    if binding is not None and binding.kind is Kind.JOB and type(binding.target) is dict:
        named = binding.target.get("priority")
        return PRIORITY_NAMES.get(named, PRIORITY_DEFAULT) if type(named) is str else PRIORITY_DEFAULT
    return PRIORITY_DEFAULT


def retries_of(step: PlainStep | ModelWorkflowStep, binding: Binding | None) -> tuple[int, tuple[str, ...]] | None:
    """How often a step is tried again and after what, where the contract says so (X-164)."""
    if binding is not None and binding.retry is not None:
        return binding.retry.max, binding.retry.on
    return (step.retry_count, RETRY_ON_DEFAULT) if "retry_count" in step.model_fields_set else None


def names_policies(contract: Contract) -> bool:
    """Whether a step names a quota, lease or backoff, which the home's settings must define."""
    return any(binding.policies for binding in contract.bindings.values())


def refuse_unknown_policies(contract: Contract, known: Mapping[str, Sequence[str]]) -> None:
    """Refuse steps that name a quota, lease or backoff which is not ``known``, each with its line."""
    report = Report()
    for step_id, binding in contract.bindings.items():
        path = () if contract.written is None else contract.written.paths[step_id]
        for kind, message, hint in unknown_policies(binding.policies, known):
            what = f"step {contract.keys[step_id]!r}: {message}"
            Spot(report, path).at(kind).fault(what, hint)
    if report.count:
        found = invalid(report, contract.name, None if contract.written is None else contract.written.locate)
        raise ContractInvalid([replace(one, code="POLICY_UNKNOWN") for one in found.findings], found.more)
