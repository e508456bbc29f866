"""Pages of one workspace: what belongs to another does not exist in them, and what is not a page is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from detent.errors import DetentError, InvalidInput, InvariantBroken
from detent.owner.wiring import Parts
from detent.pages.sheet import Cell, Sheet, Told, read_told
from detent.serve.own_rows import SHARED, OwnRows, own_rows
from detent.store.api import StoreReader
from tests.homes import OTHER_RUN, RUN, fresh
from tests.remote.conftest import Connected
from tests.remote.sides import project, served_project
from tests.serve.served import start


@pytest.mark.parametrize("name", [RUN, OTHER_RUN, RUN[:-1], "none"])
@pytest.mark.parametrize("page", ["show", "explain", "find", "result"])
def test_what_another_workspace_has_is_not_found(connected: Connected, page: str, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        connected.http().get(f"/v1/pages/{page}", {"id": name})
    assert caught.value.code in {"UNKNOWN_JOB", "UNKNOWN_RUN", "INVALID_PARAMS"}
    assert RUN not in str(caught.value.hint or "")
    assert OTHER_RUN not in str(caught.value.hint or "")


def test_jobs_of_another_workspace_are_not_listed_or_followed(connected: Connected) -> None:
    http = connected.http()
    listed = http.get("/v1/pages/list", {"jobs": True, "whole": True})
    assert {job["tenant_id"] for job in listed["document"]} <= {"local"}
    with Parts().open_reader(connected.served.home / "ledger.db") as reader:
        job_id = next(row.job_id for row in reader.jobs() if row.tenant_id != "local")
        assert own_rows(reader, "local").job(job_id) is None
    assert http.post("/v1/pages/logs", {"jobs": [{"job_id": job_id}]}) == {"items": [{"log": None}]}
    followed = http.post("/v1/pages/follow", {"job_ids": [job_id], "run_id": RUN})
    assert (followed["pieces"], followed["ended"]) == ([], True)


def test_every_look_at_a_store_is_decided_for_pages(tmp_path: Path) -> None:
    """A method that a later version adds is refused until it is decided whether it finds only the workspace's own rows."""
    names = {name for name in dir(StoreReader) if not name.startswith("_")}
    own = {name for name in names if name in vars(OwnRows)}
    refused = {
        *("answer", "answer_rows", "answers_kept", "close", "content_digests", "erased_digests", "job_heads"),
        *("jobs_outside_work", "jobs_prefixed", "last_run_prefixed", "runs_prefixed", "tenant_counts"),
        *("label", "label_rows", "work_element_rows", "work_rows"),
    }
    assert names <= own | SHARED | refused
    with Parts().open_reader(fresh(tmp_path).home.ledger) as reader, pytest.raises(InvariantBroken):
        own_rows(reader, "local").job_heads()


@pytest.mark.parametrize(
    "seen",
    [
        {"position": -1, "quiet": 0, "failed": False, "jobs": {}},
        {"position": 0, "quiet": 0, "failed": False, "jobs": {"a": []}},
        {"position": 0, "quiet": 0, "failed": False, "jobs": {"a": ["x", 0, 0, True, {"stdout": -5, "stderr": 0}]}},
        {"position": 0, "quiet": 0, "failed": False, "jobs": {"a": ["x", 0, 0, True, {}]}},
        {"position": 0, "quiet": 0, "failed": False, "jobs": {"a": {"b": 1}}},
        {"position": "many", "quiet": 0, "failed": False, "jobs": {}},
    ],
)
def test_a_follower_that_says_nonsense_is_told_so(connected: Connected, seen: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        connected.http().post("/v1/pages/follow", {"job_ids": ["a"], "seen": seen})
    assert caught.value.code == "VALIDATION_ERROR"


def test_a_sheet_is_the_same_after_its_journey() -> None:
    sheet = Sheet()
    sheet.line("a", Cell("b", "bad"))
    sheet.fields([("name", Cell("x")), ("other", "y")], indent="  ")
    sheet.hanging(["lead", Cell("er", "faint")], "text")
    sheet.table(("A", "B"), [["1", Cell("2", "good")]], narrow=(("A",), [["1"]]))
    told = Told({"n": 1}, sheet, ["note"], 3)
    again = read_told(json.loads(json.dumps(told.to_map())))
    assert (again.document, again.notes, again.code) == ({"n": 1}, ["note"], 3)
    assert again.sheet.to_list() == json.loads(json.dumps(sheet.to_list()))


@pytest.mark.parametrize(
    "page",
    [
        [["poem", "roses"]],
        [["line"]],
        [["line", [["text", "blinking"]]]],
        [["line", [7]]],
        [["fields", [["only a name"]], ""]],
        [["table", ["A", "B"], [["1"]], None]],
        [["hanging", ["a"]]],
        "a page",
        None,
    ],
)
def test_what_is_not_a_page_is_not_drawn(page: Any) -> None:
    with pytest.raises(DetentError) as caught:
        read_told({"document": None, "page": page, "notes": [], "exit_code": 0})
    assert caught.value.code == "ANSWER_INVALID"


def test_following_outlasts_a_server_that_is_killed(tmp_path: Path) -> None:
    made = project(tmp_path)
    stop = tmp_path / "go"
    made.detent("init")
    running = subprocess.Popen(
        [sys.executable, "-m", "detent", "run", "waits.yaml", "-p", f"path={stop}", "-q"],
        cwd=made.directory,
        env=made.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with served_project(made, "--workers", "0") as served:
        url, variables = served.told["url"], {**made.environment, "DETENT_KEY": served.token}
        deadline = time.monotonic() + 60
        while "waits" not in made.detent("list", "--connect", url, DETENT_KEY=served.token).out:
            assert time.monotonic() < deadline
        following = subprocess.Popen(
            [sys.executable, "-m", "detent", "logs", "waits", "-f", "--connect", url],
            cwd=made.directory,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert following.stdout is not None
        assert following.stdout.readline() == "wait | waiting\n"
        served.kill()
        assert following.stderr is not None
        assert following.stderr.readline() == f"no answer from {url}; waiting for it, Ctrl-C stops\n"
        again = start(made.home, made.environment, "--port", str(served.port), "--workers", "0")
        try:
            stop.write_text("")
            out, err = following.communicate(timeout=120)
        finally:
            again.stop()
    running.communicate(timeout=120)
    assert (following.returncode, out, err) == (0, "wait | done\n", ""), "nothing is lost and nothing comes twice"
