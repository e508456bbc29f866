"""`detent plan`: the steps in canonical order, with everything a person wants to know before running them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detent.contract import from_document, load
from tests.cli.contracts import SMALL, Desk, desk
from tests.cli.test_page import on_terminal

__all__ = ["desk"]


def named(size: int, *, needs: Callable[[int], list[int]], extra: str = "") -> str:
    """A contract of many steps."""
    lines = ["name: many", "steps:"]
    for number in range(size):
        needed = ", ".join(f"s{need}" for need in needs(number))
        lines.append(f"  - {{id: s{number}, needs: [{needed}], run: {{shell: ls}}{extra}}}")
    return "\n".join(lines) + "\n"


def test_a_plan_shows_order_dependencies_target_and_limits(desk: Desk) -> None:
    """WF-038, WF-044, WF-083, WF-084, X-162, X-164"""
    said = desk("plan", desk.write(SMALL), "-p", "region=eu")
    assert (said.code, said.err) == (0, "")
    assert (
        said.out
        == """\
small  4 steps in 3 waves, parallel
  file   pipeline.yaml
  param  rows = 10, the default
  param  region = "eu"

WAVE  STEP   TARGET       RUNS
   1  first  NodeCompute  python work:first(rows=10, region="eu")
             timeout 1m30s, 2 retries on INTERNAL_ERROR, USER_CODE_ERROR

   2  left   NodeCompute  python work:side(<first>, "left")
             after first
      right  NodeEffect   shell sort < in > out (and 1 more line)
             after off (disabled), first; never reused

   3  each   NodeCompute  code main(also={"deep": [<right>, 1]}), 2 lines for each item in <left>
             after right, left; its failure stops nothing

skipped  1 disabled step, without an action
      off
"""
    )


def test_json_has_the_long_form_the_actions_and_the_steps(desk: Desk) -> None:
    """WF-043, WF-055, WF-242"""
    said = desk("plan", desk.write(SMALL), "-p", "region=eu", "-p", "rows=3", "-o", "json")
    document = said.document
    contract = load(SMALL.encode())
    assert from_document(document["contract"]) == contract
    assert "workflow_definition" in document["contract"]["workflow_coordination"]
    steps = document["steps"]
    assert [step["key"] for step in steps] == ["first", "left", "right", "each", "off"]
    assert [step["needs"] for step in steps] == [[], ["first"], ["off", "first"], ["right", "left"], []]
    assert [action["metadata"]["step_name"] for action in document["actions"]] == ["first", "left", "right", "each"]
    assert [step["action_id"] for step in steps] == [*(action["action_id"] for action in document["actions"]), None]
    assert document["actions"][2]["dependencies"] == [document["actions"][0]["action_id"]]
    assert steps[0] == {
        "key": "first",
        "step_id": str(contract.steps[0].step_id),
        "action_id": document["actions"][0]["action_id"],
        "enabled": True,
        "needs": [],
        "target": "NodeCompute",
        "runs": 'python work:first(rows=3, region="eu")',
        "priority": 5,
        "timeout_ms": 90_000,
        "retry": {"max": 2, "on": ["INTERNAL_ERROR", "USER_CODE_ERROR"]},
        "line": 6,
        "foreseen": None,
    }
    assert (steps[4]["enabled"], steps[4]["target"]) == (False, None)
    assert document["params"] == {"rows": 3, "region": "eu"}
    assert (document["ok"], document["name"], document["params_missing"]) == (True, "small", [])
    assert document["contract_digest"].startswith("sha256:")


def test_no_document_names_a_wave(desk: Desk) -> None:
    """WF-105"""
    assert "wave" not in desk("plan", desk.write(SMALL), "-o", "json").out.lower()


def test_the_same_contract_gives_the_same_plan(desk: Desk) -> None:
    desk.write(SMALL)
    first, again = (desk("plan", "pipeline.yaml", "-o", "json").out for _ in range(2))
    assert first == again
    desk.write(SMALL.replace("90s", "91s"), "other.yaml")
    other = desk("plan", "other.yaml", "-o", "json").document
    ids = {action["action_id"] for action in other["actions"]}
    assert not any(action_id in first for action_id in ids)


def test_a_step_without_limits_shows_none_though_its_model_has_defaults(desk: Desk) -> None:
    """X-162"""
    desk.write("name: x\nsteps:\n  - {id: a, run: {shell: ls}}\n")
    (step,) = desk("plan", "pipeline.yaml", "-o", "json").document["steps"]
    assert (step["timeout_ms"], step["retry"]) == (None, None)
    assert desk("plan", "pipeline.yaml").out.splitlines()[-1] == "   1  a     NodeEffect  shell ls"


LONG = """\
workflow_coordination:
  workflow_definition:
    version: {major: 1, minor: 0, patch: 0}
    workflow_metadata:
      version: {major: 1, minor: 0, patch: 0}
      workflow_name: long
      workflow_version: {major: 1, minor: 0, patch: 0}
      description: In the long form.
      execution_mode: batch
      timeout_ms: 5000
    execution_graph: {version: {major: 1, minor: 0, patch: 0}}
  steps:
    - {step_name: a, step_type: reducer, timeout_ms: 2000, retry_count: 0, priority: 7, skip_on_failure: true}
    - {step_name: b, step_type: orchestrator, depends_on: [a]}
    - step_name: c
      step_type: custom
      run:
        job:
          schema_version: "1.0"
          job_type: object_execute
          workspace_id: w
          project_id: p
          document_id: d
          document_revision_id: "1"
          target: {object_id: o}
          inputs: {object: {type: code, content: {format: python, value: "def main(): return 1"}}}
          output_spec: {}
