"""Commands that read: the same words, documents and exit codes beside a home and through its server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import detent
from tests.remote.sides import Project, Sides, project, served_project
from tests.serve.served import Served

_AGES = re.compile(r" +\d+[smhd]$", re.MULTILINE)
"""The last column of `detent list`: how long ago, which goes on between two commands."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Served, dict[str, str]]]:
    made = project(tmp_path_factory.mktemp("both"))
    good = made.detent("run", "good.yaml", "-o", "json").document
    bad = made.detent("run", "bad.yaml", "-o", "json", expects=1).document
    (made.directory / "rows.jsonl").write_text("1\n2\n")
    made.detent("map", "--items", "rows.jsonl", "--compute", "tasks.py:double", "--commit", "jsonl:out.jsonl")
    jobs = made.detent("list", "--jobs", "-o", "json").document
    failed = next(job["job_id"] for job in jobs if job["state"] == "failed")
    names = {"GOOD": good["run_id"], "BAD": bad["run_id"], "FAILED": failed}
    names["CHUNK"] = next(job["job_id"] for job in jobs if "/seq-" in job["job_id"])
    with served_project(made) as served:
        yield made, served, names


@pytest.fixture
def sides(
    both: tuple[Project, Served, dict[str, str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Sides:
    made, served, _ = both
    for name in ("DETENT_HOME", "DETENT_URL", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", made.environment["XDG_STATE_HOME"])
    monkeypatch.setenv("DETENT_KEY", served.token)
    monkeypatch.chdir(made.directory)
    return Sides(made, served, capsys)


READS = [
    "list",
    "list --limit 1",
    "list --jobs",
    "list --jobs --state failed",
    "list --run GOOD",
    "list --run doubles",
    "list --jobs --state queued",
    "list --label doubles/double",
    "list --label breaks/fail --state succeeded",
    "list --pool gpu",
    "list --label doubles/double --run GOOD",
    "show GOOD",
    "show doubles",
    "show BAD",
    "show FAILED",
    "show FAILED --raw",
    "show BAD --raw",
    "show GOOD --snapshot",
    "show --run GOOD",
    "show --job GOOD",
    "show CHUNK",
    "explain CHUNK",
    "logs CHUNK",
    "result CHUNK",
    "cancel CHUNK",
    "retry CHUNK",
    "show none-such",
    "explain GOOD",
    "explain GOOD double",
    "explain BAD",
    "explain FAILED",
    "explain none-such",
    "logs GOOD",
    "logs double",
    "logs double --stderr",
    "logs FAILED",
    "logs FAILED --raw",
    "logs BAD -f",
    "logs FAILED -f",
    "logs numbers",
    "logs after --run BAD",
    "logs none-such",
    "result FAILED",
    "result none-such",
]


@pytest.mark.parametrize("line", READS)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_command_says_the_same_through_a_server(
    sides: Sides, both: tuple[Project, Served, dict[str, str]], line: str, form: str
) -> None:
    words = [both[2].get(word, word) for word in line.split()]
    here, there = sides.here(*words, "-o", form), sides.there(*words, "-o", form)
    assert there.code == here.code
    assert _masked(there.err) == _masked(here.err)
    if form == "json":
        assert _plain(json.loads(there.out)) == _plain(json.loads(here.out))
    else:
        assert _masked(there.out) == _masked(here.out)


def test_a_job_whose_id_has_a_slash_is_found_at_every_door(
    sides: Sides, both: tuple[Project, Served, dict[str, str]]
) -> None:
    served, job = both[1], both[2]["CHUNK"]
    path = f"/v1/jobs/{quote(job, safe='')}"
    for below in ("", "/attempts", "/logs", "/explain", "/records", "/artifacts"):
        assert served.get(path + below).status == 200, below
    assert served.json(path)["job_id"] == job
    assert (
        served.ask("POST", "/v1/jobs:read", body=json.dumps({"job_ids": [job]}).encode()).json["items"][0]["job_id"]
        == job
    )
    assert [one["job_id"] for one in served.json(f"/v1/jobs?q={quote(job, safe='')}")["items"]] == [job]
    assert served.ask("POST", f"{path}/cancel", body=b"{}").code == "CONFLICT"
    assert served.get(f"/w/local/jobs/{quote(job, safe='')}").status == 200
    assert served.get(f"/v1/runs/{quote(job, safe='')}").code == "NOT_FOUND"
    with detent.Client(served.told["url"], key=served.token) as client:
        assert client.handle(job).status.value.lower() == "succeeded"
        assert not client.handle(job).cancel()


def test_the_address_may_come_from_the_environment(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETENT_URL", sides.served.told["url"])
    assert sides._run("list").out.startswith("RUN")
    monkeypatch.setenv("DETENT_URL", "http://127.0.0.1:1")
    assert sides.here("list").code == 0, "a home that is named goes before the variable"
    refused = sides._run("list")
    assert (refused.code, "SERVER_UNREACHABLE" in refused.err) == (4, True)


def test_a_wrong_key_address_or_choice_is_told_as_such(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    url = sides.served.told["url"]
    both = sides._run("list", "--connect", url, "--home", ".")
    assert (both.code, "give one of them" in both.err) == (2, True)
    exposed = sides._run("list", "--connect", "http://jobs.example.org")
    assert (exposed.code, "ADDRESS_EXPOSED" in exposed.err) == (3, True)
    monkeypatch.delenv("DETENT_KEY")
    missing = sides.there("list", "-o", "json")
    assert (missing.code, missing.document["error"]["code"]) == (3, "UNAUTHENTICATED")
    assert "DETENT_KEY" in missing.document["error"]["hint"]
    monkeypatch.setenv("DETENT_KEY", "dtk_nonsense")
    mistyped = sides.there("list")
    assert (mistyped.code, "checksum" in mistyped.err, "dtk_nonsense" in mistyped.err) == (3, True, False)


def _masked(text: str) -> str:
    return _AGES.sub("", text)


def _plain(document: Any) -> Any:
    """A document without what an error tells of the request itself."""
    if isinstance(document, dict) and isinstance(document.get("error"), dict):
        details = {name: value for name, value in document["error"]["details"].items() if name != "request_id"}
        return {**document, "error": {**document["error"], "details": details}}
    return document
