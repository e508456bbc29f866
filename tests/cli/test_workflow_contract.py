"""The workflow contract at the command line: what `validate` refuses, what `plan` emits, what `run` makes of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from tests.cli.contracts import Desk, desk
from tests.cli.project import Project, detent_home, project

__all__ = ["desk", "detent_home", "project"]

LONG = """\
workflow_coordination:
  workflow_definition:
    version: {major: 1, minor: 0, patch: 0}
    workflow_metadata:
      version: {major: 1, minor: 0, patch: 0}
      workflow_version: {major: 1, minor: 2, patch: 3}
      workflow_name: long
      description: a contract in its long form
      execution_mode: parallel
    execution_graph: {version: {major: 1, minor: 0, patch: 0}, nodes: []}
  steps:
    - {id: report, step_name: same, step_type: effect, depends_on: [load, off], run: {shell: echo 1}}
    - {id: load, step_name: same, step_type: compute, run: {shell: echo 2}}
    - {id: off, step_name: off, step_type: effect, enabled: false, depends_on: [load], run: {shell: echo 3}}
    - {id: alone, step_name: alone, step_type: reducer, run: {shell: echo 4}}
"""


def with_field(text: str, field: str) -> str:
    """The contract with another field in the step `load`."""
    return text.replace("step_type: compute,", f"step_type: compute, {field},")


def plan(desk: Desk, text: str = LONG) -> dict[str, Any]:
    result = desk("plan", desk.write(text), "-o", "json")
    assert result.code == 0, result.out
    document: dict[str, Any] = result.document
    return document


def faults(desk: Desk, text: str) -> list[str]:
    """What `validate` says of a contract; it has to refuse it."""
    result = desk("validate", desk.write(text), "-o", "json")
    assert result.code == 2
    return [finding["message"] for finding in result.document["files"][0]["findings"]]


def actions(document: dict[str, Any]) -> list[dict[str, Any]]:
    return list(document["actions"])


def without_ids(document: dict[str, Any]) -> list[tuple[str, str, int, list[str]]]:
    """What a plan emits, told without the ids that depend on the contract's bytes."""
    names = {action["action_id"]: action["payload"]["step_id"] for action in actions(document)}
    keys = {step["step_id"]: step["key"] for step in document["steps"]}
    return [
        (
            keys[action["payload"]["step_id"]],
            action["target_node_type"],
            action["priority"],
            [keys[names[other]] for other in action["dependencies"]],
        )
        for action in actions(document)
    ]


def test_a_plan_emits_one_action_for_each_enabled_step_wave_by_wave(desk: Desk) -> None:
    """WF-001, WF-037, WF-045, WF-047, WF-049, WF-225, WF-270, WF-272: as declared inside a wave."""
    assert without_ids(plan(desk)) == [
        ("load", "NodeCompute", 5, []),
        ("alone", "NodeReducer", 5, []),
        ("report", "NodeEffect", 5, ["load"]),
    ]


def test_a_disabled_step_is_satisfied_without_an_action(desk: Desk) -> None:
    """WF-091, WF-188, WF-275: its dependents do not wait for it."""
    document = plan(desk)
    (off,) = [step for step in document["steps"] if step["key"] == "off"]
    assert (off["enabled"], off["action_id"], off["target"]) == (False, None, None)
    assert off["step_id"] not in {action["payload"]["step_id"] for action in actions(document)}


def test_an_action_has_exactly_the_fields_of_the_contract(desk: Desk) -> None:
    """WF-054, WF-057, WF-154..WF-158, WF-161, WF-162, WF-164, WF-165, WF-240, WF-241, WF-243"""
    for action in actions(plan(desk)):
        assert set(action) == {
            *("action_id", "action_type", "target_node_type", "payload", "dependencies", "priority", "timeout_ms"),
            *("lease_id", "epoch", "retry_count", "metadata", "created_at"),
        }
        assert set(action["payload"]) == {"workflow_id", "step_id", "step_name"}
        assert set(action["metadata"]) == {"step_name", "correlation_id"}
        assert (action["epoch"], action["timeout_ms"], action["retry_count"]) == (0, 30000, 3)
        for value in (action["action_id"], action["lease_id"], *action["payload"].values(), *action["dependencies"]):
            assert value == "same" or value in ("off", "alone") or UUID(value).version in (4, 8)


