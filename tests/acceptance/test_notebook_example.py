"""The notebook of the examples: cells, formulas, thumbnails and a PDF, made by platform jobs in the sandbox of the product."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.project import WAIT_SECONDS, Project, detent_home, project
from tests.cli.submitted import needs_sandbox

__all__ = ["detent_home", "project"]

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook"
JOBS = 8


@pytest.fixture
def notebook(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example, as the working directory."""
    copy = project.directory / "notebook"
    shutil.copytree(NOTEBOOK, copy, ignore=shutil.ignore_patterns(".detent", "out", "__pycache__"))
    monkeypatch.chdir(copy)
    return copy


def made(project: Project, directory: Path) -> str:
    """Run the notebook's program as its README says; what it prints."""
    ended = subprocess.run(
        [sys.executable, "notebook.py"],
        cwd=directory,
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS * 2,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def size_of(png: Path) -> tuple[int, int]:
    """Width and height, as the header of a PNG has them."""
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@needs_sandbox
def test_a_notebook_is_executed_rendered_and_exported_by_platform_jobs(project: Project, notebook: Path) -> None:
    """JOB-005, JOB-007, JOB-008, JOB-009, JOB-010, JOB-042, JOB-044, JOB-045, JOB-046, JOB-047, JOB-050"""
    assert made(project, notebook).splitlines() == [
        f"{JOBS} jobs ran, 0 were answered by earlier ones",
        "swings: 7; see out/document/document.pdf",
    ]
    out = notebook / "out"
    pdf = (out / "document" / "document.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    assert "A damped oscillator" in (out / "document" / "document.html").read_text()
    assert len((out / "samples" / "samples.csv").read_text().splitlines()) == 402
    assert (out / "motion" / "formula.svg").read_text().count("<svg") == 1
    for name in ("motion", "half", "curve"):
        width, height = size_of(out / f"{name}-thumbnail" / "thumbnail.png")
        assert max(width, height) <= 160
    jobs = {job["job_id"]: project.json("show", job["job_id"]) for job in project.json("list", "--jobs")}
    assert len(jobs) == JOBS
    for job in jobs.values():
        assert (job["tenant_id"], job["job_kind"], job["state"]) == ("physics", "platform", "succeeded")
        assert job["timeline"]["history"] == ["pending", "queued", "running", "succeeded"]
        assert project.json("result", job["job_id"])["result"]["environment"]["sandbox"].startswith("full")
    classes = {job["order"]["target"]["job_type"]: job["priority"] for job in jobs.values()}
    assert classes == {"object_render": 10, "thumbnail_generate": 10, "object_execute": 5, "document_export": 1}


@needs_sandbox
def test_a_notebook_made_again_runs_nothing_and_gives_the_same_bytes(project: Project, notebook: Path) -> None:
    """JOB-005, JOB-026, JOB-078"""
    made(project, notebook)
    out = notebook / "out"
    before = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    shutil.rmtree(out)
    assert made(project, notebook).startswith(f"0 jobs ran, {JOBS} were answered by earlier ones\n")
    assert {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    source = json.loads((notebook / "notebook.json").read_text())
    source["cells"][2]["parameters"]["damping"] = 0.3
    (notebook / "notebook.json").write_text(json.dumps(source))
    assert made(project, notebook).startswith(f"{JOBS} jobs ran, 0 were answered")
