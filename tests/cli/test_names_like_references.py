"""A name that looks like a reference is a name: files, outputs and keys called ``$file`` or ``$result`` change nothing (X-177)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detent.workers import sandbox_executor
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

NAMES = ("$file", "$result", "$from", "$param", "$$x", "$", "$file.txt")
CODE = """\
name: names
steps:
  - id: make
    run:
      code: |
        import os
        def main():
            with open(os.environ["DETENT_OUT"] + "/NAME", "w") as file:
                file.write("hello")
  - id: inside
    run:
      code: |
        def main(made):
            return {name: open(path).read() for name, path in made.items()}
      with: {made: {$from: make}}
  - id: outside
    run: {python: "reading:read", with: {made: {$from: make}, inside: {$from: inside}}}
"""
READING = """\
def read(made, inside):
    assert inside == {name: file.read_bytes().decode() for name, file in made.items()}
    return {"names": list(made), **inside}
"""
SHELL = """\
name: shell
steps:
  - id: make
    run: {shell: "printf hello > made.txt"}
    inputs: reading.py
    outputs: {"NAME": made.txt}
  - id: outside
    run: {python: "reading:outputs", with: {made: {$from: make}}}
"""
OUTPUTS = """\
def outputs(made):
    return {name: file.read_bytes().decode() for name, file in made["outputs"].items()}
"""
KEYS = """\
name: keys
steps:
  - id: KIND
    run: RUN
  - id: mapped
    map: {item: {$from: listed}}
    run: {python: "reading:same"}
  - id: listed
    run: {python: "reading:listed"}
  - id: outside
    run: {python: "reading:again", with: {item: {$from: KIND}}}
"""
VALUE = {
    "$file": "sha256:00",
    "$result": "x",
    "$from": {"$param": 1},
    "$$x": [{"$file": 1}, {"$result": {}}],
    "$": None,
}
SAME = f"""\
def same(item):
    return item

def again(item):
    return item

def value():
    return {VALUE!r}

def listed():
    return [value(), {{"$result": "x"}}, {{"$file": "x"}}]
"""


def twice(project: Project, file: str, steps: int) -> Any:
    """Run, run again with everything reused, and look at it from every side; the results by step."""
    assert project.run(file)["steps"]["run"] == steps
    again = project.run(file)
    assert (again["steps"]["reused"], again["steps"]["run"]) == (steps, 0)
    run_id = project.newest()
    document = project.json("show", run_id)
    assert project("show", run_id).code == project("explain", run_id).code == 0
    for step in document["step_list"]:
        assert project("explain", step["jobs"][0]["job_id"]).code == 0
    root = project.json("export", run_id, "--output", "names.detent")["root"]
    assert project("verify", "names.detent", "--root", root).code == 0
    assert project("replay").code == project("gc").code == 0
    return {step["step"]: step["result"] for step in document["step_list"]}


@pytest.mark.parametrize("name", NAMES)
def test_an_output_file_of_any_name_is_handed_on_and_reused(project: Project, name: str) -> None:
    """X-170, X-177: what a guest calls its file is a key of its result like any other."""
    project.write("reading.py", READING)
    project.write("names.yaml", CODE.replace("NAME", name))
    results = twice(project, "names.yaml", 3)
    stored = f"${name}"
    assert list(results["make"]) == [stored]
    assert results["make"][stored]["name"] == name
    assert results["outside"] == {"names": [name], stored: "hello"}


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_output_of_any_name_is_handed_on_and_reused(project: Project, name: str) -> None:
    """X-189: the names under which a command declares its outputs are keys of its result."""
    project.write("reading.py", OUTPUTS)
    project.write("shell.yaml", SHELL.replace("NAME", name))
    assert twice(project, "shell.yaml", 2)["outside"] == {f"${name}": "hello"}


@pytest.mark.parametrize("kind", ["python", "code"])
def test_keys_that_look_like_references_come_back_as_they_were(project: Project, kind: str) -> None:
    """X-177: of returned mappings, through a map and through another step."""
    project.write("reading.py", SAME)
    code = "{code: " + json.dumps(f"def main(): return {VALUE!r}") + "}"
    text = KEYS.replace("KIND", f"from_{kind}").replace("RUN", code if kind == "code" else '{python: "reading:value"}')
    project.write("keys.yaml", text)
    results = twice(project, "keys.yaml", 4)
    assert results["outside"] == results[f"from_{kind}"]
    assert set(results["outside"]) == {"$$file", "$$result", "$$from", "$$$x", "$$"}


@pytest.mark.parametrize("name", ["$file", "$result"])
def test_a_home_that_recorded_such_a_name_as_it_is_goes_on(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Results of before names were escaped: run after run ended with an error over them; now they are read."""
    project.write("reading.py", "def same(item):\n    return sorted(item)\n")
    head = CODE.replace("NAME", name).split("  - id: inside")[0]
    project.write("old.yaml", head)
    with monkeypatch.context() as before:
        before.setattr(sandbox_executor, "escaped_key", lambda text: text)
        project.run("old.yaml")
    after = '  - id: after\n    run: {python: "reading:same", with: {item: {$from: make}}}\n'
    project.write("old.yaml", head + after)
    assert project.run("old.yaml")["steps"]["reused"] == 1
    assert project.json("show", project.newest())["step_list"][1]["result"] == [name[1:]]


@pytest.mark.parametrize(
    "line", ["params: {$file: 1}", "steps: [{id: $file, run: {shell: 'true'}}]"], ids=["parameter", "step"]
)
def test_a_contract_cannot_call_its_own_parts_like_references(project: Project, line: str) -> None:
    """Where a contract's author chooses the name, it is refused with its place."""
    text = f"name: names\n{line}\n"
    project.write("names.yaml", text if "steps" in line else text + "steps: [{id: a, run: {shell: 'true'}}]\n")
    result = project("validate", "names.yaml")
    assert (result.code, "names.yaml:2:" in result.out + result.err) == (2, True), result
