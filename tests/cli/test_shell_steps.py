"""Shell steps at the command line: which shell runs them, and that a failure inside a command fails the step (X-189)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from detent.cli.app import run
from detent.testing import TemporaryHome
from detent.testing.plugin import detent_home

__all__ = ["detent_home"]

STRICT_BASH = "bash -euo pipefail -c"
STRICT_SH = "sh -eu -c"


class Project:
    """A directory with one contract, run with real workers."""

    def __init__(self, home: TemporaryHome, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = home.directory
        self._capsys = capsys

    def write(self, text: str) -> None:
        (self.directory / "flow.yaml").write_text(dedent(text))

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run(arguments)
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    def json(self, *arguments: str, code: int = 0) -> Any:
        ended, out, err = self(*arguments, "-o", "json")
        assert ended == code, err
        return json.loads(out)

    def shell_of(self, step: str) -> str:
        """The shell that is an ingredient of the newest job of a step."""
        steps = self.json("show", "flow")["step_list"]
        job_id = next(one for one in steps if one["step"] == step)["jobs"][0]["job_id"]
        ingredients: dict[str, str] = self.json("show", job_id)["order"]["ingredients"]
        return ingredients["shell"]


@pytest.fixture
def project(detent_home: TemporaryHome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(detent_home.directory)
    return Project(detent_home, capsys)


@pytest.fixture
def without_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose PATH has sh and a few tools, and no bash."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "sort", "echo", "touch"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tools))


PIPE = """
    name: flow
    steps: [{id: only, run: {shell: "nosuchtool x | sort > p.txt"}, inputs: in.txt, outputs: p.txt}]
    """


def test_a_failing_first_command_of_a_pipe_fails_the_step_and_nothing_is_reused(project: Project) -> None:
    """X-189"""
    (project.directory / "in.txt").write_text("1\n")
    project.write(PIPE)
    for _ in range(2):
        code, _, err = project("run", "flow.yaml")
        assert code == 1
        assert "exit status 127" in err
    assert [job["state"] for job in project.json("list", "--jobs")] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false; echo went on", "exit status 1"),
        ("echo $NO_SUCH_VARIABLE_IS_SET", "NO_SUCH_VARIABLE_IS_SET: unbound variable"),
        ("false | cat", "exit status 1"),
    ],
)
def test_a_command_that_fails_before_the_last_one_fails_the_step(project: Project, command: str, said: str) -> None:
    """X-189"""
    project.write(f"name: flow\nsteps: [{{id: only, run: {{shell: '{command}'}}}}]")
    code, _, err = project("run", "flow.yaml")
    assert code == 1
    assert said in err


def test_a_pipe_whose_reader_stops_early_says_what_to_do(project: Project) -> None:
    """X-189"""
    project.write('name: flow\nsteps: [{id: only, run: {shell: "yes | head -n 1"}}]')
    code, _, err = project("run", "flow.yaml")
    assert code == 1
    assert "SIGPIPE" in err
    assert "`shell:`" in err


def test_shell_of_a_step_or_contract_chooses_another(project: Project) -> None:
    """X-189"""
    project.write(
        """
        name: flow
        shell: [sh, -c]
        steps:
          - {id: lax, run: {shell: "false | echo $NO_SUCH_VARIABLE_IS_SET lax"}}
          - {id: own, shell: bash -e, run: {shell: 'echo "$BASH_VERSION"; false | echo own'}}
          - {id: strict, shell: bash, run: {shell: "shopt -o | grep -c 'on$'"}}
          - {id: other, shell: [python3, -c], run: {shell: "print(6 * 7)"}}
        """
    )
    project.json("run", "flow.yaml")
    assert {step: project.shell_of(step) for step in ("lax", "own", "strict", "other")} == {
        "lax": "sh -c",
        "own": "bash -e -c",
        "strict": STRICT_BASH,
        "other": "python3 -c",
    }
    code, out, _ = project("logs", "flow")
    assert code == 0
    assert "42" in out


def test_a_shell_that_is_not_found_fails_the_step_and_says_where_it_was_chosen(project: Project) -> None:
    """X-189"""
    project.write('name: flow\nsteps: [{id: only, shell: nosuchshell -e, run: {shell: "true"}}]')
    code, _, err = project("run", "flow.yaml")
    assert code == 1
    assert "SHELL_NOT_FOUND" in err
    assert "nosuchshell" in err
    assert "`shell:`" in err


def test_another_shell_is_other_work_and_explain_names_the_shell(project: Project) -> None:
    """X-189"""
    (project.directory / "in.txt").write_text("1\n")
    contract = (
        'name: flow\n{}steps: [{{id: only, run: {{shell: "cat in.txt > p.txt"}}, inputs: in.txt, outputs: p.txt}}]\n'
    )
    project.write(contract.format(""))
    assert [project.json("run", "flow.yaml")["steps"]["reused"] for _ in range(2)] == [0, 1]
    project.write(contract.format("shell: sh -eu\n"))
    plan = project("plan", "flow.yaml")[1]
    assert f"shell {STRICT_BASH} -> {STRICT_SH}" in plan
    assert project.json("run", "flow.yaml")["steps"]["reused"] == 0
    assert f"shell {STRICT_BASH} -> {STRICT_SH}" in project("explain", "flow", "only")[1]
    project.write(contract.format("shell: bash\n"))
    assert project.json("run", "flow.yaml")["steps"]["reused"] == 1


@pytest.mark.usefixtures("without_bash")
def test_without_bash_sh_runs_it_and_validate_warns_of_a_pipe(project: Project) -> None:
    """X-189"""
    project.write(
        """
        name: flow
        steps:
          - {id: piped, run: {shell: "echo a | cat"}}
          - {id: chosen, shell: sh -eu, run: {shell: "echo a | cat"}}
          - {id: quoted, run: {shell: "echo 'a | b' || cat # a | b"}}
          - {id: unset, needs: [piped, chosen, quoted], run: {shell: "false; true"}}
        """
    )
    code, out, err = project("validate", "flow.yaml")
    assert (code, err) == (0, "")
    warnings = [line for line in out.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("flow.yaml:4:")
    assert "'piped'" in warnings[0]
    [warning] = project.json("validate", "flow.yaml")["files"][0]["warnings"]
    assert (warning["line"], warning["file"]) == (4, "flow.yaml")
    ended = project.json("run", "flow.yaml", code=1)
    assert {step["step"]: step["state"] for step in ended["step_list"]} == {
        "piped": "succeeded",
        "chosen": "succeeded",
        "quoted": "succeeded",
        "unset": "failed",
    }
    assert project.shell_of("piped") == STRICT_SH


def test_with_bash_a_pipe_needs_no_warning(project: Project) -> None:
    """X-189"""
    project.write('name: flow\nsteps: [{id: piped, run: {shell: "echo a | cat"}}]')
    assert project.json("validate", "flow.yaml")["files"][0]["warnings"] == []


def test_logs_show_both_ends_of_a_long_output_with_a_mark(project: Project) -> None:
    """The end of a log says why a step failed; only the first 1 MiB used to be kept."""
    project.write('name: flow\nsteps: [{id: only, run: {shell: "seq 1000000; echo the last words; exit 3"}}]')
    assert project("run", "flow.yaml")[0] == 1
    code, out, err = project("logs", "flow")
    assert code == 0
    lines = out.splitlines()
    assert (lines[0], lines[-1]) == ("1", "the last words")
    assert [line for line in lines if "bytes left out" in line]
    assert len(out) <= 1024 * 1024
    assert "only both ends (" in err
    stdout = project.json("logs", "flow")["jobs"][0]["attempts"][0]["stdout"]
    assert (stdout["text"], stdout["truncated"]) == (out, True)


def test_a_command_that_declares_that_it_reads_no_file_is_reused(project: Project) -> None:
    """X-175: `inputs: []` is a declaration; saying nothing is not."""
    project.write("""
        name: stamps
        steps:
          - {id: declared, inputs: [], outputs: {made: a.txt}, run: {shell: "echo a > a.txt"}}
          - {id: silent, outputs: {made: b.txt}, run: {shell: "echo b > b.txt"}}
    """)
    project.json("run", "flow.yaml")
    again = project.json("run", "flow.yaml")["steps"]
    assert (again["run"], again["reused"]) == (1, 1)
