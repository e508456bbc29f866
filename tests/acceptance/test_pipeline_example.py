"""The example that `make run` runs: it is valid, planned in its order, and every part of it does what the next one needs."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from detent.cli.app import run
from detent.contract import Contract, Kind, load
from detent.jobs.payload import ObjectRender, read_payload
from tests.cli.project import Project, detent_home, project
from tests.cli.submitted import needs_sandbox

__all__ = ["detent_home", "project"]

PIPELINE = Path(__file__).resolve().parents[2] / "examples" / "pipeline"
ORDER = ["gauges", "formula", "highest", "fetch", "clean", "trend", "report"]


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


@pytest.fixture
def copied(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example, as the working directory."""
    copy = project.directory / "pipeline"
    shutil.copytree(PIPELINE, copy, ignore=shutil.ignore_patterns(".detent", "out", "__pycache__"))
    monkeypatch.chdir(copy)
    return copy


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


@needs_sandbox
def test_the_pipeline_goes_from_raw_levels_to_a_page_with_a_formula_that_was_drawn(
    project: Project, copied: Path
) -> None:
    """JOB-008: the whole pipeline in a process of its own, its cell and its renderer in the real sandbox."""
    ended = project.terminal("run", "pipeline/pipeline.yaml", "-w", "2", "-o", "json").ended()
    assert ended.code == 0, ended.err
    document = ended.document
    assert (document["steps"]["run"], document["steps"]["failed"]) == (len(ORDER), 0)
    assert document["result"] == {"report": "out/report.html", "rising": ["Corvane"], "above_warning": ["Brindle"]}
    page = (copied / "out" / "report.html").read_text()
    assert page.count("<tr class=") == page.count('class="level" d="M0') == 6
    formula = next(step for step in project.json("show", document["run_id"])["step_list"] if step["name"] == "formula")
    result = project.json("result", formula["jobs"][0]["job_id"])["result"]
    assert {one["metadata"]["name"] for one in result["artifacts"]} == {"formula.svg", "formula.png"}
    assert page.count("<svg") == 6 + 1
    shorter = project.terminal("run", "pipeline/pipeline.yaml", "-p", "hours=6", "-o", "json").ended().document
    assert (shorter["steps"]["run"], shorter["steps"]["reused"]) == (2, len(ORDER) - 2)


def test_spikes_gaps_and_error_codes_are_dropped() -> None:
    clean = rivers().clean
    series = clean({"gauge": "g", "levels": ["100", "", "-999", "1300", "102", "9999", "x"]}, jump_cm=60)
    assert series == {"gauge": "g", "points": [[0, 100], [4, 102]], "dropped": 5}