def test_dependencies_of_actions_are_ids_of_actions(desk: Desk) -> None:
    """WF-158, WF-272: never ids of steps."""
    load, _, report = actions(plan(desk))
    assert report["dependencies"] == [load["action_id"]]
    assert load["action_id"] != load["payload"]["step_id"]


@pytest.mark.parametrize(
    ("step_type", "action_type", "target"),
    [
        ("compute", "compute", "NodeCompute"),
        ("effect", "effect", "NodeEffect"),
        ("reducer", "reduce", "NodeReducer"),
        ("orchestrator", "orchestrate", "NodeOrchestrator"),
        ("custom", "custom", "NodeCustom"),
        ("parallel", "custom", "NodeCustom"),
    ],
)
def test_the_type_of_a_step_decides_where_its_action_goes_and_nothing_else(
    desk: Desk, step_type: str, action_type: str, target: str
) -> None:
    """WF-079, WF-081, WF-185, WF-209, WF-237, WF-239"""
    document = plan(desk, LONG.replace("step_type: compute", f"step_type: {step_type}"))
    load = actions(document)[0]
    assert (load["action_type"], load["target_node_type"]) == (action_type, target)
    assert [key for key, *_ in without_ids(document)] == ["load", "alone", "report"]


@pytest.mark.parametrize(
    "field",
    [
        "order_index: 9",
        "parallel_group: first*",
        "compensation_action: undo",
        "checkpoint_required: true",
        "idempotency_key: once",
        "max_parallel_instances: 7",
    ],
)
def test_a_field_without_effect_changes_no_action(desk: Desk, field: str) -> None:
    """WF-008, WF-015, WF-017, WF-050..WF-053, WF-124, WF-126, WF-221: kept in the contract, ignored by the planner."""
    document = plan(desk, with_field(LONG, field))
    assert without_ids(document) == without_ids(plan(desk))
    name, _, value = field.partition(": ")
    (load,) = [step for step in document["contract"]["workflow_coordination"]["steps"] if step["id"] == "load"]
    assert str(load[name]).lower() == value
    assert not [name for action in actions(document) for name in action["payload"] if name == "order_index"]


def test_reserved_parts_of_a_contract_are_kept_as_they_are_written(desk: Desk) -> None:
    """WF-016, WF-020, WF-029, WF-122, WF-123, WF-173, WF-204, WF-205: a graph that contradicts the steps changes nothing."""
    node = "{node_id: ghost, node_type: effect, colour: red}"
    rules = "coordination_rules: {version: {major: 1, minor: 0, patch: 0}, synchronization_points: [x], max_retries: 9}"
    text = LONG.replace("nodes: []", f"nodes: [{node}]").replace(
        "  steps:\n", f"    {rules}\n    compensation_enabled: true\n    saga_pattern: any\n  steps:\n", 1
    )
    document = plan(desk, text)
    definition = document["contract"]["workflow_coordination"]["workflow_definition"]
    assert definition["execution_graph"]["nodes"][0]["colour"] == "red"
    assert definition["coordination_rules"]["synchronization_points"] == ["x"]
    assert (definition["compensation_enabled"], definition["saga_pattern"]) == (True, "any")
    assert without_ids(document) == without_ids(plan(desk))


def test_the_order_of_steps_is_kept_as_written(desk: Desk) -> None:
    """WF-039, WF-041, WF-042, WF-048, WF-063: in the contract; dependencies go by declaration, however they are listed."""
    document = plan(desk, LONG.replace("depends_on: [load, off]", "depends_on: [alone, load]"))
    written = [step["id"] for step in document["contract"]["workflow_coordination"]["steps"]]
    assert written == ["report", "load", "off", "alone"]
    assert without_ids(document)[-1] == ("report", "NodeEffect", 5, ["load", "alone"])


