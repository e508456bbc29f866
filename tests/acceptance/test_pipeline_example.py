"""The example that `make run` runs: it is valid, planned in its order, and every part of it does what the next one needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from detent.canon import json_decode, json_encode
from detent.cli.app import run
from detent.contract import Contract, Kind, load
from detent.jobs.payload import ObjectRender, read_payload
from detent.reuse.ingredients import default_shell
from detent.workflow.executor import plan_workflow
from tests.contract.resolved import resolved

PIPELINE = Path(__file__).resolve().parents[2] / "examples" / "pipeline"
ORDER = ["gauges", "formula", "highest", "fetch", "clean", "trend", "report"]


class Drawn:
    """A file as the report gets it."""

    def read_bytes(self) -> bytes:
        return b'<?xml version="1.0"?><svg id="formula"></svg>'


def contract() -> Contract:
    return load((PIPELINE / "pipeline.yaml").read_bytes(), name="pipeline.yaml", base=str(PIPELINE))


def rivers() -> ModuleType:
    spec = spec_from_file_location("examples_pipeline_rivers", PIPELINE / "rivers.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def played(directory: Path, **params: Any) -> dict[str, Any]:
    """The steps' results in a copy of the example, each run in its turn by nothing but Python and sh."""
    shutil.copytree(PIPELINE / "data", directory / "data")
    module, described, results = rivers(), contract(), dict[str, Any]()
    values = {name: param.default for name, param in described.params.items()} | params
    plan = plan_workflow(described.definition, list(described.steps), described.steps[0].step_id)
    steps = {str(step.step_id): step.step_id for step in described.steps}
    for action in plan.actions_emitted:
        step_id = steps[action.payload["step_id"]]
        key, binding = described.keys[step_id], described.bindings[step_id]
        keywords = resolved(dict(binding.keywords), results, values)
        if binding.kind is Kind.JOB:
            results[key] = {"formula.svg": Drawn(), "formula.png": Drawn()}
            continue
        if binding.kind is Kind.SHELL:
            done = subprocess.run(
                [*default_shell(), binding.target], cwd=directory, capture_output=True, text=True, check=True
            )
            results[key] = {"exit": 0, "stdout": done.stdout}
            continue
        if binding.kind is Kind.CODE:
            space: dict[str, Any] = {}
            exec(binding.target, space)
            function = space[binding.entrypoint]
        else:
            function = getattr(module, binding.target.partition(":")[2])
        if binding.map is None:
            value = function(**keywords)
        else:
            name, items = binding.map
            value = [function(**{name: item}, **keywords) for item in resolved(items, results, values)]
        results[key] = json_decode(json_encode(value))
    return results


def test_the_pipeline_is_valid_and_planned_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(PIPELINE / "pipeline.yaml")
    assert run(["validate", path]) == 0
    capsys.readouterr()
    assert run(["plan", path, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [step["key"] for step in document["steps"]] == ORDER
    assert len(document["actions"]) == len(ORDER)


def test_the_pipeline_shows_every_kind_of_step() -> None:
    """But the ordered map, which has an example of its own: `examples/ordered`."""
    bindings = contract().bindings.values()
    assert {binding.kind for binding in bindings} == set(Kind) - {Kind.MAP}
    assert any(binding.map is not None for binding in bindings)
    assert any(binding.kind is Kind.SHELL and binding.inputs and binding.outputs for binding in bindings)


def test_the_formula_is_a_payload_that_the_platform_takes() -> None:
    (payload,) = (binding.target for binding in contract().bindings.values() if binding.kind is Kind.JOB)
    assert isinstance(read_payload(payload), ObjectRender)


def test_the_pipeline_goes_from_raw_levels_to_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = played(tmp_path)
    assert len(results["gauges"]) == len(results["clean"]) == len(results["trend"]) == 6
    assert all(len(series["levels"]) == 96 for series in results["fetch"])
    assert sum(series["dropped"] for series in results["clean"]) == 28
    assert (tmp_path / "out" / "highest.tsv").read_text() == results["highest"]["stdout"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<tr class=") == page.count('class="level" d="M0') == 6
    assert '<svg id="formula">' in page
    assert results["report"] == {"report": "out/report.html", "rising": ["Corvane"], "above_warning": ["Brindle"]}


def test_the_trend_follows_its_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for hours in (6, 48):
        directory = tmp_path / str(hours)
        directory.mkdir()
        monkeypatch.chdir(directory)
        told.append(played(directory, hours=hours))
    short, long = told
    assert short["clean"] == long["clean"]
    assert short["trend"] != long["trend"]


def test_spikes_gaps_and_error_codes_are_dropped() -> None:
    clean = rivers().clean
    series = clean({"gauge": "g", "levels": ["100", "", "-999", "1300", "102", "9999", "x"]}, jump_cm=60)
    assert series == {"gauge": "g", "points": [[0, 100], [4, 102]], "dropped": 5}
