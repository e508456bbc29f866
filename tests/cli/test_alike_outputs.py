"""Outputs that a reader cannot tell apart are refused where they are declared."""

from __future__ import annotations

import pytest

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

STEP = "name: outputs\nsteps:\n  - id: one\n    run: {shell: 'true'}\n    outputs: OUTPUTS\n"


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ("[report.txt, Report.txt]", "cannot be told apart"),
        ("{a: one.txt, A: two.txt}", "cannot be told apart"),
        ("{a: one.txt, b: ONE.txt}", "cannot be told apart"),
        ('["paypal", "\\u0440aypal"]', "cannot be told apart"),
        ('["e\\u0301", "\\u00e9"]', "cannot be told apart"),
        ('["a\\u202etxt.exe"]', "cannot be seen"),
        ('{"a\\u200b": a.txt}', "cannot be seen"),
    ],
)
def test_validate_refuses_outputs_that_cannot_be_told_apart(project: Project, outputs: str, said: str) -> None:
    """JOB-073"""
    project.write("flow.yaml", STEP.replace("OUTPUTS", outputs))
    done = project("validate", "flow.yaml")
    assert done.code == 2
    assert "flow.yaml:5:" in done.out
    assert said in done.out


def test_validate_accepts_one_path_under_two_names_and_other_alphabets(project: Project) -> None:
    project.write(
        "flow.yaml", STEP.replace("OUTPUTS", "{one: a.txt, two: a.txt, \u043e\u0442\u0447\u0451\u0442: b.txt}")
    )
    assert project("validate", "flow.yaml").code == 0
