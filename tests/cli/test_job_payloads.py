"""`job:` payloads at the command line: checked whole before anything begins, with the line of what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

import detent
from detent.cli.app import run
from detent.contract import ContractInvalid
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home

__all__ = ["detent_home"]

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "contract-file.md"
HEAD = """\
name: jobs
params:
  formula: {type: string, default: "x^2"}
  format: {type: string, default: svg}
steps:
  - id: text
    run: {shell: "echo x"}
  - id: picture
    run:
      job:
"""
PAYLOAD = """\
schema_version: "1.0"
job_type: object_render
workspace_id: home
project_id: papers
document_id: paper
document_revision_id: "1"
target: {object_id: parabola}
inputs:
  object:
    type: equation
    content: {format: latex, value: "x^2"}
output_spec: {formats: [svg]}
"""


class Project:
    """A directory with one contract."""

    def __init__(self, home: TemporaryHome, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = home.directory
        self._capsys = capsys

    def write(self, payload: str, head: str = HEAD) -> None:
        (self.directory / "jobs.yaml").write_text(head + indent(dedent(payload), " " * 8))

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run(arguments)
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    def findings(self) -> list[tuple[int, str, str]]:
        """Line, path and message of what `validate` says."""
        code, out, _ = self("validate", "jobs.yaml", "-o", "json")
        file = json.loads(out)["files"][0]
        assert code == (2 if file["findings"] else 0)
        return [(found["line"], found["path"], found["message"]) for found in file["findings"]]

    def jobs(self) -> Any:
        return json.loads(self("list", "--jobs", "-o", "json")[1])


@pytest.fixture
def project(detent_home: TemporaryHome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(detent_home.directory)
    return Project(detent_home, capsys)


def test_the_example_of_the_guide_validates_and_runs_to_its_end(project: Project) -> None:
    """JOB-034, X-152: in the real sandbox, with the real runner"""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (example,) = (text for text in blocks if text.startswith("name:") and "job:" in text)
    (project.directory / "jobs.yaml").write_text(example)
    assert project.findings() == []
    code, out, err = project("run", "jobs.yaml", "-o", "json")
    assert code == 0, err + out
    document = json.loads(out)
    assert document["status"] == "succeeded"
    assert document["result"]["formula.svg"]["type"] == "image/svg+xml"


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "message"),
    [
        ('schema_version: "1.0"\n', "", 11, "schema_version", "schema_version "),
        ('"1.0"', '"9.0"', 11, "schema_version", "schema_version "),
        ("object_render", "render", 12, "job_type", "there is no job type 'render'"),
        ("workspace_id", "job_id: abc\nworkspace_id", 13, "job_id", "job_id must be a UUID, not 'abc'"),
        ("workspace_id: home\n", "", 11, "workspace_id", "workspace_id is missing"),
        ('revision_id: "1"', "revision_id: 1", 16, "document_revision_id", "document_revision_id must be text, not 1"),
        ("{object_id: parabola}", "{}", 17, "target.object_id", "give exactly one of object_id and object_ids"),
        ("[svg]", "[svg, gif]", 22, "output_spec.formats[1]", "formats[1] cannot be 'gif'"),
        ("[svg]", "[svg, svg]", 22, "output_spec.formats", "names 'svg' twice"),
        ("type: equation", "type: drawing", 20, "inputs.object.type", "'drawing' cannot be rendered here"),
        ("format: latex", "format: mathml", 21, "inputs.object.content.format", "'mathml' is not supported here"),
        (
            "[svg]}\n",
            "[svg]}\nlimits: {memory_mb: 0}\n",
            23,
            "limits.memory_mb",
            "memory_mb must be at least 1, got 0",
        ),
        (
            "[svg]}\n",
            "[svg]}\nenvironment: {network_access: enabled}\n",
            23,
            "environment.network_access",
            "a step of a contract gets no network",
        ),
        ("[svg]}\n", "[svg]}\nrequested_by: {user_id: eve}\n", 23, "requested_by.user_id", "the user who asks is"),
    ],
)
def test_what_is_wrong_in_a_payload_is_found_with_its_line_before_anything_begins(
    project: Project, old: str, new: str, line: int, path: str, message: str
) -> None:
    """JOB-034, JOB-048"""
    assert PAYLOAD.count(old) == 1
    project.write(PAYLOAD.replace(old, new))
    [(found_line, found_path, found)] = project.findings()
    assert (found_line, found_path) == (line, f"steps[1].run.job.{path}")
    assert message in found
    for command in ("plan", "run"):
        code, _, err = project(command, "jobs.yaml")
        assert code == 2
        assert f"jobs.yaml:{line}:" in err
    with pytest.raises(ContractInvalid, match=re.escape(message)):
        detent.run("jobs.yaml")
    assert project.jobs() == []


def test_every_fault_of_every_payload_is_told_with_the_others(project: Project) -> None:
    project.write(
        PAYLOAD.replace("workspace_id: home", "workspace_id: 1").replace("[svg]", "[]"), HEAD + "        x-y: 1\n"
    )
    (project.directory / "jobs.yaml").write_text(
        (project.directory / "jobs.yaml").read_text().replace("echo x", "echo x").replace("{shell:", "{shel:")
    )
    assert [line for line, _, _ in project.findings()] == [7, 14, 23]


def test_what_is_known_only_later_is_excused_and_the_rest_is_checked(project: Project) -> None:
    """A result of a step may stand anywhere but for the type; nothing is said of rules that need to know it."""
    project.write(PAYLOAD.replace('value: "x^2"', "value: {$from: text}"))
    assert project.findings() == []
    project.write(PAYLOAD.replace('value: "x^2"', "value: {$from: text}").replace("[svg]", "[gif]"))
    assert [message for _, _, message in project.findings()] == ["formats[0] cannot be 'gif'"]
    project.write(PAYLOAD.replace("parabola", "{$from: text}"))
    assert project.findings() == []
    project.write(PAYLOAD.replace("object_render", "{$param: format}"))
    assert [message for _, _, message in project.findings()] == ["a job needs job_type, as text"]


def test_a_parameter_counts_as_the_value_that_it_has(project: Project) -> None:
    """By its default for `validate`, by what it is given for `plan` and `run`."""
    project.write(PAYLOAD.replace("[svg]", "[{$param: format}]").replace('value: "x^2"', "value: {$param: formula}"))
    assert project.findings() == []
    for command in ("plan", "run"):
        code, _, err = project(command, "jobs.yaml", "-p", "format=gif")
        assert code == 2
        assert "jobs.yaml:22:" in err
        assert "formats[0] cannot be 'gif'" in err
    assert project.jobs() == []
    project.write(PAYLOAD.replace("[svg]", "[{$param: format}]"), HEAD.replace("default: svg", "default: gif"))
    assert [(line, message) for line, _, message in project.findings()] == [(22, "formats[0] cannot be 'gif'")]


@pytest.mark.parametrize(("key", "line"), [("env: {A: 1}", 9), ("cwd: data", 9)])
def test_a_key_that_would_do_nothing_to_a_platform_job_is_refused(project: Project, key: str, line: int) -> None:
    """Before, both were accepted and had no effect."""
    project.write(PAYLOAD, HEAD.replace("  - id: picture\n", f"  - id: picture\n    {key}\n"))
    [(found_line, path, message)] = project.findings()
    assert (found_line, path) == (line, f"steps[1].{key.partition(':')[0]}")
    assert "means nothing in a step that runs job" in message
