"""Content that was deleted from a home, wherever it is named: `detent verify` finds it unless the ledger says that it was erased."""

from __future__ import annotations

from contextlib import closing, suppress

import apsw
import pytest

from detent.canon import digest_text
from detent.errors import InvalidInput
from detent.jobs.report import read_report
from detent.jobs.work import WorkReport
from detent.kernel import Job, Run
from detent.ledger import SignedResult
from detent.owner.wiring import Parts
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

CONTRACT = """
name: parts
steps:
  - {id: large, run: {python: "tasks:large"}}
  - {id: told, run: {shell: "printf '%5000s' x; echo 1 > made.txt"}, outputs: {made: made.txt}}
"""
TASKS = """

def large():
    return "x" * 100_000
"""


@pytest.fixture
def done(project: Project) -> Project:
    """A project with a large value, a long output and a file."""
    with (project.directory / "tasks.py").open("a") as tasks:
        tasks.write(TASKS)
    project.write("parts.yaml", CONTRACT)
    project.checked = False
    project.run("parts.yaml")
    return project


def delete(project: Project, digest: bytes) -> None:
    """Delete content behind Detent's back, wherever it lies."""
    with closing(apsw.Connection(str(project.home.ledger))) as database:
        database.execute("DELETE FROM content WHERE digest = ?", (digest,))
        in_database = database.changes()
    stored = [path for path in (project.home.path / "content").rglob("*") if path.is_file()]
    files = [path for path in stored if digest.hex() in "".join(path.parts)]
    for path in files:
        path.unlink()
    assert in_database or files


def parts(project: Project) -> dict[str, bytes]:
    """What the reports of a home name, by what it is."""
    found: dict[str, bytes] = {}
    with Parts().open_reader(project.home.ledger) as reader:
        for digest, _ in reader.content_digests():
            with suppress(InvalidInput):
                report = read_report(SignedResult.parse(reader.content(digest) or b"").body)
                assert isinstance(report, WorkReport)
                pairs = [("value", report.value_content), ("stdout", report.result.stdout.content)]
                pairs += [("file", file.digest) for file in report.result.files]
                found.update((what, named) for what, named in pairs if named is not None)
        found.update(("inputs", Run.decode(row.body).inputs_digest) for row in reader.runs())
        found.update(("payload", Job.decode(row.body).payload_digest) for row in reader.jobs())
    return found


@pytest.mark.parametrize("what", ["value", "stdout", "file", "inputs", "payload"])
def test_deleted_content_is_found_whatever_names_it(done: Project, what: str) -> None:
    """X-196: `show`, `logs` and `artifacts` would say that it is gone, and nothing would say why."""
    assert done.json("verify")["ok"]
    digest = parts(done)[what]
    delete(done, digest)
    findings = done.json("verify", code=1)["findings"]
    assert {finding["code"] for finding in findings} == {"CONTENT_MISSING"}
    assert all(digest_text(digest) in finding["message"] for finding in findings)


@pytest.mark.parametrize("what", ["value", "stdout", "file", "inputs", "payload"])
def test_erased_content_is_not_missed(done: Project, what: str) -> None:
    """X-171"""
    assert done("erase", digest_text(parts(done)[what]), "--yes").code == 0
    assert done.json("verify")["ok"]


def test_a_deleted_mark_of_an_erasure_is_found(done: Project) -> None:
    """X-196: the page would say that it was never stored here; and content that came back after an erasure may be deleted again."""
    digest = parts(done)["payload"]
    assert done("erase", digest_text(digest), "--yes").code == 0
    assert done.json("verify")["ok"]
    delete(done, digest)
    (finding,) = done.json("verify", code=1)["findings"]
    assert finding["code"] == "CONTENT_MISSING"
    assert digest_text(digest) in finding["message"]
