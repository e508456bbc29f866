"""How fast a workflow is planned, as ratios of one run.

Against three yardsticks: the cost of merely constructing as many `ModelAction`s with all their fields given; the same
planner at a tenth of the size, which shows whether it is linear; and `graphlib.TopologicalSorter` on the same graph,
its dict included, for order and cycle check. Then memory beside the caller's own models, and the contract's own limits.

Both sides of a ratio are measured in turn, and where they are measured several times the best of each counts: on a
shared machine everything slower than the best is the work of other processes. What a large plan costs more for each step than a
small one is the collector's: it goes through the growing heap, and bare models of that number cost it as much.
"""

from __future__ import annotations

import gc
import graphlib
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from detent.workflow import (
    EnumExecutionMode,
    ModelAction,
    ModelExecutionGraph,
    ModelSemVer,
    ModelWorkflowDefinition,
    ModelWorkflowDefinitionMetadata,
    ModelWorkflowStep,
    _has_dependency_cycles,
    get_execution_order,
    plan_workflow,
    validate_workflow_definition,
)

SHAPES = ("chain", "wide", "diamond", "layers")
LAYER = 100
VERSION = ModelSemVer(major=1, minor=0, patch=0)
DEFINITION = ModelWorkflowDefinition(
    version=VERSION,
    workflow_metadata=ModelWorkflowDefinitionMetadata(
        version=VERSION, workflow_name="bench", workflow_version=VERSION, description=""
    ),
    execution_graph=ModelExecutionGraph(version=VERSION),
)
WORKFLOW = uuid4()


def needs(shape: str, number: int, ids: list[UUID]) -> list[UUID]:
    if shape == "wide" or number == 0:
        return []
    if shape == "chain":
        return [ids[number - 1]]
    if shape == "diamond":
        return ids[1:-1] if number == len(ids) - 1 else ids[:1]
    start = number - number % LAYER - LAYER
    return [ids[start + (number + offset) % LAYER] for offset in range(3)] if start >= 0 else []


def workflow(shape: str, count: int) -> list[ModelWorkflowStep]:
    """Steps as a loader makes them: every reference is a UUID object of its own."""
    ids = [uuid4() for _ in range(count)]
    return [
        ModelWorkflowStep(
            step_id=ids[number],
            step_name=f"step {number}",
            step_type="compute",
            depends_on=[UUID(int=one.int) for one in needs(shape, number, ids)],
        )
        for number in range(count)
    ]


def best(*works: Callable[[], object], rounds: int) -> list[float]:
    """The least CPU seconds of each piece of work, measured in turn."""
    least = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            begun = time.process_time()
            outcome = work()
            least[index] = min(least[index], time.process_time() - begun)
            del outcome
    return least


def plan(steps: list[ModelWorkflowStep]) -> Callable[[], object]:
    return lambda: plan_workflow(DEFINITION, steps, WORKFLOW, EnumExecutionMode.PARALLEL)


def construct(steps: list[ModelWorkflowStep]) -> Callable[[], object]:
    actions = plan_workflow(DEFINITION, steps, WORKFLOW).actions_emitted
    arguments: list[dict[str, Any]] = [dict(action.__dict__) for action in actions]
    return lambda: [ModelAction(**given) for given in arguments]


def standard_library(steps: list[ModelWorkflowStep], key: Callable[[UUID], object]) -> Callable[[], object]:
    def order() -> object:
        graph = {key(step.step_id): [key(one) for one in step.depends_on] for step in steps}
        return list(graphlib.TopologicalSorter(graph).static_order())

    return order


def order_and_check(steps: list[ModelWorkflowStep]) -> Callable[[], object]:
    return lambda: (get_execution_order(steps), _has_dependency_cycles(steps))


def peak_bytes(work: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    outcome = work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del outcome
    return peak


def planning(shape: str) -> None:
    small, large = workflow(shape, 1_000), workflow(shape, 10_000)
    one, bare, ten = best(plan(small), construct(small), plan(large), rounds=5)
    memory = peak_bytes(plan(large)) / 10_000
    print(
        f"  {shape:8} {one * 1e3:5.1f} us a step at 1,000, {one / bare:4.2f} times a bare ModelAction (goal 4.00);"
        f" at 10,000 {ten / 10 / one:4.2f} times that (goal 1.30); {memory:4.0f} bytes a step (goal below 4,096)"
    )


def ordering(shape: str, count: int) -> None:
    steps = workflow(shape, count)
    ours, with_ids, with_integers = best(
        order_and_check(steps),
        standard_library(steps, lambda one: one),
        standard_library(steps, lambda one: one.int),
        rounds=1,
    )
    (whole,) = best(plan(steps), rounds=1)
    print(
        f"  {shape:8} order and cycle check {ours * 1e3:4.0f} ms, {ours / with_ids:4.2f} times graphlib on the ids,"
        f" {ours / with_integers:4.2f} times graphlib on integers (goal 3.00); planned in {whole:4.1f} s"
    )


def contract_limits() -> None:
    hundred, thousand = workflow("layers", 300)[:100], workflow("chain", 1_000)
    (validation,) = best(lambda: validate_workflow_definition(DEFINITION, hundred), rounds=5)
    sort, creation = best(lambda: get_execution_order(thousand), plan(thousand), rounds=5)
    print(f"  validation of 100 steps {validation * 1e3:6.2f} ms (limit 100)")
    print(f"  order of 1,000 steps    {sort * 1e3:6.2f} ms (limit 50)")
    print(f"  one action              {creation:6.3f} ms (limit 10), the whole plan divided by its steps")


def main() -> None:
    count = 100_000 if "--quick" not in sys.argv else 10_000
    print("planning (CPU time, best of several)")
    for shape in SHAPES:
        planning(shape)
    print(f"{count:,} steps")
    for shape in SHAPES:
        ordering(shape, count)
    print("the contract's own limits")
    contract_limits()


if __name__ == "__main__":
    sys.path.insert(0, ".")
    main()
