"""docs/contract-file.md: every example in it does what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from detent.contract import load
from detent.contract.bindings import BINDING_KEYS, CATEGORIES, RUN_KEYS
from detent.contract.definition import SHORT_KEYS
from detent.contract.params import TYPES
from detent.contract.schedule import KEYS as SCHEDULE_KEYS
from detent.contract.schedule import MACROS, OVERLAPS
from detent.contract.steps import LONG_STEP_KEYS, SHORT_STEP_KEYS
from detent.contract.yaml_reader import read
from detent.workflow.models import ModelWorkflowDefinition
from tests.contract.contracts import findings

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "contract-file.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
YAML = [text for language, text in BLOCKS if language == "yaml"]
WHOLE = [text for text in YAML if text.startswith(("name:", "workflow_coordination:"))]


@pytest.mark.parametrize("text", WHOLE, ids=lambda text: text[:20])
def test_every_whole_example_loads(text: str) -> None:
    """WF-265, WF-266"""
    assert load(text.encode()).steps


def test_every_fragment_is_read() -> None:
    runs, params = (read(text.encode()).value for text in YAML if text.startswith(("- run:", "params:")))
    steps = [{"id": f"s{index}", **run} for index, run in enumerate(runs)]
    document = {"name": "n", **params, "steps": steps}
    assert findings(str(document).replace("'", '"').replace("None", "null").encode()) == []


def test_every_schedule_in_the_guide_is_one() -> None:
    (examples,) = (text for text in YAML if text.startswith("schedule:"))
    for example in examples.split("---\n"):
        assert load(f"name: n\nsteps: []\n{example}".encode()).schedule is not None


def test_the_broken_example_says_what_is_printed() -> None:
    broken = next(text for text in YAML if text.startswith("# broken.yaml"))
    printed = next(text for language, text in BLOCKS if language == "console")
    said = [f"{finding}\n    {finding.hint}\n".replace("pipeline.yaml", "broken.yaml") for finding in findings(broken)]
    assert "".join(said) == printed


def test_the_python_example_prints_what_is_said() -> None:
    program = next(text for language, text in BLOCKS if language == "python")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(program, "contract-file.md", "exec"), {})
    assert f"It prints `{output.getvalue().strip()}`." in GUIDE


def test_every_key_has_a_place_in_the_guide() -> None:
    words = set(re.findall(r"@?[a-z_$]+|[A-Z_]+", " ".join(re.findall(r"`([^`\n]+)`", GUIDE))))
    keys = {*SHORT_KEYS, *SHORT_STEP_KEYS, *LONG_STEP_KEYS, *BINDING_KEYS, *CATEGORIES, *TYPES}
    keys |= {*SCHEDULE_KEYS, *MACROS, *OVERLAPS}
    keys |= {key for keys_of_kind in RUN_KEYS.values() for key in keys_of_kind}
    for model in (
        ModelWorkflowDefinition,
        *(field.annotation for field in ModelWorkflowDefinition.model_fields.values()),
    ):
        keys |= set(getattr(model, "model_fields", {}))
    assert keys - words == set()


def test_every_link_inside_the_guide_leads_somewhere() -> None:
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^#+ (.+)$", GUIDE, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", GUIDE)) <= anchors
