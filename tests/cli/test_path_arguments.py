"""Paths as arguments: declared, their content counts like any input; undeclared, their user is told once (X-175)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.errors import InvalidInput
from detent.reuse import path_arguments
from detent.reuse.path_arguments import LOOKED_MAX, PathArguments, no_value
from detent.sdk.client import Client
from detent.sdk.flow_file import load_flow
from detent.sdk.outcomes import TaskFailed
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

FILES = 200
WORK = """\
import detent

PATHS = [f"data/{number:03}.csv" for number in range(200)]


def text_of(path):
    with open("began", "a") as began:
        began.write("x")
    with open(path) as file:
        return file.read()


@detent.task(inputs="{path}")
def clean(path: str) -> str:
    return text_of(path)


@detent.task
def careless(path: str) -> str:
    return text_of(path)


@detent.task(inputs=())
def knowing(path: str) -> str:
    return text_of(path)


@detent.task(inputs=["{folder}/*.csv", "{extra}"])
def count(folder: str, extra: str | None = None, more: int = 0) -> int:
    import glob
    return len(glob.glob(f"{folder}/*.csv"))


@detent.task(inputs="{path}")
def default(path: str = "data/007.csv") -> str:
    return text_of(path)


@detent.task
def find(number: int) -> str:
    return PATHS[number]


@detent.flow
def cleaned():
    return clean.map(PATHS)


@detent.flow
def carelessly():
    return careless.map(PATHS)


@detent.flow
def knowingly():
    return knowing.map(PATHS[:3])


@detent.flow
def single():
    return [default(), clean(find(3)), count("data", more=1)]


@detent.flow
def handed_on():
    return careless(find(3))


@detent.flow
def missing():
    return clean("data/nowhere.csv")


@detent.flow
def odd():
    return clean({"a": 1})
"""


@pytest.fixture
def work(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    project.write("paths.py", WORK)
    monkeypatch.setattr(sys, "path", [*sys.path])
    data = project.directory / "data"
    data.mkdir()
    for number in range(FILES):
        (data / f"{number:03}.csv").write_text(f"rows {number}\n")
    monkeypatch.chdir(project.directory)
    yield project
    sys.modules.pop("paths", None)


def run(work: Project, flow: str, code: int = 0) -> dict[str, Any]:
    document = work.json("run", flow, "--workers", "1", code=code)
    assert isinstance(document, dict)
    return document


def began() -> int:
    return len(Path("began").read_text()) if Path("began").exists() else 0


def test_an_edited_file_runs_the_elements_that_are_given_it_and_no_others(work: Project) -> None:
    """X-175, X-185: the content of a file that an argument names counts, element by element; `explain` names the file."""
    assert run(work, "paths.py:cleaned")["warnings"] == []
    assert run(work, "paths.py:cleaned")["jobs"] == {"total": FILES, "done": FILES, "reused": FILES, "failed": 0}
    Path("data/017.csv").write_text("edited\n")
    planned = work("plan", "paths.py:cleaned")
    assert "1 of 200: input data/017.csv changed" in planned.out
    done = run(work, "paths.py:cleaned")
    assert done["jobs"] == {"total": FILES, "done": FILES, "reused": FILES - 1, "failed": 0}
    assert done["result"][17] == "edited\n"
    (job,) = work.json("list", "--jobs", "--run", str(done["run_id"]))
    assert "one thing changed since:\n    - input data/017.csv changed: sha256:" in work("explain", job["job_id"]).out


def test_a_file_by_its_name_alone_is_warned_of_once_for_the_task(work: Project) -> None:
    """X-175: with how to declare it and how to silence the warning; in the progress, the summary, the plan and the JSON."""
    (warning,) = run(work, "paths.py:carelessly")["warnings"]
    assert warning.startswith("careless(path='data/000.csv') is given a file by its name alone")
    assert 'declare inputs="{path}" if its content counts, or inputs=() if it does not' in warning
    for command in ("run", "plan"):
        said = work(command, "paths.py:carelessly")
        told = " ".join((said.out + said.err).split())
        assert "careless(path='data/000.csv') is given a file by its name alone" in told
        assert told.count("by its name alone") == (2 if command == "run" else 1)  # Progress, and the summary.
    assert run(work, "paths.py:knowingly")["warnings"] == []


def test_the_result_of_a_step_and_a_default_count_by_the_content_of_the_file_they_name(work: Project) -> None:
    """X-175, X-177: an argument that a step gives, one that is left to its default, a glob, and None for nothing."""
    run(work, "paths.py:single")
    assert run(work, "paths.py:single")["steps"] == {**NONE, "total": 4, "reused": 4}
    Path("data/007.csv").write_text("seven")
    Path("data/003.csv").write_text("three")
    done = run(work, "paths.py:single")
    assert done["result"] == ["seven", "three", FILES]
    assert done["steps"] == {**NONE, "total": 4, "run": 3, "reused": 1}
    assert len(run(work, "paths.py:handed_on")["warnings"]) == 1


NONE = {"run": 0, "reused": 0, "failed": 0, "skipped": 0, "cancelled": 0, "open": 0}


def test_a_missing_file_fails_the_step_before_it_begins(work: Project) -> None:
    """X-175: typed, with the path; the function is not called."""
    done = work("run", "paths.py:missing", "--workers", "1")
    assert done.code == 1
    assert "DEPENDENCY_MISSING" in done.out
    assert "its input data/nowhere.csv is not there" in done.out
    assert "its input {path} is not there" in work("run", "paths.py:odd", "--workers", "1").out
    assert began() == 0


CONTRACT = """\
name: written
steps:
  - id: read
    run: {python: "paths:text_of", with: {path: data/001.csv}}
    INPUTS
  - id: placed
    run: {python: "paths:text_of", args: [data/002.csv]}
    inputs: "{1}"
  - id: sizes
    run: {shell: 'wc -c "$file" > sizes/$(basename "$file")'}
    map: {file: [data/001.csv, data/002.csv]}
    inputs: "{file}"
    outputs: {sizes: "sizes/*.csv"}
