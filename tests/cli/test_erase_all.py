"""`detent erase` takes everything that only a job or a run names, at once: no file of the home has the bytes afterwards."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.canon import sha256
from detent.inspect import audit
from detent.owner.content import Content
from detent.owner.wiring import Parts
from detent.runs.find_jobs import find_jobs
from detent.sdk.client import Client
from tests.cli.project import WAIT_SECONDS, Project, detent_home, project

__all__ = ["detent_home", "project"]

WORK = """\
import detent


@detent.task
def make(secret: str, size: int) -> dict:
    print("printed", secret, size, "p" * size)
    return {
        "value": f"returned {secret} {size} " + "v" * size,
        "file": detent.File.from_bytes(f"bytes {secret} {size}".encode() + b"b" * size, name="made.bin"),
    }


@detent.task(outputs={"page": "page.html"})
def page(made: dict) -> str:
    with open("page.html", "w") as file:
        file.write("shared page")
    return made["file"].name


@detent.task
def hand_on(made: dict) -> detent.File:
    return made["file"]


def twice(item: str) -> str:
    return f"computed {item}"


@detent.flow
def secrets(secret: str = "nightingale"):
    return [make(secret, 10), make(secret, 100_000)]


@detent.flow
def shared():
    made = make("osprey", 10)
    return [page(made), hand_on(made)]
"""


@pytest.fixture
def work(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    project.write("secrets_work.py", WORK)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(project.directory)
    yield project
    sys.modules.pop("secrets_work", None)


def run(work: Project, flow: str, *more: str) -> dict[str, Any]:
    document: dict[str, Any] = work.json("run", flow, "--workers", "1", *more)
    return document


def files_with(home: Path, text: str) -> list[str]:
    """Every file of the home that has the text anywhere in it."""
    paths = [path for path in home.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(home)) for path in paths if text.encode() in path.read_bytes())


def jobs(work: Project, run_id: str) -> dict[str, str]:
    """Jobs of a run by their steps."""
    with Parts().open_reader(work.home.ledger) as reader:
        found = find_jobs(reader, Content(reader, work.home.content_files()), run_id).jobs
    return {job.step: job.job_id for job in found if not job.reused}


def test_nothing_of_an_erased_job_is_left_in_any_file_of_the_home(work: Project) -> None:
    """X-171, PIPE-057: payload, report, streams, large values and files, in the database, its log and beside it."""
    done = run(work, "secrets_work.py:secrets")
    home = work.home.path
    assert len(files_with(home, "nightingale")) >= 4  # The database, and a value, a stream and a file beside it.
    for job_id in jobs(work, done["run_id"]).values():
        erased = work.json("erase", "--job", job_id)
        assert len(erased["erased"]) >= 3
        assert (erased["stays"], erased["in_log"]) == ([], False)
    # The run itself was started with the secret; that goes with the run.
    assert files_with(home, "nightingale") == files_with(home, '"secret":"nightingale"')
    work.json("erase", "--run", done["run_id"])
    assert files_with(home, "nightingale") == []
    verified = work.json("verify")
    assert verified["ok"]
    assert any("erased on purpose" in sentence for sentence in verified["proved"])


def test_a_run_is_erased_with_its_jobs_and_its_inputs(work: Project) -> None:
    """X-171: in one command, while a client has the home open too; a dry run says the same and does nothing."""
    done = run(work, "secrets_work.py:secrets")
    other = run(work, "secrets_work.py:secrets", "-p", "secret=heron")
    home = work.home.path
    planned = work.json("erase", "--run", done["run_id"], "--dry-run")
    assert planned["dry_run"]
    assert files_with(home, "nightingale") != []
    with Client(home, workers=1):
        erased = work.json("erase", "--run", done["run_id"])
        assert erased["erased"] == planned["erased"]
        assert erased["jobs"] == 2
        assert erased["in_log"] is False
        assert files_with(home, "nightingale") == []
    assert len(files_with(home, "heron")) >= 4
    assert work.json("erase", "--run", done["run_id"])["erased"] == []
    assert work("verify").code == 0
    assert work.json("show", other["run_id"])["status"] == "succeeded"


def test_an_erased_map_leaves_no_item_behind(work: Project) -> None:
    """X-171: items, chunks and results of an ordered run."""
    rows = work.write("rows.jsonl", '"kingfisher 1"\n"kingfisher 2"\n')
    done = work.json(
        "map", "--items", rows, "--compute", "secrets_work.py:twice", "--commit", "jsonl:out.jsonl", "--workers", "1"
    )
    assert files_with(work.home.path, "kingfisher") != []
    work.json("erase", "--run", done["run_id"])
    assert files_with(work.home.path, "kingfisher") == []
    assert work("verify").code == 0


def test_what_others_name_stays_and_is_listed_with_who_names_it(work: Project) -> None:
    """X-171: a file that another job returned stays for it; the result that was only referred to goes."""
    done = run(work, "secrets_work.py:shared")
    found = jobs(work, done["run_id"])
    told = work("erase", "--job", found["make"], "--dry-run").out
    assert f"kept, because job {found['hand_on']} refers to it too: sha256:" in told
    erased = work.json("erase", "--job", found["make"])
    assert [(one["what"], one["named_by"]) for one in erased["stays"]] == [
        ("file, value or output", f"job {found['hand_on']}")
    ]
    assert set(erased["used_by"]) == {found["page"], found["hand_on"]}
    kept = work.home.content_files().get(bytes.fromhex(erased["stays"][0]["digest"].removeprefix("sha256:")))
    assert kept == b"bytes osprey 10" + b"b" * 10
    assert work("verify").code == 0


def test_explain_and_plan_blame_the_erasure_and_not_the_code(work: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-171: a step that ran again because its earlier job was erased, although its code had changed before that.

    It leaves the same page again, whose bytes were erased: they are here by right, until another submission brings them back.
    """
    run(work, "secrets_work.py:shared")
    work.write("secrets_work.py", WORK.replace('"shared page"', '"the page"'))
    sys.modules.pop("secrets_work")
    second = run(work, "secrets_work.py:shared")
    page = jobs(work, second["run_id"])["page"]
    work.json("erase", "--job", page)
    assert f"job {page}, which did it before, was erased" in " ".join(
        work("plan", "secrets_work.py:shared").out.split()
    )
    third = run(work, "secrets_work.py:shared")
    told = " ".join(work("explain", jobs(work, third["run_id"])["page"]).out.split())
    assert f"It had been done as job {page} of run {second['run_id']}, which was erased on purpose since" in told
    assert "changed" not in told
    assert work.json("explain", jobs(work, third["run_id"])["page"])["reuse"]["kind"] == "erased"
    assert work("verify").code == 0
    with monkeypatch.context() as small:
        small.setattr(audit, "CONTENT_LOADED_MAX", 1)  # Every file is one that is not read whole.
        assert work("verify").code == 0
    content = work.home.content_files()
    last = jobs(work, third["run_id"])["page"]
    work.json("erase", "--job", last)
    assert not content.has(sha256(b"the page"))
    content.put(b"the page")
    done = work("verify")
    assert (done.code, "CONTENT_NOT_ERASED" in done.out) == (1, True)
    content.erase(sha256(b"the page"))


