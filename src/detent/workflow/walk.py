"""The walk of a plan: every step at its turn, and what becomes of it (table A.9, told in `detent.workflow.executor`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from detent.canon.late import NamedTuple
from detent.errors import InvariantBroken
from detent.workflow.context import STRATEGY_ACTIONS, ExecutionContext
from detent.workflow.identity import ids_of, priority_of, route_of
from detent.workflow.ordering import Edges, Order, dependency_edges, execution_order, positions_by_id
from detent.workflow.vocabulary import ModelOnexError

if TYPE_CHECKING:
    from detent.workflow.models import ModelWorkflowStep
    from detent.workflow.plain import PlainStep

HARD_STOPS: Final = (MemoryError, SystemError, RecursionError, InvariantBroken)
"""Failures of the process, or of ours, and not of a step; they reach the caller (X-131)."""

UNDECIDED, COMPLETED, FAILED, SKIPPED = range(4)


class Walk:
    """The state of one plan while the steps are taken in turn."""

    def __init__(
        self,
        steps: Sequence[Any],
        workflow_id: UUID,
        context: ExecutionContext,
        timeout_ms: int | None,
    ) -> None:
        self.steps = steps
        position_of = positions_by_id(steps)
        self.edges: Edges = dependency_edges(steps, position_of)
        self.workflow_id = workflow_id
        self.context = context
        self.timeout_ms = timeout_ms
        reported = context.reported_failures
        self.reported = reported if isinstance(reported, Mapping) else dict.fromkeys(reported, "the target reported it")
        self.fate = bytearray(len(steps))
        self.completed: list[str] = []
        self.failed: list[str] = []
        self.actions: list[Any] = []
        self.errors: list[dict[str, str]] = []
        self.causes: dict[str, Exception] = {}
        self.step_to_action_map: dict[UUID, UUID] = {}
        self.action_ids: list[UUID | None] = [None] * len(steps)
        """The same by position."""
        self.stopped = context.cancel_requested
        """Nothing further is processed: after a cancellation from the start, after a failure from there on."""
        self.timed_out = False
        self.repeated: set[int] = set()
        """Steps whose id an earlier one has. Validation refuses them; here they must not take its action's id."""
        if len(position_of) != len(steps):
            declared = enumerate(steps)
            self.repeated = {position for position, step in declared if position_of[step.step_id.int] != position}

    def take_all(self) -> Order:
        """Take every step in the canonical order, and give the order."""
        order = execution_order(self.steps, self.edges)
        for position in order.positions:
            self.take(position)
        return order

    def take(self, position: int) -> None:
        """Decide what becomes of one step."""
        step = self.steps[position]
        if self.stopped or not step.enabled:
            self.fate[position] = SKIPPED
        elif self._is_late():
            self._fail(position, "GlobalTimeout", f"the workflow's {self.timeout_ms} ms had elapsed")
        elif self.reported and step.step_id in self.reported:
            self._fail(position, "ReportedFailure", str(self.reported[step.step_id]))
            self._apply_error_action(step)
        elif self._is_blocked(position):
            self._fail(position, "DependencyNotMet", "a step it depends on was not completed")
        elif step.skip_on_failure and self.failed:
            self.fate[position] = SKIPPED
        else:
            self._create(position, step)

    def elapsed_ms(self) -> int:
        elapsed = self.context.elapsed_ms
        return elapsed() if callable(elapsed) else elapsed

    def skipped(self) -> list[str]:
        """In declaration order, not in the order of processing."""
        return [str(step.step_id) for step, fate in zip(self.steps, self.fate, strict=True) if fate == SKIPPED]

    def _is_late(self) -> bool:
        if self.timeout_ms is not None and not self.timed_out:
            self.timed_out = self.elapsed_ms() >= self.timeout_ms
        return self.timed_out

    def _is_blocked(self, position: int) -> bool:
        edges = self.edges[position]
        for target in edges:
            if self.fate[target] != COMPLETED and self.steps[target].enabled:
                return True
        # A reference to an unknown step has no edge: such a step is neither completed nor disabled.
        return len(edges) != len(self.steps[position].depends_on)

    def _dependencies(self, position: int) -> list[UUID]:
        """Action ids of the dependencies that have an action, in declaration order, each once."""
        targets: Collection[int] = self.edges[position]
        if len(targets) > 1:
            targets = sorted(set(targets))
        action_ids = self.action_ids
        return [action_id for target in targets if (action_id := action_ids[target]) is not None]

    def _action(self, position: int, step: Any) -> Any:
        """Something with an ``action_id`` for a step that is to be done: a subclass knows what."""
        raise NotImplementedError

    def _create(self, position: int, step: ModelWorkflowStep | PlainStep) -> None:
        try:
            if position in self.repeated:
                raise ModelOnexError(f"Duplicate step ID: {step.step_id}")
            action = self._action(position, step)
        except HARD_STOPS:
            raise
        except Exception as exc:  # noqa: BLE001 - any error here is the step's failure, not the caller's
            self._fail(position, type(exc).__name__, _text_of(exc))
            # Our own frames would keep this whole walk alive for as long as the result is kept.
            trace = exc.__traceback__
            while trace is not None and trace.tb_frame.f_locals.get("self") is self:
                trace = trace.tb_next
            self.causes[str(step.step_id)] = exc.with_traceback(trace)
            self._apply_error_action(step)
            return
        self.actions.append(action)
        self.step_to_action_map[step.step_id] = self.action_ids[position] = action.action_id
        self.completed.append(str(step.step_id))
        self.fate[position] = COMPLETED

    def _fail(self, position: int, error_type: str, message: str) -> None:
        step_id = str(self.steps[position].step_id)
        self.fate[position] = FAILED
        self.failed.append(step_id)
        self.errors.append({"step_id": step_id, "error_type": error_type, "message": message})

    def _apply_error_action(self, step: ModelWorkflowStep | PlainStep) -> None:
        """Stop if the step says so, or if it does not say and the strategy does (X-101). All else goes on (X-103)."""
        if "error_action" in step.model_fields_set:
            self.stopped = step.error_action == "stop"
        else:
            self.stopped = STRATEGY_ACTIONS[self.context.failure_strategy] == "stop"


