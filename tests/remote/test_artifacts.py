"""`detent artifacts --connect`: the files of a platform job, listed and copied from a server as from a home."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.submitted import FILES, draft, needs_sandbox
from tests.executor.runners.rig import execute
from tests.remote.sides import Project, Sides, project, served_project
from tests.serve.served import Served

pytestmark = needs_sandbox


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Served, str]]:
    here = project(tmp_path_factory.mktemp("artifacts"))
    here.detent("init")
    (here.directory / "payload.json").write_text(json.dumps(draft(execute(FILES), workspace_id="local")))
    job = here.detent("submit", "payload.json", "--wait", "-o", "json").document["job_id"]
    with served_project(here) as served:
        yield here, served, job


@pytest.fixture
def sides(
    made: tuple[Project, Served, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Sides:
    here, served, _ = made
    monkeypatch.setenv("XDG_STATE_HOME", here.environment["XDG_STATE_HOME"])
    monkeypatch.setenv("DETENT_KEY", served.token)
    monkeypatch.chdir(tmp_path)
    return Sides(here, served, capsys)


def test_artifacts_are_listed_and_copied_as_from_the_home(
    sides: Sides, made: tuple[Project, Served, str], tmp_path: Path
) -> None:
    job = made[2]
    for words in ([job], [job[:8], "table.csv", "-o", "json"], [job, "none"], ["none"]):
        assert sides.there("artifacts", *words) == sides.here("artifacts", *words)
    near = sides.here("artifacts", job, "--output", "near")
    assert sides.there("artifacts", job, "--output", "there").out.replace("there/", "near/") == near.out
    for name in ("table.csv", "notes.txt"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "near" / name).read_bytes()
    (tmp_path / "there" / "table.csv").write_text("mine")
    refused = sides.there("artifacts", job, "--output", "there")
    assert (refused.code, "exists and is another file" in refused.err) == (2, True)
    assert sides.there("artifacts", job, "table.csv", "--output", "there", "--force").code == 0
    assert (tmp_path / "there" / "table.csv").read_text() == "a,b\n1,2\n"


def test_bytes_with_another_digest_become_no_file(
    sides: Sides, made: tuple[Project, Served, str], tmp_path: Path
) -> None:
    here, _, job = made
    documents = sides.here("artifacts", job, "-o", "json").document["artifacts"]
    notes = next(one for one in documents if one["metadata"]["name"] == "notes.txt")
    kept = next(path for path in here.home.rglob(f"*{notes['digest'].removeprefix('sha256:')[4:]}*") if path.is_file())
    kept.chmod(0o644)
    kept.write_bytes(b"other text\n")
    assert sides.there("artifacts", job, "notes.txt", "--output", "out").code not in {0, 1}
    assert list((tmp_path / "out").iterdir()) == []
