"""Every example is planned, in exactly this order, and what it names is there to be called."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from detent.cli.app import run
from detent.contract import Contract, Kind, load
from detent.workflow.executor import plan_workflow
from tests.contract.resolved import resolved

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

ORDERS = {
    "workflows/line.yaml": [["fetch"], ["check"], ["enrich"], ["store"]],
    "workflows/extracts.yaml": [["extract_shop", "extract_phone", "extract_market"], ["merge"], ["load"]],
    "workflows/errors.yaml": [["fetch"], ["check", "translate", "tidy"], ["store"]],
    "etl/weather.yaml": [
        ["stations"],
        ["extract"],
        ["clean"],
        ["daily"],
        ["spread", "load"],
        ["report"],
        ["count"],
    ],
    "sweep/sweep.yaml": [["points", "grid"], ["train"], ["best"]],
    "ordered/words.yaml": [["counts"], ["total"]],
}
"""Wave by wave. The planner says only the order; the waves are written out here for the reader."""


def contract_of(example: str) -> Contract:
    path = EXAMPLES / example
    return load(path.read_bytes(), name=example, base=str(path.parent))


def module_of(directory: Path, name: str) -> Any:
    """A module of an example, loaded from its file."""
    spec = importlib.util.spec_from_file_location(f"examples_{directory.name}_{name}", directory / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["plan", *arguments, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_no_example_is_left_out() -> None:
    directories = {example.partition("/")[0] for example in ORDERS}
    found = [path for directory in directories for path in (EXAMPLES / directory).glob("*.yaml")]
    assert sorted(ORDERS) == sorted(str(path.relative_to(EXAMPLES)) for path in found)


@pytest.mark.parametrize("example", ORDERS)
def test_an_example_is_planned_in_its_order(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    """WF-036, WF-038, WF-044, WF-267"""
    document = planned(capsys, str(EXAMPLES / example))
    expected = [key for wave in ORDERS[example] for key in wave]
    enabled = [step for step in document["steps"] if step["enabled"]]
    assert [step["key"] for step in enabled] == expected
    assert [action["action_id"] for action in document["actions"]] == [step["action_id"] for step in enabled]
    assert run(["validate", str(EXAMPLES / example)]) == 0


def test_the_four_steps_of_the_line_follow_one_another_within_their_limits(capsys: pytest.CaptureFixture[str]) -> None:
    """WF-265, WF-266, WF-267"""
    document = planned(capsys, str(EXAMPLES / "workflows" / "line.yaml"))
    actions = document["actions"]
    assert [action["timeout_ms"] for action in actions] == [10_000, 5_000, 15_000, 10_000]
    assert [action["target_node_type"] for action in actions] == [
        "NodeEffect",
        "NodeCompute",
        "NodeCompute",
        "NodeEffect",
    ]
    assert [action["dependencies"] for action in actions] == [[], *([before["action_id"]] for before in actions[:-1])]


def test_the_merge_depends_on_all_three_extracts(capsys: pytest.CaptureFixture[str]) -> None:
    """WF-227, WF-242, WF-267"""
    *extracts, merge, load_action = planned(capsys, str(EXAMPLES / "workflows" / "extracts.yaml"))["actions"]
    assert [action["dependencies"] for action in extracts] == [[], [], []]
    assert merge["dependencies"] == [action["action_id"] for action in extracts]
    assert load_action["dependencies"] == [merge["action_id"]]


def test_mixed_error_handling_keeps_what_each_step_says(capsys: pytest.CaptureFixture[str]) -> None:
    """WF-083, WF-096, WF-189, WF-267, X-164"""
    document = planned(capsys, str(EXAMPLES / "workflows" / "errors.yaml"))
    contract = contract_of("workflows/errors.yaml")
    said = {contract.keys[step.step_id]: step for step in contract.steps}
    assert [said[key].error_action for key in ("check", "translate")] == ["stop", "continue"]
    assert "error_action" not in said["store"].model_fields_set
    assert said["tidy"].skip_on_failure is True
    steps = {step["key"]: step for step in document["steps"]}
    assert steps["check"]["retry"] == {"max": 3, "on": ["INTERNAL_ERROR", "USER_CODE_ERROR"]}
    assert steps["store"]["retry"] == {"max": 5, "on": ["USER_CODE_ERROR", "INTERNAL_ERROR", "DEPENDENCY_ERROR"]}
    assert (steps["archive"]["enabled"], steps["archive"]["action_id"]) == (False, None)


def functions(example: str) -> Iterator[tuple[str, Any, Any]]:
    contract = contract_of(example)
    for step in contract.steps:
        binding = contract.bindings[step.step_id]
        if binding.kind is Kind.PYTHON:
            module, _, name = binding.target.partition(":")
            yield contract.keys[step.step_id], binding, getattr(module_of((EXAMPLES / example).parent, module), name)


@pytest.mark.parametrize("example", ORDERS)
def test_every_function_an_example_names_takes_what_it_is_given(example: str) -> None:
    """What `validate` never looks at, because it imports nothing."""
    for key, binding, function in functions(example):
        given = dict.fromkeys((*binding.keywords, *(() if binding.map is None else (binding.map[0],))))
        inspect.signature(function).bind(*binding.arguments, **given), key


# -- the two real ones do real work --------------------------------------------------------------------------------------


def played(example: str, params: dict[str, Any]) -> dict[str, Any]:
    """The results of an example's steps, each called in its turn as plain Python; shell steps are left out."""
    contract = contract_of(example)
    named = {key: function for key, _, function in functions(example)}
    results: dict[str, Any] = {}
    values = {name: param.default for name, param in contract.params.items()} | params
    plan = plan_workflow(contract.definition, list(contract.steps), contract.steps[0].step_id)
    steps = {str(step.step_id): step for step in contract.steps}
    for action in plan.actions_emitted:
        step = steps[action.payload["step_id"]]
        key, binding = contract.keys[step.step_id], contract.bindings[step.step_id]
        if binding.kind is Kind.SHELL:
            continue
        function = named.get(key)
        if binding.kind is Kind.CODE:
            space: dict[str, Any] = {}
            exec(binding.target, space)
            function = space[binding.entrypoint]
        assert function is not None
        keywords = resolved(dict(binding.keywords), results, values)
        if binding.map is None:
            value = function(**keywords)
        else:
            name, items = binding.map
            value = [function(**{name: item}, **keywords) for item in resolved(items, results, values)]
        results[key] = json.loads(json.dumps(value, allow_nan=False))
    return results