"""


def test_a_contract_declares_the_files_that_its_arguments_name(work: Project) -> None:
    """X-175: by name, by place and by the variable of a mapped command; an empty list silences the warning."""
    Path("sizes").mkdir()
    file = work.write("written.yaml", CONTRACT.replace("INPUTS", 'inputs: ["{path}"]'))
    assert work("validate", file).code == 0
    assert run(work, file)["warnings"] == []
    Path("data/001.csv").write_text("one")
    done = run(work, file)
    reran = {step["step"]: step["done"] - step["reused"] for step in done["step_list"]}
    assert (reran["read"], reran["placed"]) == (1, 0)
    assert reran["sizes"] >= 1  # Both write into one directory, which is their output.
    for said, warned in (("cwd: .", 1), ("inputs: []", 0)):
        work.write("written.yaml", CONTRACT.replace("INPUTS", said))
        assert len(run(work, file)["warnings"]) == warned


def test_a_name_that_is_no_argument_is_refused_where_it_stands(work: Project) -> None:
    file = work.write("written.yaml", CONTRACT.replace("INPUTS", 'inputs: "{pth}"'))
    done = work("validate", file)
    assert done.code == 2
    assert "written.yaml:5:13: inputs names {pth}, and the step is given no such argument" in done.out
    assert "did you mean 'path'?" in done.out
    work.write(
        "paths.py", WORK.replace('@detent.task(inputs="{path}")\ndef clean', '@detent.task(inputs="{pat}")\ndef clean')
    )
    done = work("plan", "paths.py:cleaned")
    assert done.code == 2
    assert "inputs of task 'clean' names {pat}" in done.err


def test_a_client_counts_the_content_of_the_files_that_its_calls_name(work: Project) -> None:
    """X-175, X-190: for calls that may be reused; and it warns once of a task that says nothing."""
    load_flow("paths.py:cleaned")
    import paths  # type: ignore[import-not-found]

    with Client(work.home.path, workers=1) as client:
        assert client.submit(paths.clean, "data/001.csv", reuse=True).result(60) == "rows 1\n"
        Path("data/001.csv").write_text("edited")
        assert client.submit(paths.clean, "data/001.csv", reuse=True).result(60) == "edited"
        client.submit(paths.careless, "data/001.csv").result(60)  # Run each time: nothing can be out of date.
        with pytest.warns(UserWarning, match="is given a file by its name alone"):
            client.submit(paths.careless, "data/001.csv", reuse=True).result(60)
        with pytest.raises(TaskFailed, match=r"its input data/no\.csv is not there"):
            client.submit(paths.clean, "data/no.csv").result(60)
        with pytest.raises(InvalidInput, match=r"names \{other\}, and the task is given no such argument"):
            client.submit(paths.clean.options(inputs="{path}{other}"), "data/001.csv")


def test_thousands_of_texts_are_not_looked_up_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded: the first pieces of work of a task, a few texts of each, and nothing that is too long to be a path."""
    looked: list[str] = []

    def is_file(path: str) -> bool:
        looked.append(path)
        return False

    monkeypatch.setattr(path_arguments, "_is_file", is_file)
    arguments = PathArguments()
    for number in range(5_000):
        arguments.look("m:f", (), {"text": f"word {number}", "long": "x" * 5_000}, {}, "/", no_value)
    assert len(looked) == LOOKED_MAX
    arguments.look("m:g", (json.loads(json.dumps(["a"] * 10_000)),), {}, {}, "/", no_value)
    assert len(looked) <= 2 * LOOKED_MAX