class PlannedStep(NamedTuple):
    """A step that is to be run, with what its action says that a run goes by."""

    step: PlainStep
    action_id: UUID
    priority: int
    lease_id: UUID


class PlainPlan(NamedTuple):
    """What a run needs to know of a plan; ids as text, all in processing order but for the skipped ones."""

    planned: list[PlannedStep]
    failed: list[str]
    skipped: list[str]


class PlainWalk(Walk):
    """The walk of a plan without actions."""

    def __init__(
        self, steps: Sequence[PlainStep], workflow_id: UUID, context: ExecutionContext, timeout_ms: int | None
    ) -> None:
        super().__init__(steps, workflow_id, context, timeout_ms)
        self._ids_of = ids_of(context.id_root, workflow_id, context.operation_id, context.suits)

    def _action(self, _position: int, step: PlainStep) -> PlannedStep:
        route_of(step)
        action_id, lease_id = self._ids_of(str(step.step_id))
        return PlannedStep(step, action_id, priority_of(step), lease_id)


def plan_plain(
    steps: Sequence[PlainStep], workflow_id: UUID, context: ExecutionContext, *, timeout_ms: int | None = None
) -> PlainPlan:
    """The same plan for those who run it themselves: no actions are made, and no models are loaded for them."""
    walk = PlainWalk(steps, workflow_id, context, timeout_ms)
    walk.take_all()
    return PlainPlan(walk.actions, walk.failed, walk.skipped())


def _text_of(exc: Exception) -> str:
    """What an exception says; a foreign one may not even be able to say it."""
    try:
        return str(exc)
    except Exception:  # noqa: BLE001 - see above
        return f"{type(exc).__name__} without a readable message"