def test_the_etl_cleans_averages_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").symlink_to(EXAMPLES / "etl" / "data")
    monkeypatch.chdir(tmp_path)
    results = played("etl/weather.yaml", {})
    assert results["stations"] == ["north", "harbour", "hill"]
    assert [len(readings) for readings in results["extract"]] == [40, 40, 40]
    assert [len(readings) for readings in results["clean"]] == [39, 39, 38]
    assert results["load"] == len(results["daily"]) == 15
    assert list(results["spread"]) == ["harbour", "hill", "north"]
    with closing(sqlite3.connect("out/weather.db")) as database:
        assert database.execute("SELECT count(*) FROM days").fetchone() == (15,)
    assert Path(results["report"]).read_text(encoding="utf-8").count("2026-03-") == 15


def test_the_etl_takes_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    """X-177"""
    document = planned(capsys, str(EXAMPLES / "etl" / "weather.yaml"), "-p", "highest=35")
    clean = next(step for step in document["steps"] if step["key"] == "clean")
    assert clean["runs"] == "python etl:clean(lowest=-60.0, highest=35) for each readings in <extract>"


def test_the_sweep_is_a_flow_a_file_and_a_plain_function() -> None:
    """X-185"""
    module = module_of(EXAMPLES / "sweep", "sweep")
    contract = module.sweep.contract()
    keys = [contract.keys[step.step_id] for step in contract.steps]
    assert keys == ["points", "train", *(f"train-{number}" for number in range(2, 7)), "best"]
    plan = plan_workflow(contract.definition, list(contract.steps), contract.steps[0].step_id)
    assert [action.metadata["step_name"] for action in plan.actions_emitted] == keys
    assert contract.result == {"$from": "best"}
    assert module.sweep()["rate"] == 0.5
    assert played("sweep/sweep.yaml", {})["best"] == module.sweep()


def test_the_sweeps_shape_follows_its_arguments() -> None:
    module = module_of(EXAMPLES / "sweep", "sweep")
    assert len(module.sweep.contract(rates=(0.1,), decays=(0.0,)).steps) == 3
