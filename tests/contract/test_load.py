"""Both forms of a contract become the same typed things, in the order they are written."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

import detent.contract
from detent.contract import (
    Binding,
    ContractInvalid,
    Kind,
    Place,
    Retry,
    bindings_digest,
    contract_digest,
    from_document,
    load,
    long_form,
)
from detent.contract.model import PAYLOAD_LIMITS
from detent.contract.shapes import has_pipe
from detent.jobs.payload import Limits
from detent.workflow.models import ModelWorkflowDefinition, ModelWorkflowStep
from detent.workflow.validation import find_problems
from detent.workflow.vocabulary import ModelOnexError
from tests.contract.contracts import FEWER, contract, documents, only

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SHORT = """\
    name: etl
    steps:
      - id: extract_a
        run: {python: etl:extract, with: {source: a}}
      - id: load
        needs: [extract_a]
        run: {shell: "sqlite3 out.db < load.sql"}
"""


def test_the_short_form_becomes_definition_steps_and_bindings() -> None:
    """WF-121, WF-266, X-122, X-142"""
    loaded = contract(SHORT)
    assert type(loaded.definition) is ModelWorkflowDefinition
    assert [type(step) for step in loaded.steps] == [ModelWorkflowStep] * 2
    metadata = loaded.definition.workflow_metadata
    assert (metadata.workflow_name, metadata.execution_mode, str(metadata.workflow_version)) == (
        "etl",
        "parallel",
        "1.0.0",
    )
    first, second = loaded.steps
    assert (first.step_name, first.step_type, second.step_name, second.step_type) == (
        "extract_a",
        "compute",
        "load",
        "effect",
    )
    assert second.depends_on == [first.step_id]
    assert loaded.bindings[first.step_id] == Binding(Kind.PYTHON, "etl:extract", keywords={"source": "a"})
    assert loaded.bindings[second.step_id] == Binding(Kind.SHELL, "sqlite3 out.db < load.sql")
    assert loaded.keys == {first.step_id: "extract_a", second.step_id: "load"}
    assert loaded.places == {first.step_id: Place(3, 5), second.step_id: Place(5, 5)}


def test_what_is_not_written_stays_unset() -> None:
    """X-162, X-101: a default must not look like a value the user wrote"""
    loaded = contract(SHORT)
    assert loaded.steps[0].model_fields_set == {"step_id", "correlation_id", "step_name", "step_type"}
    assert loaded.steps[1].model_fields_set == loaded.steps[0].model_fields_set | {"depends_on"}
    assert "timeout_ms" not in loaded.definition.workflow_metadata.model_fields_set


def test_every_key_of_the_short_form_arrives() -> None:
    """X-164, X-175, X-177"""
    loaded = contract("""\
        name: all
        mode: batch
        description: everything
        version: 2.1.0
        timeout: 1h30m
        params: {rows: 10}
        steps:
          - id: one
            name: Number One
            type: reducer
            run:
              python: pkg/job.py:Thing.make
              with: {rows: {$param: rows}, literal: {$$from: x}}
              args: [1, {$param: rows}]
              version: v7
            inputs: data.csv
            outputs: {db: out.db, log.txt: log.txt}
            env: {LEVEL: 3, MODE: fast, DRY: false, ROWS: {$param: rows}}
            cwd: work
            timeout: 0.25
            retry: {max: 2, on: [RESOURCE_LIMIT]}
            cache: false
            map: {item: [1, 2]}
            enabled: false
            priority: 7
            on_error: continue
            skip_on_failure: true
          - id: two
            needs: one
            run: {code: "def run(x): return x", entrypoint: run, with: {x: 1}}
            inputs: [a, b/*]
            retry: 4
          - id: three
            run: {job: {job_type: render, inputs: {a: {$from: two}}}}
            error_action: retry
        """)
    one, two, three = loaded.steps
    metadata = loaded.definition.workflow_metadata
    assert (metadata.timeout_ms, str(metadata.workflow_version), metadata.description) == (
        5_400_000,
        "2.1.0",
        "everything",
    )
    assert (one.step_name, one.step_type, one.enabled, one.priority) == ("Number One", "reducer", False, 7)
    assert (one.error_action, one.skip_on_failure, one.retry_count) == ("continue", True, 2)
    assert loaded.bindings[one.step_id] == Binding(
        Kind.PYTHON,
        "pkg/job.py:Thing.make",
        arguments=(1, {"$param": "rows"}),
        keywords={"rows": {"$param": "rows"}, "literal": {"$$from": "x"}},
        version="v7",
        inputs=("data.csv",),
        outputs={"db": "out.db", "log.txt": "log.txt"},
        env={"LEVEL": 3, "MODE": "fast", "DRY": False, "ROWS": {"$param": "rows"}},
        cwd="work",
        timeout_ms=250,
        retry=Retry(2, ("RESOURCE_LIMIT",)),
        cache=False,
        map=("item", [1, 2]),
    )
    assert "timeout_ms" not in one.model_fields_set
    assert loaded.bindings[two.step_id].retry == Retry(4, ("INTERNAL_ERROR", "USER_CODE_ERROR"))
    assert (two.retry_count, two.depends_on) == (4, [one.step_id])
    assert loaded.bindings[two.step_id].inputs == ("a", "b/*")
    assert (three.depends_on, three.error_action, three.step_type) == ([two.step_id], "retry", "compute")
    assert loaded.bindings[three.step_id].kind is Kind.JOB


def test_a_reference_adds_a_dependency_after_the_written_ones() -> None:
    """X-177: {$from: step} implies needs, once"""
    loaded = contract("""\
        name: n
        steps:
          - {id: a, run: {shell: x}}
          - {id: b, run: {shell: x}}
          - {id: c, run: {shell: x}}
          - id: d
            needs: [c]
            run: {python: m:f, args: [{$from: b}], with: {x: [{$from: c}], y: {$from: a}, z: {$from: b}}}
            env: {A: {$from: a}}
            map: {i: {$from: b}}
        """)
    assert [loaded.keys[step_id] for step_id in loaded.steps[3].depends_on] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("name", "version", "steps"),
    [("data_processing_pipeline", "1.0.0", 4), ("etl_pipeline", "2.1.0", 5)],
)
def test_the_contracts_own_examples_load(name: str, version: str, steps: int) -> None:
    """WF-265, WF-205, WF-206, WF-109"""
    loaded = load((EXAMPLES / "contracts" / f"{name}.yaml").read_bytes(), name=name)
    metadata = loaded.definition.workflow_metadata
    assert (metadata.workflow_name, str(metadata.workflow_version)) == (name, version)
    assert len(loaded.definition.execution_graph.nodes) == steps
    assert [loaded.keys[step.step_id] for step in loaded.steps] == [
        node.node_id for node in loaded.definition.execution_graph.nodes
    ]


def test_no_example_contract_lies_in_the_package() -> None:
    """WF-109"""
    assert not [*Path(detent.contract.__file__).parents[1].rglob("*.yaml")]


def test_a_long_form_without_steps_is_a_definition_alone() -> None:
    """WF-265"""
    assert from_document({"workflow_coordination": {"workflow_definition": _definition()}}).steps == ()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_every_example_survives_the_way_through_the_long_form(path: Path) -> None:
    """WF-016"""
    _round_trip(load(path.read_bytes(), name=path.name))


@FEWER
@given(documents())
def test_the_long_form_of_a_contract_loads_as_an_equal_one(document: dict[str, Any]) -> None:
    """WF-016, X-101, X-120: set fields stay set, unset ones unset"""
    _round_trip(from_document(document))


@FEWER
@given(documents())
def test_yaml_and_a_document_give_the_same_contract(document: dict[str, Any]) -> None:
    """X-122: the same ids, wherever and however often it is loaded"""
    data = json.dumps(document, indent=1).encode()
    assert load(data) == load(data) == from_document(document)


@FEWER
@given(documents())
def test_what_loads_is_what_the_planner_accepts(document: dict[str, Any]) -> None:
    """WF-250: the loader and the validation of the planner agree"""
    loaded = from_document(document)
    assert find_problems(loaded.definition, loaded.steps) == []


def test_reserved_fields_are_read_kept_and_written() -> None:
    """WF-015, WF-016, WF-126, X-120"""
    definition = _definition() | {
        "compensation_enabled": True,
        "saga_pattern": "orchestrated",
        "checkpoint_enabled": True,
        "execution_graph": {
            "version": _VERSION,
            "nodes": [{"node_id": "n", "node_type": "branch", "branch_condition": {"if": "x > 1"}}],
        },
        "coordination_rules": {
            "version": _VERSION,
            "synchronization_points": ["a", "b"],
            "max_retries": 9,
            "retry_delay_ms": 5,
            "failure_recovery_strategy": "ROLLBACK",
        },
    }
    step = {
        "step_name": "s",
        "step_type": "custom",
        "compensation_action": "undo",
        "checkpoint_required": True,
        "idempotency_key": "k",
    }
    document = {"workflow_coordination": {"workflow_definition": definition, "steps": [step]}}
    loaded = from_document(document)
    assert loaded.definition.saga_pattern == "orchestrated"
    assert loaded.steps[0].compensation_action == "undo"
    written = long_form(loaded)["workflow_coordination"]
    assert written["workflow_definition"] == definition
    assert step.items() <= written["steps"][0].items()
    assert load(json.dumps(document).encode()).definition == loaded.definition


def test_long_steps_are_named_by_id_or_name_or_step_id() -> None:
    """X-142, WF-069: dependencies may be ids or unique keys; equal names stay two steps"""
    first = "00000000-0000-4000-8000-000000000001"
    steps: list[dict[str, Any]] = [
        {"step_name": "same", "step_type": "compute", "step_id": first},
        {"step_name": "same", "step_type": "compute"},
        {"step_name": "Own Name", "step_type": "effect", "depends_on": [first.upper()]},
        {"step_name": "x", "id": "named", "step_type": "effect", "depends_on": ["Own Name", first, "Own Name"]},
        {"step_name": "named", "step_type": "effect", "depends_on": "named"},
    ]
    loaded = from_document({"workflow_coordination": {"workflow_definition": _definition(), "steps": steps}})
    ids = [step.step_id for step in loaded.steps]
    assert [loaded.keys[step_id] for step_id in ids] == [first, str(ids[1]), "Own Name", "named", str(ids[4])]
    assert [step.depends_on for step in loaded.steps] == [[], [], [ids[0]], [ids[2], ids[0], ids[2]], [ids[3]]]
    _round_trip(loaded)


def test_a_long_step_may_carry_a_binding_and_need_not() -> None:
    """X-023, X-175"""
    steps = [
        {
            "step_name": "a",
            "step_type": "effect",
            "run": {"shell": "make"},
            "timeout": "10m",
            "retry": 2,
            "timeout_ms": 500,
        },
        {"step_name": "b", "step_type": "compute"},
    ]
    loaded = from_document({"workflow_coordination": {"workflow_definition": _definition(), "steps": steps}})
    assert loaded.bindings == {loaded.steps[0].step_id: Binding(Kind.SHELL, "make", timeout_ms=600_000, retry=Retry(2))}
    assert (loaded.steps[0].timeout_ms, loaded.steps[0].retry_count) == (500, 2)
    _round_trip(loaded)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("bash", ("bash", "-euo", "pipefail", "-c")),
        ("/usr/bin/zsh", ("/usr/bin/zsh", "-euo", "pipefail", "-c")),
        ("sh", ("sh", "-eu", "-c")),
        ("sh -eu", ("sh", "-eu", "-c")),
        ("bash -c", ("bash", "-c")),
        ("fish", ("fish", "-c")),
        ("'/opt/my shell/sh' -e", ("/opt/my shell/sh", "-e", "-c")),
        (["bash", "-c"], ("bash", "-c")),
        (["node", "-e"], ("node", "-e")),
    ],
)
def test_a_shell_is_written_as_text_or_as_its_words(written: object, words: tuple[str, ...]) -> None:
    """X-189: a bare name is strict, a list is taken as it is; the long form gives the same contract again"""
    step = {"id": "a", "run": {"shell": "make"}}
    long_step = {**step, "step_name": "a", "step_type": "effect"}
    of_step = from_document({"name": "n", "steps": [{**step, "shell": written}]})
    of_contract = from_document({"name": "n", "shell": written, "steps": [step]})
    long = from_document(
        {"workflow_coordination": {"workflow_definition": _definition(), "shell": written, "steps": [long_step]}}
    )
    for loaded in (of_step, of_contract, long):
        assert [one.shell for one in loaded.bindings.values()] == [words]
        _round_trip(loaded)


def test_the_shell_of_a_step_wins_over_the_contracts_and_other_kinds_have_none() -> None:
    """X-189"""
    steps = [
        {"id": "own", "shell": "sh", "run": {"shell": "make"}},
        {"id": "theirs", "run": {"shell": "make"}},
        {"id": "function", "run": {"python": "m:f"}},
    ]
    loaded = from_document({"name": "n", "shell": "zsh -e", "steps": steps})
    assert [one.shell for one in loaded.bindings.values()] == [("sh", "-eu", "-c"), ("zsh", "-e", "-c"), ()]


@pytest.mark.parametrize(
    ("command", "piped"),
    [
        ("a | b", True),
        ("a |& b", True),
        ("a\n| b", True),
        ('x="$(a | b)"', True),
        ('x="`a | b`"', True),
        ("x=$(a | b)", True),
        ("echo it\\'s | b", True),
        ("a || b", False),
        ("echo 'a | b'", False),
        ('echo "a | b"', False),
        ("echo a # and | b", False),
        ("echo a#b | c", True),
        ("echo a \\| b", False),
        ("echo a >| b", False),
    ],
)
def test_a_pipe_is_told_from_quotes_comments_and_alternatives(command: str, piped: bool) -> None:
    """X-189"""
    assert has_pipe(command) is piped


def test_ids_follow_from_the_contract_and_the_position() -> None:
    """X-122, X-011: UUIDv8, the same at every load; a vector, so that it stays so on other machines and later"""
    loaded = contract(SHORT)
    assert contract(SHORT) == loaded
    assert [str(step.step_id) for step in loaded.steps] == [STEP_0, STEP_1]
    assert str(loaded.steps[0].correlation_id) == CORRELATION_0
    assert all(step.step_id.version == 8 and step.correlation_id.version == 8 for step in loaded.steps)
    assert contract_digest(loaded) == CONTRACT_DIGEST
    assert bindings_digest(loaded) == BINDINGS_DIGEST


STEP_0 = "24bb1277-b113-8894-8274-cd20aaf93283"
STEP_1 = "95b9bcf8-d237-883b-9b77-da6e59b42244"
CORRELATION_0 = "e60b12ab-d1ad-8cb1-abee-f73335b547bf"
CONTRACT_DIGEST = "sha256:d6b163e1f61a3b437b717e9fce0c9bdd93c6a277074c1368903ef62d583260c1"
BINDINGS_DIGEST = "sha256:e23cbbae18d00433f97cec7a24cb39dd7c206bbb1519255c15e4a4223b34c7f7"


def test_a_binding_changes_its_own_digest_and_no_id() -> None:
    edited = contract(SHORT.replace("source: a", "source: b"))
    original = contract(SHORT)
    assert contract_digest(edited) == contract_digest(original)
    assert bindings_digest(edited) != bindings_digest(original)
    assert edited.steps == original.steps


@pytest.mark.parametrize(
    "change",
    [
        ("name: etl", "name: other"),
        ("needs: [extract_a]\n", "enabled: true\n"),
        ("name: etl", "name: etl\n    params: {a: 1}"),
    ],
    ids=["name", "dependency", "params"],
)
def test_what_is_planned_changes_the_contracts_digest(change: tuple[str, str]) -> None:
    edited, original = contract(SHORT.replace(*change)), contract(SHORT)
    assert contract_digest(edited) != contract_digest(original)
    assert edited.steps[0].step_id != original.steps[0].step_id


def test_where_a_contract_lies_is_no_part_of_it() -> None:
    data = b"name: a\nsteps: [{id: x, run: {shell: y}}]\n"
    here, there = load(data, name="here", base="/a"), load(data, name="there", base="/b")
    assert here == there
    assert (here.name, there.base) == ("here", "/b")
    assert contract_digest(here) == contract_digest(there)


def test_a_document_is_copied_not_borrowed() -> None:
    document = {"name": "a", "steps": [{"id": "x", "run": {"python": "m:f", "with": {"rows": [1]}}}]}
    before = copy.deepcopy(document)
    loaded = from_document(document)
    loaded.bindings[loaded.steps[0].step_id].keywords["rows"].append(2)
    assert document == before


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "a", "steps": [{"id": "x", "run": {"python": "m:f", "args": (1,)}}]}, "is a tuple"),
        ({"name": "a", "steps": [{"id": "x", "run": {"python": "m:f", "with": {"x": float("nan")}}}]}, "is nan"),
        ({"name": "a", 1: 2}, "keys must be text"),
        ({"name": "a", "steps": [{"id": "x", "run": {}}]}, "steps[0].run: run says nothing to run"),
        (["name"], "a contract is a mapping"),
    ],
)
def test_a_bad_document_is_refused_by_path(document: Any, message: str) -> None:
    with pytest.raises(ContractInvalid) as caught:
        from_document(document, name="flow")
    assert message in str(caught.value)
    assert caught.value.findings[0].line == 0


def test_an_invalid_contract_is_the_contracts_own_error() -> None:
    """X-113, WF-249: ModelOnexError with the reasons in its context"""
    with pytest.raises(ModelOnexError) as caught:
        load(b"name: a\nsteps: 5\n", name="f.yaml")
    assert caught.value.code == "VALIDATION_ERROR"
    assert caught.value.context == {"errors": ["f.yaml:2:8: steps must be a list, not 5"]}
    assert caught.value.hint == "begin each step with `- id:`"


def test_loading_imports_and_runs_nothing_of_the_users() -> None:
    loaded = contract("""\
        name: n
        steps:
          - {id: a, run: {python: no_such_module_anywhere:f}}
          - {id: b, run: {code: "raise SystemExit(1)\\ndef main(): pass"}}
        """)
    assert len(loaded.steps) == 2


def test_the_planner_never_imports_the_loader() -> None:
    """WF-004, WF-121, WF-108"""
    for path in (Path(detent.contract.__file__).parents[1] / "workflow").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not [name for name in names if name.startswith(("yaml", "detent.contract"))], path


def test_an_id_that_looks_like_another_steps_id_is_refused() -> None:
    finding = only("name: n\nsteps:\n  - {id: a0000000-0000-4000-8000-000000000001, run: {shell: x}}\n")
    assert finding.message.endswith("looks like the step_id of another step")


_VERSION = {"major": 1, "minor": 0, "patch": 0}


def _definition() -> dict[str, Any]:
    metadata = {"version": _VERSION, "workflow_name": "w", "workflow_version": _VERSION, "description": ""}
    return {"version": _VERSION, "workflow_metadata": metadata, "execution_graph": {"version": _VERSION}}


def _round_trip(loaded: Any) -> None:
    written = long_form(loaded)
    again = from_document(written)
    assert again == loaded
    assert [step.model_fields_set for step in again.steps] == [step.model_fields_set for step in loaded.steps]
    assert again.definition.model_fields_set == loaded.definition.model_fields_set
    assert again.definition.workflow_metadata.model_fields_set == loaded.definition.workflow_metadata.model_fields_set
    assert long_form(again) == written
    assert contract_digest(again) == contract_digest(loaded)
    assert bindings_digest(again) == bindings_digest(loaded)
    assert all(isinstance(step.step_id, UUID) for step in again.steps)


UNUSUAL: dict[str, dict[str, Any]] = {
    "a step": {"steps": [{"max_memory_mb": 64, "parallel_group": "x", "idempotency_key": "k"}]},
    "the rules": {"rules": {"version": {"major": 1, "minor": 0, "patch": 0}, "parallel_execution_allowed": False}},
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_a_contract_that_says_unusual_things_is_the_same_by_way_of_the_models(what: str) -> None:
    """X-101, X-162: outline and plain steps say what the models say, and both are written down the same."""
    document = long_form(contract(SHORT))
    coordination: Any = document["workflow_coordination"]
    for step, more in zip(coordination["steps"], UNUSUAL[what].get("steps", ()), strict=False):
        step.update(more)
    if "rules" in UNUSUAL[what]:
        coordination["workflow_definition"]["coordination_rules"] = UNUSUAL[what]["rules"]
    loaded = from_document(document)
    assert long_form(loaded) == document
    assert from_document(long_form(loaded)) == loaded
    assert loaded.definition.model_dump(mode="json", exclude_unset=True) == loaded.outline.document
    assert [step.document() for step in loaded.plain_steps] == [
        step.model_dump(mode="json", exclude_unset=True) for step in loaded.steps
    ]
    assert loaded.outline.parallel_allowed is (what != "the rules")
    assert loaded != contract(SHORT)
    assert contract_digest(loaded) != contract_digest(contract(SHORT))


def test_the_models_of_a_contract_are_built_once_and_say_the_same() -> None:
    loaded = contract(SHORT)
    assert loaded.steps is loaded.steps
    assert loaded.definition is loaded.definition
    assert isinstance(loaded.definition, ModelWorkflowDefinition)
    assert all(isinstance(step, ModelWorkflowStep) for step in loaded.steps)
    assert [step.document() for step in loaded.plain_steps] == [
        step.model_dump(mode="json", exclude_unset=True) for step in loaded.steps
    ]
    assert find_problems(loaded.definition, loaded.steps) == []


def test_a_payload_that_says_nothing_has_the_limits_of_the_job_contract() -> None:
    """X-019: written down twice, because a contract is loaded without the models of jobs."""
    assert {name: getattr(Limits(), name) for name in PAYLOAD_LIMITS} == PAYLOAD_LIMITS


def test_a_recorded_contract_may_declare_outputs_of_a_sandboxed_step() -> None:
    """They are refused today; a run that was begun with them is still read and retried."""
    document = {"name": "a", "steps": [{"id": "b", "run": {"code": "def main(): ..."}, "outputs": ["log.txt"]}]}
    with pytest.raises(ContractInvalid, match="outputs cannot be used with run code"):
        from_document(document)
    (binding,) = from_document(document, recorded=True).bindings.values()
    assert binding.outputs == {"log.txt": "log.txt"}
