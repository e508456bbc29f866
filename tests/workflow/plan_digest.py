"""Print the digest of some plans: every field of every action and result. Run in processes of its own."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from uuid import UUID

from detent.workflow import (
    EnumExecutionMode,
    ExecutionContext,
    ModelWorkflowStep,
    WorkflowExecutionResult,
    plan_workflow,
    validate_workflow_definition,
)
from tests.workflow.builders import MODES, WORKFLOW, definition, step, unmakeable


def random_steps(seed: int, count: int) -> list[ModelWorkflowStep]:
    chance = random.Random(seed)
    made = []
    for number in range(count):
        needs = [f"s{chance.randrange(number)}" for _ in range(chance.randrange(4))] if number else []
        make = unmakeable if chance.random() < 0.1 else step
        made.append(
            make(
                f"s{number}",
                needs,
                enabled=chance.random() > 0.1,
                skip_on_failure=chance.random() < 0.2,
                error_action=chance.choice(["continue", "continue", "continue", "stop"]),
            )
        )
    chance.shuffle(made)
    return made


def text_of(result: WorkflowExecutionResult) -> str:
    """Everything a result says, as text."""
    plain = {name: value for name, value in vars(result).items() if name != "causes"}
    plain["actions_emitted"] = [action.model_dump_json() for action in result.actions_emitted]
    return json.dumps(plain, default=str)


def planned(seed: int, mode: EnumExecutionMode) -> str:
    steps = random_steps(seed, 40)
    result = plan_workflow(definition(), steps, WORKFLOW, mode, context=ExecutionContext(operation_id=UUID(int=seed)))
    broken = [*steps, step("p", ["q", "nowhere"]), step("q", ["p"]), step("s1")]
    return text_of(result) + "\n".join(validate_workflow_definition(definition(), broken))


def digest() -> str:
    hasher = hashlib.sha256()
    for seed in range(6):
        for mode in MODES:
            hasher.update(planned(seed, mode).encode())
    return hasher.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(digest())
