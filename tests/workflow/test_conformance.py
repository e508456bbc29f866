"""The contract's own conformance suite: its eight groups, one test for each case it names.

Everything here is asked of the public names alone, as a foreign suite would.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from detent.workflow import (
    EnumActionType,
    EnumExecutionMode,
    EnumWorkflowState,
    ModelONEXContainer,
    ModelOnexError,
    ModelOrchestratorInput,
    ModelOrchestratorOutput,
    ModelWorkflowStep,
    NodeOrchestrator,
    execute_workflow,
    get_execution_order,
    validate_workflow_definition,
)
from tests.workflow.builders import WORKFLOW, definition, drive, emitted, execute, fates, names, step, unmakeable

ETL = [step("A"), step("B"), step("C"), step("transform", "ABC"), step("load", ["transform"])]


def process(steps: list[ModelWorkflowStep], **fields: Any) -> ModelOrchestratorOutput:
    node = NodeOrchestrator(ModelONEXContainer())
    node.workflow_definition = definition()
    return drive(node.process(ModelOrchestratorInput(workflow_id=WORKFLOW, steps=steps, **fields)))


class TestPureFunctions:
    """WF-268"""

    def test_same_input_gives_the_same_output(self) -> None:
        results = [drive(execute_workflow(definition(), ETL, WORKFLOW)) for _ in range(2)]
        assert results[0] == results[1]

    def test_nothing_shared_is_changed(self) -> None:
        before = [one.model_dump() for one in ETL]
        made = definition()
        whole = made.model_dump()
        drive(execute_workflow(made, ETL, WORKFLOW))
        assert ([one.model_dump() for one in ETL], made.model_dump()) == (before, whole)

    def test_concurrent_calls_do_not_disturb_one_another(self) -> None:
        def plan(number: int) -> Any:
            return drive(execute_workflow(definition(), ETL, UUID(int=number)))

        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(plan, range(32)))
        assert together == [plan(number) for number in range(32)]


class TestCycles:
    """WF-269"""

    @pytest.mark.parametrize(
        "steps",
        [
            [step("A", "B"), step("B", "A")],
            [step("A", "B"), step("B", "C"), step("C", "A")],
            [step("A", "B"), step("B", "A", enabled=False)],
        ],
        ids=["simple", "complex", "with-a-disabled-step"],
    )
    def test_a_cycle_is_detected(self, steps: list[ModelWorkflowStep]) -> None:
        assert len(validate_workflow_definition(definition(), steps)) == 1
        with pytest.raises(ModelOnexError):
            get_execution_order(steps)
        with pytest.raises(ModelOnexError):
            process(steps)

    def test_a_valid_graph_is_accepted(self) -> None:
        assert validate_workflow_definition(definition(), ETL) == []
        assert process(ETL).execution_status == "completed"


class TestOrdering:
    """WF-270"""

    @pytest.mark.parametrize(
        ("steps", "expected"),
        [
            ([step("C", "B"), step("B", "A"), step("A")], ["A", "B", "C"]),
            ([step("A"), step("B", "A"), step("C", "A"), step("D", "BC")], ["A", "B", "C", "D"]),
            ([step("A"), step("B"), step("C", "B"), step("D", "A")], ["A", "B", "C", "D"]),
        ],
        ids=["linear", "diamond", "multiple-roots"],
    )
    def test_the_order_is_right(self, steps: list[ModelWorkflowStep], expected: list[str]) -> None:
        assert names(get_execution_order(steps)) == expected
        assert emitted(execute(steps)) == expected


class TestModes:
    """WF-271"""

    def test_sequential_processes_in_order(self) -> None:
        steps = [step("B", "A"), step("A"), step("C", "B")]
        assert emitted(execute(steps, EnumExecutionMode.SEQUENTIAL)) == ["A", "B", "C"]

    def test_parallel_processes_by_waves(self) -> None:
        output = process(ETL, execution_mode=EnumExecutionMode.PARALLEL)
        assert [action.payload["step_name"] for action in output.actions_emitted] == [
            "A",
            "B",
            "C",
            "transform",
            "load",
        ]
        assert output.metrics["parallel_waves"] == 3.0

    def test_batch_says_so(self) -> None:
        metadata = execute(ETL, EnumExecutionMode.BATCH).metadata
        assert (metadata["execution_mode"], metadata["batch_size"]) == ("batch", 5)

    @pytest.mark.parametrize("mode", [EnumExecutionMode.CONDITIONAL, EnumExecutionMode.STREAMING])
    def test_reserved_modes_raise(self, mode: EnumExecutionMode) -> None:
        with pytest.raises(ModelOnexError):
            execute(ETL, mode)
        with pytest.raises(ModelOnexError):
            process(ETL, execution_mode=mode)


class TestActions:
    """WF-272"""

    def test_every_completed_step_has_one_action(self) -> None:
        """WF-043, X-118"""
        result = execute(ETL)
        assert [action.payload["step_id"] for action in result.actions_emitted] == result.completed_steps

    def test_actions_carry_a_lease_and_the_first_epoch(self) -> None:
        actions = execute(ETL).actions_emitted
        assert len({action.lease_id for action in actions}) == len(ETL)
        assert {action.epoch for action in actions} == {0}

    def test_actions_are_routed_by_type(self) -> None:
        kinds = ("compute", "effect", "reducer", "orchestrator", "custom")
        actions = execute([step(kind[:3], step_type=kind) for kind in kinds]).actions_emitted
        assert [action.action_type for action in actions] == list(EnumActionType)

    def test_dependencies_are_action_ids(self) -> None:
        actions = execute(ETL).actions_emitted
        assert actions[3].dependencies == [action.action_id for action in actions[:3]]
        assert not {one.step_id for one in ETL} & {need for action in actions for need in action.dependencies}


class TestErrors:
    """WF-273"""

    def test_validation_failures_raise(self) -> None:
        with pytest.raises(ModelOnexError, match="Workflow validation failed"):
            process([step("A", "X")])

    def test_a_failed_creation_is_a_failed_result(self) -> None:
        assert execute([unmakeable("A")]).execution_status is EnumWorkflowState.FAILED

    @pytest.mark.parametrize(
        ("error_action", "expected"),
        [
            ("stop", ("", "A", "B")),
            ("continue", ("B", "A", "")),
            ("retry", ("B", "A", "")),
            ("compensate", ("B", "A", "")),
        ],
    )
    def test_the_error_action_decides_what_follows(self, error_action: str, expected: tuple[str, str, str]) -> None:
        assert fates(execute([unmakeable("A", error_action=error_action), step("B")])) == expected


class TestTypedInput:
    """WF-274"""

    def test_a_list_of_steps_is_accepted(self) -> None:
        assert ModelOrchestratorInput(workflow_id=WORKFLOW, steps=ETL).steps == ETL

    def test_dicts_are_not_coerced(self) -> None:
        with pytest.raises(ValidationError):
            ModelOrchestratorInput(workflow_id=WORKFLOW, steps=[ETL[0].model_dump()])  # type: ignore[list-item]
        with pytest.raises(ModelOnexError):
            drive(execute_workflow(definition(), [ETL[0].model_dump()], WORKFLOW))  # type: ignore[list-item]


class TestSkippedSteps:
    """WF-275"""

    def test_disabled_steps_are_listed_as_skipped(self) -> None:
        output = process([step("A", enabled=False), step("B")])
        assert (names(output.skipped_steps), names(output.completed_steps)) == (["A"], ["B"])
        assert output.execution_status == "completed"

    def test_disabled_steps_count_as_satisfied(self) -> None:
        result = execute([step("B", "A"), step("A", enabled=False)])
        assert fates(result) == ("B", "", "A")
        assert result.actions_emitted[0].dependencies == []
