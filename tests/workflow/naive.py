"""The same answers by other means, written for reading: what the planner is compared with on random workflows."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import strategies as st

from detent.workflow import ModelWorkflowStep
from tests.workflow.builders import step, unmakeable


def waves(steps: list[ModelWorkflowStep]) -> list[list[ModelWorkflowStep]]:
    """Again and again, all steps whose dependencies are done: straight from the words, quadratic."""
    disabled = {one.step_id for one in steps if not one.enabled}
    done: set[UUID] = set()
    left = list(steps)
    found = []
    while left:
        wave = [one for one in left if all(need in done or need in disabled for need in one.depends_on)]
        if not wave:
            raise RecursionError("the steps depend on one another in a circle")
        found.append(wave)
        done |= {one.step_id for one in wave}
        left = [one for one in left if one.step_id not in done]
    return found


@dataclass
class Fates:
    """Where each step went, by table A.9."""

    completed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def partition(
    steps: list[ModelWorkflowStep],
    *,
    broken: frozenset[UUID] = frozenset(),
    reported: frozenset[UUID] = frozenset(),
    strategy: str = "fail_fast",
    cancelled: bool = False,
    time_for: int | None = None,
) -> Fates:
    """Table A.9 line by line. ``time_for`` is the number of steps that are asked for before time is up."""
    fates = Fates()
    disabled = {one.step_id for one in steps if not one.enabled}
    completed: set[UUID] = set()
    skipped: set[UUID] = set()
    stopped = False
    asked = 0

    def fires(one: ModelWorkflowStep) -> bool:
        if "error_action" in one.model_fields_set:
            return one.error_action == "stop"
        return strategy == "fail_fast"

    for one in [one for wave in waves(steps) for one in wave]:
        if not one.enabled or cancelled or stopped:
            skipped.add(one.step_id)
            continue
        asked += 1
        if time_for is not None and asked > time_for:
            fates.failed.append(str(one.step_id))
        elif one.step_id in reported:
            fates.failed.append(str(one.step_id))
            stopped = fires(one)
        elif not all(need in completed or need in disabled for need in one.depends_on):
            fates.failed.append(str(one.step_id))
        elif one.skip_on_failure and fates.failed:
            skipped.add(one.step_id)
        elif one.step_id in broken:
            fates.failed.append(str(one.step_id))
            stopped = fires(one)
        else:
            completed.add(one.step_id)
            fates.completed.append(str(one.step_id))
    fates.skipped = [str(one.step_id) for one in steps if one.step_id in skipped]
    return fates


@st.composite
def workflows(draw: st.DrawFn, *, failing: bool = False) -> list[ModelWorkflowStep]:
    """Up to a dozen steps with acyclic dependencies, declared in any order; some disabled, some that cannot be made."""
    count = draw(st.integers(0, 12))
    labels = [f"s{number}" for number in range(count)]
    made = []
    for number, label in enumerate(labels):
        needs = draw(st.lists(st.sampled_from(labels[:number]), unique=True, max_size=4)) if number else []
        fields: dict[str, object] = {
            "enabled": draw(st.integers(0, 5)) > 0,
            "skip_on_failure": draw(st.booleans()),
            "step_type": draw(st.sampled_from(["compute", "effect", "reducer", "orchestrator", "custom", "parallel"])),
            "priority": draw(st.integers(1, 1000)),
        }
        if draw(st.booleans()):
            fields["error_action"] = draw(st.sampled_from(["stop", "continue", "retry", "compensate"]))
        make = unmakeable if failing and draw(st.integers(0, 3)) == 0 else step
        made.append(make(label, needs, **fields))
    return draw(st.permutations(made))