def test_equal_step_names_are_no_identity(desk: Desk) -> None:
    """WF-066, WF-069: two steps called alike are two actions."""
    document = plan(desk)
    same = [action for action in actions(document) if action["payload"]["step_name"] == "same"]
    assert len({action["action_id"] for action in same}) == 2
    assert len({action["lease_id"] for action in same}) == 2


@pytest.mark.parametrize("mode", ["sequential", "parallel", "batch"])
def test_every_mode_emits_the_same_actions(desk: Desk, mode: str) -> None:
    """WF-005, WF-179, WF-208, WF-228, WF-229, WF-271"""
    document = plan(desk, LONG.replace("execution_mode: parallel", f"execution_mode: {mode}"))
    assert without_ids(document) == without_ids(plan(desk))


def test_the_same_contract_gives_the_same_plan(desk: Desk) -> None:
    """WF-113: the ids of the actions included."""
    assert actions(plan(desk)) == actions(plan(desk))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("timeout_ms: 99", "a timeout must be at least 100 ms, got 99"),
        ("timeout_ms: 300001", "timeout_ms must be at most 300000, got 300001"),
        ("retry_count: 11", "retry_count must be at most 10, got 11"),
        ("retry_count: -1", "retry_count must be at least 0, got -1"),
        ("max_memory_mb: 0", "max_memory_mb must be at least 1, got 0"),
        ("max_memory_mb: 32769", "max_memory_mb must be at most 32768, got 32769"),
        ("max_cpu_percent: 0", "max_cpu_percent must be at least 1, got 0"),
        ("max_cpu_percent: 101", "max_cpu_percent must be at most 100, got 101"),
        ("order_index: -1", "order_index must be at least 0, got -1"),
        ("max_parallel_instances: 0", "max_parallel_instances must be at least 1, got 0"),
        ("max_parallel_instances: 101", "max_parallel_instances must be at most 100, got 101"),
        ("error_action: explode", "error_action cannot be 'explode'"),
        ("unknown: 1", "unknown key 'unknown'"),
        ("depends_on: [ghost]", "step 'load' needs 'ghost', which is not a step"),
        ("enabled: maybe", "enabled must be true or false"),
    ],
)
def test_a_field_of_a_step_outside_its_bounds_is_refused_by_name(desk: Desk, field: str, message: str) -> None:
    """WF-075, WF-186, WF-187, WF-191..WF-193, WF-195, WF-198, WF-215, WF-249, WF-250"""
    assert any(message in found for found in faults(desk, with_field(LONG, field)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("execution_mode: parallel", "execution_mode: conditional", "execution mode 'conditional' is reserved"),
        ("execution_mode: parallel", "execution_mode: streaming", "execution mode 'streaming' is reserved"),
        ("step_type: compute", "step_type: conditional", "step type 'conditional' is reserved"),
        ("step_type: compute", "step_type: magic", "magic"),
        ("workflow_name: long", 'workflow_name: ""', "workflow_name must not be empty"),
        ("{major: 1, minor: 2, patch: 3}", "{major: -1, minor: 2, patch: 3}", "major must be at least 0"),
        ("{major: 1, minor: 2, patch: 3}", "{major: 1.5, minor: 2, patch: 3}", "major"),
        ("      description: a contract in its long form\n", "", "description"),
        ("      workflow_name: long\n", "", "workflow_name"),
        ("    execution_graph: {version: {major: 1, minor: 0, patch: 0}, nodes: []}\n", "", "execution_graph"),
        ("description: a", "timeout_ms: 999\n      description: a", "timeout"),
        ("description: a", "timeout_ms: -5\n      description: a", "timeout"),
        ("step_name: alone", 'step_name: ""', "step_name"),
        ("step_name: alone", f"step_name: {'x' * 201}", "step_name"),
        ("id: alone", "id: load", "load"),
    ],
)
def test_a_contract_that_breaks_a_rule_is_refused_before_anything_runs(
    desk: Desk, old: str, new: str, message: str
) -> None:
    """WF-006, WF-080, WF-125, WF-171..WF-173, WF-176..WF-180, WF-184, WF-206, WF-216, WF-217, WF-219, WF-220, WF-253"""
    assert old in LONG
    assert any(message in found for found in faults(desk, LONG.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("run: {shell: echo 2}", "depends_on: [load], run: {shell: echo 2}"),
        ("run: {shell: echo 2}", "depends_on: [report], run: {shell: echo 2}"),
        ("run: {shell: echo 4}", "depends_on: [report], run: {shell: echo 4}"),
    ],
)
def test_a_circle_of_steps_is_found_before_execution(desk: Desk, old: str, new: str) -> None:
    """WF-035, WF-214, WF-234, WF-269"""
    text = LONG.replace(old, new).replace("depends_on: [load, off]", "depends_on: [load, off, alone]")
    assert any("in a circle" in found or "needs itself" in found for found in faults(desk, text))


