"""Flows at a server: recorded here, sent with their code and files, driven there, and told as beside a home."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from detent.canon import digest_text
from detent.store.content import ContentFiles
from tests.remote.sides import Project, Said, project, served_project
from tests.serve.served import Served

FLOW = """\
import detent
from pathlib import Path
from helpers.words import count


@detent.task
def read(file):
    return file.read_bytes().decode()


@detent.task(inputs="data/*.txt")
def data():
    return sorted(path.name for path in Path(__file__).parent.joinpath("data").iterdir())


@detent.task
def words(text, extra):
    return count(text) + extra


@detent.task
def page(number):
    return detent.File.from_bytes(str(number).encode(), name="page.txt")


@detent.task(retries=0)
def fragile(number):
    raise ValueError("no such river")


@detent.flow
def counted(extra: int = 1):
    number = words(read(detent.File("text.md")), extra)
    return {"words": number, "data": data(), "page": page(number)}


@detent.task
def much(letter):
    return letter * 9_000_000


@detent.flow
def huge():
    return [much("a"), much("b")]


@detent.flow
def broken():
    return fragile(1)
"""
SCRIPT = """\
import sys
import detent
from counting import broken, counted, huge

with detent.Client(sys.argv[1]) as client:
    run = client.submit(counted, extra=5)
    given = run.result(120)
    print(given["words"], given["data"], given["page"].read_bytes().decode(), run.status, run.done(), run.deduplicated)
    print([step.key for step in run.run().steps], run.run().home == sys.argv[1], run.cancel())
    error = client.submit(broken).exception(120)
    print(type(error).__name__, "no such river" in str(error), "counting.py" in str(error.__notes__))
    large = client.submit(huge)
    try:
        large.result(120)
    except detent.DetentError as exc:
        print(exc.code, large.status)
    try:
        client.submit(counted, reuse=True)
    except detent.DetentError as exc:
        print(exc)
"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Project, Served]]:
    directory = tmp_path_factory.mktemp("flows")
    here = project(directory / "here")
    there = Project(directory / "there", here.environment)
    there.directory.mkdir()
    there.detent("init")
    (here.directory / "counting.py").write_text(FLOW)
    (here.directory / "script.py").write_text(SCRIPT)
    (here.directory / "text.md").write_text("one river and two hills")
    (here.directory / "helpers").mkdir()
    (here.directory / "helpers" / "words.py").write_text("def count(text):\n    return len(text.split())\n")
    (here.directory / "data").mkdir()
    for name in ("a.txt", "b.txt", "secret.csv"):
        (here.directory / "data" / name).write_text(name)
    with served_project(there, "--workers", "2") as served:
        yield Project(here.directory, {**here.environment, "DETENT_KEY": served.token}), there, served


def test_a_flow_runs_at_the_server_with_its_code_and_files(apart: tuple[Project, Project, Served]) -> None:
    here, _, served = apart
    url = served.told["url"]
    first = here.detent("run", "counting.py:counted", "-p", "extra=2", "--connect", url, "-o", "json")
    given = first.document
    assert (given["name"], given["status"], given["home"]) == ("counted", "succeeded", url)
    assert (given["result"]["words"], given["result"]["data"]) == (7, ["a.txt", "b.txt"]), (
        "declared inputs travel alone"
    )
    assert "note: sending " in first.err
    assert "text.md" in first.err or "other files there stay here" in first.err
    shown = here.detent("show", given["run_id"], "--connect", url, "-o", "json").document
    assert shown["file"] == "counting.py:counted"
    again = here.detent("run", "counting.py:counted", "-p", "extra=2", "--connect", url, "-o", "json", "-q")
    assert again.document["steps"]["reused"] == 4
    assert again.err == ""
    wrong = here.detent("run", "counting.py:counted", "-p", "extra=many", "--connect", url, expects=2)
    assert "is an integer" in wrong.err
    assert not here.home.exists(), "nothing ran here"


def test_a_client_submits_a_flow_to_a_server(apart: tuple[Project, Project, Served]) -> None:
    here, _, served = apart
    said = _script(here, served)
    assert said.out.splitlines() == [
        "10 ['a.txt', 'b.txt'] 10 succeeded True False",
        "['read', 'data', 'words', 'page'] True False",
        "RunFailed True True",
        "ANSWER_INVALID succeeded",
        "reuse= is for single functions, and <flow counting:counted> is a flow",
    ], said


def test_a_contract_names_only_files_of_its_own_workspace(apart: tuple[Project, Project, Served]) -> None:
    here, there, served = apart
    kept = digest_text(ContentFiles(there.home / "content").put(b"of another workspace"))
    named = f'{{$file: "{kept}", size: 20, name: a.txt, type: text/plain}}'
    step = f'{{id: read, run: {{python: "counting:read", with: {{file: {named}}}}}}}'
    (here.directory / "foreign.yaml").write_text(f"name: foreign\nsteps:\n  - {step}\n")
    refused = here.detent("run", "foreign.yaml", "--connect", served.told["url"], "-o", "json", expects=None)
    assert (refused.code, refused.document["error"]["code"]) == (2, "CONTENT_UNKNOWN"), refused


def _script(here: Project, served: Served) -> Said:
    ended = subprocess.run(
        [sys.executable, "script.py", served.told["url"]],
        cwd=here.directory,
        env=dict(here.environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Said(ended.returncode, ended.stdout, ended.stderr)