def test_what_has_not_ended_and_what_is_not_there_is_refused(work: Project) -> None:
    for arguments, said in (
        (("--run", "nix"), "there is no run 'nix'"),
        (("--run", "a", "--job", "b"), "name digests, or a job with --job, or a run with --run"),
    ):
        done = work("erase", *arguments)
        assert (done.code, said in done.err) == (2, True), done


def test_a_terminal_is_asked_first(work: Project) -> None:
    """With the list of what goes; `--yes` answers beforehand, and a script is not asked."""
    done = run(work, "secrets_work.py:secrets")
    told = on_terminal(work, "n\n", "erase", "--run", done["run_id"])
    assert "would erase" in told
    assert "Erase this for good? [y/N]" in told
    assert "nothing was erased" in told
    assert files_with(work.home.path, "nightingale") != []
    assert "erased" in on_terminal(work, "y\n", "erase", "--run", done["run_id"])
    assert files_with(work.home.path, "nightingale") == []


def on_terminal(work: Project, typed: str, *arguments: str) -> str:
    """What a command shows on a terminal at which something is typed."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    process = subprocess.Popen(
        [sys.executable, "-m", "detent", *arguments],
        cwd=work.directory,
        env=work.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    told = b""
    try:
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # How the end of a terminal is told.
                break
            if not piece:
                break
            told += piece
        process.wait(WAIT_SECONDS)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return told.decode().replace("\r", "")


def test_the_name_of_a_workflow_that_ran_once_erases_that_run(project: Project) -> None:
    path = project.write("one.yaml", 'name: once\nsteps: [{id: a, run: {shell: "echo nightingale"}}]\n')
    run_id = project.run(path)["run_id"]
    assert project.json("erase", "--run", "once", "--dry-run")["erased"]
    project.run(path, "--force")
    refused = project("erase", "--run", "once")
    assert (refused.code, "2 runs are named 'once'" in refused.err, run_id in refused.err) == (2, True, True)
    assert project.json("erase", "--run", run_id, "--yes")["erased"]