def test_a_disabled_step_hides_no_circle(desk: Desk) -> None:
    """WF-086, WF-087, WF-218, WF-269: whichever steps are switched off, the rest has to be without one."""
    text = LONG.replace("step_type: compute,", "step_type: compute, depends_on: [off],")
    assert any("in a circle" in found for found in faults(desk, text))


CHAIN = """\
name: chain
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: 3}}}
  - {id: broken, run: {python: "tasks:fragile", with: {values: {$from: numbers}}}, on_error: continue}
  - {id: after, needs: [broken], run: {python: "tasks:numbers", with: {count: 1}}}
  - {id: beside, run: {python: "tasks:total", with: {values: {$from: numbers}}}}
"""


def test_a_job_is_made_only_when_everything_before_it_succeeded(project: Project) -> None:
    """WF-092, WF-099, WF-231, WF-233, WF-251, WF-282, WF-284: a dependent of a failed step never gets one."""
    document = project.run(project.write("chain.yaml", CHAIN), code=1)
    states = {step["step"]: step["state"] for step in document["step_list"]}
    assert (states["numbers"], states["broken"], states["beside"]) == ("succeeded", "failed", "succeeded")
    assert states["after"] not in ("succeeded", "running")
    made = {job["step"]: job["job_id"] for job in project.json("list", "--jobs")}
    assert set(made) == {"numbers", "broken", "beside"}
    order = project.json("show", made["beside"])["order"]
    assert (order["target"], set(order["keywords"])) == ("tasks:total", {"values"})
    assert document["status"] == "failed"


def test_a_failure_stops_a_run_unless_its_step_says_otherwise(project: Project) -> None:
    """WF-098, WF-232: what had succeeded stays succeeded."""
    text = CHAIN.replace(", on_error: continue", "").replace("- {id: beside,", "- {id: beside, needs: [after],")
    document = project.run(project.write("chain.yaml", text), code=1)
    states = {step["step"]: step["state"] for step in document["step_list"]}
    assert (states["numbers"], states["broken"]) == ("succeeded", "failed")
    assert {states["after"], states["beside"]} <= {"skipped", "failed"}
    assert {job["step"] for job in project.json("list", "--jobs")} == {"numbers", "broken"}


def test_no_more_steps_run_at_once_than_the_run_is_allowed(project: Project) -> None:
    """WF-283"""
    steps = "".join(f'  - {{id: s{n}, run: {{python: "tasks:numbers", with: {{count: {n}}}}}}}\n' for n in range(6))
    project.write("wide.yaml", f"name: wide\nsteps:\n{steps}")
    document = project.json("run", "wide.yaml", "-w", "3", "--max-parallel", "1")
    spans = sorted(
        (job["records"][1]["tick"], job["records"][2]["tick"])
        for job in (project.json("show", row["job_id"]) for row in project.json("list", "--jobs"))
    )
    assert document["status"] == "succeeded"
    assert len(spans) == 6
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
