"""How one step is limited and retried, from what its model and its binding say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.contract.model import RETRY_ON_DEFAULT, Binding
from detent.workflow.plain import PlainStep

if TYPE_CHECKING:
    from detent.workflow.step import ModelWorkflowStep


def timeout_ms_of(step: PlainStep | ModelWorkflowStep, binding: Binding | None) -> int | None:
    """The wall limit of one attempt: the binding's, else the step's if it was written down, else none (X-162)."""
    if binding is not None and binding.timeout_ms is not None:
        return binding.timeout_ms
    return step.timeout_ms if "timeout_ms" in step.model_fields_set else None


def retries_of(step: PlainStep | ModelWorkflowStep, binding: Binding | None) -> tuple[int, tuple[str, ...]] | None:
    """How often a step is tried again and after what, where the contract says so (X-164)."""
    if binding is not None and binding.retry is not None:
        return binding.retry.max, binding.retry.on
    return (step.retry_count, RETRY_ON_DEFAULT) if "retry_count" in step.model_fields_set else None