"""


def test_a_long_form_is_planned_with_its_own_limits_and_without_bindings(desk: Desk) -> None:
    """WF-238, X-162"""
    said = desk("plan", desk.write(LONG))
    assert said.out.splitlines() == [
        "long  3 steps in 2 waves, batch",
        "  file     pipeline.yaml",
        "  about    In the long form.",
        "  timeout  5s",
        "",
        "WAVE  STEP  TARGET            RUNS",
        "   1  a     NodeReducer       nothing is bound to it",
        "            timeout 2s, 0 retries on INTERNAL_ERROR, skipped after a failure, priority 7",
        "      c     NodeCustom        job object_execute",
        "",
        "   2  b     NodeOrchestrator  nothing is bound to it",
        "            after a",
    ]


# -- parameters ----------------------------------------------------------------------------------------------------------


def test_a_missing_parameter_leaves_a_gap_and_says_how_to_fill_it(desk: Desk) -> None:
    """X-177"""
    said = desk("plan", desk.write(SMALL))
    assert said.code == 0
    assert "  param  region needs a value: -p region=...\n" in said.out
    assert "python work:first(rows=10, region=<-p region>)" in said.out
    document = desk("plan", "pipeline.yaml", "-o", "json").document
    assert (document["params"], document["params_missing"]) == ({"rows": 10}, ["region"])


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("rows=many", "parameter 'rows' is of type integer"),
        ("rows", "is not an assignment"),
        ("row=1", "did you mean 'rows'?"),
        ("=1", "no parameter ''"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(desk: Desk, assignment: str, said: str) -> None:
    result = desk("plan", desk.write(SMALL), "-p", assignment)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_text_that_looks_like_a_reference_or_a_number_stays_text(desk: Desk) -> None:
    """X-177"""
    said = desk("plan", desk.write(SMALL), "-p", "region=10")
    assert 'region="10"' in said.out
    desk.write('name: x\nsteps:\n  - {id: a, run: {python: "m:f", with: {x: {$$from: b, from: c}}}}\n')
    assert 'python m:f(x={"$from": "b", "from": "c"})' in desk("plan", "pipeline.yaml").out


# -- large plans and narrow terminals ------------------------------------------------------------------------------------


def test_a_wide_plan_is_bounded_and_shows_what_comes_after(desk: Desk) -> None:
    desk.write(named(1_001, needs=lambda number: list(range(1_000)) if number == 1_000 else []))
    lines = desk("plan", "pipeline.yaml").out.splitlines()
    assert lines[0] == "many  1,001 steps in 2 waves, parallel"
    assert len(lines) < 25
    assert "      ... and 988 more in wave 1; --all shows them" in lines
    assert lines[-1].strip() == "after s0, s1, s2, s3, s4, s5, s6, s7 and 992 more"
    assert len(desk("plan", "pipeline.yaml", "--all").out.splitlines()) > 1_001
    assert len(desk("plan", "pipeline.yaml", "-o", "json").document["actions"]) == 1_001


def test_a_long_plan_is_bounded(desk: Desk) -> None:
    desk.write(named(1_000, needs=lambda number: [number - 1] if number else []))
    lines = desk("plan", "pipeline.yaml").out.splitlines()
    assert len(lines) < 130
    assert lines[-1] == "      ... and 940 more steps in 940 waves; --all shows them"
    assert "--all" not in desk("plan", "pipeline.yaml", "--all").out


@pytest.mark.parametrize("broad", [40, 7])
def test_a_layered_plan_counts_every_step_once(desk: Desk, broad: int) -> None:
    desk.write(named(400, needs=lambda number: [number - broad] if number >= broad else []))
    out = desk("plan", "pipeline.yaml").out
    shown = len(re.findall(r"NodeEffect", out))
    hidden = sum(int(count) for count in re.findall(r"\.\.\. and (\d+) more", out))
    assert (shown, shown + hidden) == (60, 400)


def test_a_plan_of_sixty_steps_is_shown_whole(desk: Desk) -> None:
    desk.write(named(60, needs=lambda _: []))
    out = desk("plan", "pipeline.yaml").out
    assert len(re.findall("NodeEffect", out)) == 60
    assert "--all" not in out


def test_many_disabled_steps_are_counted(desk: Desk) -> None:
    desk.write(named(30, needs=lambda _: [], extra=", enabled: false"))
    out = desk("plan", "pipeline.yaml").out
    assert "many  no steps, parallel" in out
    assert "skipped  30 disabled steps, without an action" in out
    assert "... and 18 more; --all shows them" in out


def test_what_is_endless_is_cut(desk: Desk) -> None:
    numbers = ", ".join(["123456"] * 5_000)
    arguments = ", ".join(f"argument_{number}: {number}" for number in range(200))
    desk.write(f'name: x\nsteps:\n  - {{id: a, run: {{python: "m:f", with: {{x: [{numbers}], {arguments}}}}}}}\n')
    out = desk("plan", "pipeline.yaml").out
    assert max(map(len, out.splitlines())) < 500
    assert re.search(r"\(x=\[123456, [123456, ]{40,60}…, argument_0=0, argument_1=1, ", out)
    assert "…" in out


@pytest.mark.parametrize("columns", [80, 120])
def test_a_plan_fits_the_terminal(desk: Desk, tmp_path: Path, columns: int) -> None:
    desk.write(SMALL)
    shown = on_terminal("plan", "pipeline.yaml", home=tmp_path, columns=columns)
    assert "\x1b[1m" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(len(line) for line in plain.splitlines()) <= columns
    assert "for each item in <left>" in " ".join(plain.split())


def test_no_color_is_kept(desk: Desk, tmp_path: Path) -> None:
    desk.write(SMALL)
    assert "\x1b" not in on_terminal("plan", "pipeline.yaml", home=tmp_path, variables={"NO_COLOR": "1"})
    assert "\x1b" not in desk("plan", "pipeline.yaml").out


def test_control_characters_of_a_contract_reach_no_terminal(desk: Desk) -> None:
    evil = r"\e]0;title\a"
    desk.write(f'name: "{evil}"\ndescription: "{evil}"\nsteps:\n  - {{id: a, run: {{shell: "echo {evil}"}}}}\n')
    out = desk("plan", "pipeline.yaml").out
    assert "\x1b" not in out
    assert out.count("\\x1b]0;title\\x07") == 3


# -- what cannot be planned ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "name: x", "name: x\nsteps: [{id: a, needs: a, run: {shell: ls}}]"])
def test_an_invalid_contract_is_not_planned(desk: Desk, content: str) -> None:
    said = desk("plan", desk.write(content))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: pipeline.yaml:")
    document: dict[str, Any] = desk("plan", "pipeline.yaml", "-o", "json").document
    assert (document["ok"], document["findings_total"]) == (False, 1)


def test_a_missing_file_and_a_directory_are_said(desk: Desk) -> None:
    assert desk("plan", "absent.yaml").err.startswith("error: absent.yaml: cannot be read")
    assert desk("plan", ".").err.startswith("error: .: is a directory")
    assert desk("plan", "absent.yaml").code == desk("plan", ".").code == 2


@pytest.mark.parametrize("typed", ["pipeline", "pipline.yaml"])
def test_a_file_beside_the_missing_one_is_named(desk: Desk, typed: str) -> None:
    desk.write("name: x\nsteps: []\n")
    desk.write("name: y\nsteps: []\n", "other.yaml")
    assert desk("plan", typed).err.endswith("hint:  did you mean pipeline.yaml?\n")
    assert desk("plan", "nowhere/pipeline.yaml").err.endswith("hint:  there is no directory nowhere\n")


def test_an_empty_workflow_has_a_plan(desk: Desk) -> None:
    """WF-101"""
    said = desk("plan", desk.write("name: x\nsteps: []\n"))
    assert (said.code, said.out) == (0, "x  no steps, parallel\n  file  pipeline.yaml\n")


def test_a_flow_in_a_python_file_is_planned_as_it_would_run(cli: Any, tmp_path: Path) -> None:
    flow = tmp_path / "planned_flow.py"
    flow.write_text(
        "import detent\n\n@detent.task\ndef double(x):\n    return 2 * x\n\n"
        "@detent.flow\ndef doubles(n: int):\n    return [double(i) for i in range(n)]\n"
    )
    said = cli("plan", f"{flow}:doubles", "-p", "n=3", "-o", "json")
    assert said.code == 0
    assert [step["key"] for step in said.document["steps"]] == ["double", "double-2", "double-3"]
    assert cli("plan", str(flow)).code == 2, "a parameter is missing"
