"""Schedules at the routes: the server starts a run for every occurrence, once, also when it is killed; and stops when it is told to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from detent.cli.app import run
from detent.inspect.audit import verify_home
from tests.serve.laboured import Laboured, eventually, project
from tests.serve.served import Reply, Served, start

pytestmark = pytest.mark.door("route: /v1/schedules")

NOTE = '{python: "tasks:note", with: {word: {$param: word}, place: {$param: place}}}'
SAID = """{shell: 'printf %s "$TRACEPARENT"'}"""
TICK = f"""\
name: tick
schedule: {{every: 1s}}
params:
  place: {{type: string}}
  word: {{type: string}}
steps:
  - {{id: note, run: {NOTE}}}
"""
NIGHTLY = TICK.replace("tick", "nightly").replace("{every: 1s}", '{cron: "0 3 * * 1-5", timezone: Europe/Berlin}')


class Rig:
    """The server, which a test may kill and start again."""

    def __init__(self, laboured: Laboured) -> None:
        self.laboured = laboured
        self.begin()

    def begin(self) -> None:
        options = ("--project", str(self.laboured.directory), "--workers", "1")
        self.served: Served = start(self.laboured.home.path, self.laboured.environment, *options)

    def post(self, path: str, document: Any, **options: Any) -> Reply:
        return self.served.ask("POST", path, body=json.dumps(document).encode(), **options)

    def body(self, contract: str, word: str) -> dict[str, Any]:
        params = {"place": str(self.laboured.directory), "word": word}
        return {"contract": contract, "params": params, "options": {"force": True}}

    def create(self, contract: str, word: str) -> str:
        reply = self.post("/v1/schedules", self.body(contract, word))
        assert reply.status == 201, reply.body
        return str(reply.json["schedule_id"])

    def delete(self, schedule_id: str) -> None:
        assert self.served.ask("DELETE", f"/v1/schedules/{schedule_id}").status == 204

    def one(self, schedule_id: str) -> Any:
        return self.served.json(f"/v1/schedules/{schedule_id}")

    def runs(self, schedule_id: str) -> list[str]:
        """The runs of a schedule, in the order of their occurrences."""
        address = f"{self.one(schedule_id)['links']['runs']}&limit=200"
        return [run["run_id"] for run in self.served.json(address)["items"]]

    def until_started(self, schedule_id: str, count: int) -> list[str]:
        eventually(lambda: len(self.runs(schedule_id)) >= count, f"{count} runs of {schedule_id}")
        return self.runs(schedule_id)

    def audited(self, schedule_id: str) -> list[str]:
        """What was done with a schedule, oldest first."""
        found = self.served.json(f"/v1/audit?object={schedule_id}&limit=200")["items"]
        return [one["action"] for one in reversed(found)]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(project(tmp_path_factory.mktemp("scheduled")))
    yield rig
    assert rig.served.stop() == 0
    laboured = rig.laboured
    assert verify_home(laboured.home, environment=laboured.environment).ok


def test_a_schedule_starts_a_run_for_every_occurrence_and_says_what_comes_next(rig: Rig) -> None:
    reply = rig.post("/v1/schedules", rig.body(TICK, "every"))
    assert (reply.status, reply.json["when"]) == (201, "every 1s")
    schedule_id = reply.json["schedule_id"]
    assert reply.headers["location"] == f"/v1/schedules/{schedule_id}"
    first, second = rig.until_started(schedule_id, 2)[:2]
    shown = rig.one(schedule_id)
    assert (shown["name"], shown["state"], shown["schedule"]) == ("tick", "active", {"every": "1s"})
    assert len(shown["upcoming"]) == 5
    assert shown["next_at"] == shown["upcoming"][0] > shown["last"]["scheduled_for"] >= reply.json["next_at"]
    assert shown["failure"] is None
    detail = rig.served.json(f"/v1/runs/{first}?wait=60")
    assert detail["status"] == "succeeded"
    assert detail["occurrence"]["schedule_id"] == schedule_id
    listed = {one["run_id"]: one for one in rig.served.json("/v1/runs")["items"]}
    assert listed[first]["schedule_id"] == schedule_id
    assert listed[first]["requested_by"] == detail["requested_by"]
    assert first < second
    assert rig.laboured.done().count("every") >= 1
    rig.delete(schedule_id)
    assert rig.audited(schedule_id) == ["schedule.create", "schedule.delete"]


def test_runs_of_a_schedule_belong_to_the_trace_of_the_request_that_made_it(rig: Rig) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    said = TICK.replace("tick", "said").replace(NOTE, SAID)
    reply = rig.post("/v1/schedules", rig.body(said, "traced"), headers={"traceparent": trace})
    assert reply.status == 201, reply.body
    first = rig.until_started(reply.json["schedule_id"], 1)[0]
    rig.delete(reply.json["schedule_id"])
    assert rig.served.json(f"/v1/runs/{first}?wait=60")["status"] == "succeeded"
    (step,) = rig.served.json(f"/v1/runs/{first}/steps")["items"]
    assert rig.served.get(f"/v1/jobs/{step['jobs'][0]['job_id']}/logs").body.decode() == trace


def test_a_paused_schedule_starts_no_further_run_until_it_is_resumed(rig: Rig) -> None:
    paused, witness = rig.create(TICK, "paused"), rig.create(TICK, "witness")
    rig.until_started(paused, 1)
    reply = rig.post(f"/v1/schedules/{paused}/pause", {})
    assert (reply.status, reply.json["state"], reply.json["next_at"]) == (200, "paused", None)
    before = rig.runs(paused)
    rig.until_started(witness, len(rig.runs(witness)) + 2)
    assert rig.runs(paused) == before
    assert rig.post(f"/v1/schedules/{paused}/pause", {}).json["state"] == "paused"
    states = {one["schedule_id"]: one["state"] for one in rig.served.json("/v1/schedules?state=paused")["items"]}
    assert states == {paused: "paused"}
    resumed = rig.post(f"/v1/schedules/{paused}/resume", {}).json
    assert (resumed["state"], resumed["missed"]) == ("active", None)
    after = rig.until_started(paused, len(before) + 1)
    detail = rig.served.json(f"/v1/runs/{after[len(before)]}")
    assert detail["occurrence"]["missed"] is None, "what a pause left out was not missed"
    rig.delete(paused)
    rig.delete(witness)
    assert rig.audited(paused) == ["schedule.create", "schedule.pause", "schedule.resume", "schedule.delete"]


def test_no_occurrence_is_lost_or_started_twice_when_the_server_is_killed(rig: Rig) -> None:
    schedule_id = rig.create(TICK, "killed")
    rig.until_started(schedule_id, 2)
    rig.served.kill()
    two_later = time.time() + 2.5
    while time.time() < two_later:  # Occurrences pass without a server.
        time.sleep(0.1)
    rig.begin()
    rig.until_started(schedule_id, len(rig.runs(schedule_id)) + 1)
    rig.post(f"/v1/schedules/{schedule_id}/pause", {})
    runs = rig.runs(schedule_id)
    details = [rig.served.json(f"/v1/runs/{run_id}?wait=60") for run_id in runs]
    assert {detail["status"] for detail in details} == {"succeeded"}
    moments = [datetime.fromisoformat(detail["occurrence"]["scheduled_for"]) for detail in details]
    assert moments == sorted(set(moments))
    missed = sum(detail["occurrence"]["missed"]["count"] for detail in details if detail["occurrence"]["missed"])
    span = (moments[-1] - moments[0]) // timedelta(seconds=1) + 1
    early = details[0]["occurrence"]["missed"]
    assert len(runs) + missed - (early["count"] if early else 0) == span, (
        "every occurrence ran, or is recorded as missed"
    )
    assert missed > 0
    assert rig.laboured.done().count("killed") >= len(runs), "a job may run again after a kill; none is left out"
    rig.delete(schedule_id)


def test_a_schedule_of_another_workspace_is_as_absent_as_one_that_never_was(rig: Rig) -> None:
    assert rig.post("/v1/workspaces", {"workspace": "other"}).status in {201, 409}
    schedule_id = rig.create(NIGHTLY, "own")
    other = rig.post("/v1/keys", {"name": "other", "role": "admin"}, headers={"Detent-Workspace": "other"}).json[
        "secret"
    ]
    for method, path in (("GET", ""), ("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")):
        body = b"{}" if method == "POST" else None
        foreign, absent = (
            rig.served.ask(method, f"/v1/schedules/{name}{path}", body=body, token=other)
            for name in (schedule_id, "sch_nowhere")
        )
        assert foreign.status == absent.status == 404
        assert foreign.json | {"instance": ""} == absent.json | {"instance": ""}
    assert rig.served.get("/v1/schedules", token=other).json == {"items": [], "next": None}
    assert rig.one(schedule_id)["state"] == "active"
    viewer = rig.post("/v1/keys", {"name": "viewer", "role": "viewer"}).json["secret"]
    assert rig.served.get(f"/v1/schedules/{schedule_id}", token=viewer).status == 200
    assert rig.served.ask("DELETE", f"/v1/schedules/{schedule_id}", token=viewer).code == "FORBIDDEN"
    rig.delete(schedule_id)


def test_a_repeated_request_makes_one_schedule_and_pages_have_each_once(rig: Rig) -> None:
    headers = {"Idempotency-Key": "nightly"}
    first, again = (rig.post("/v1/schedules", rig.body(NIGHTLY, "once"), headers=headers) for _ in range(2))
    assert (first.status, again.body, again.headers["detent-replayed"]) == (201, first.body, "true")
    made = [first.json["schedule_id"], *(rig.create(NIGHTLY, word) for word in ("b", "c"))]
    seen, cursor = list[str](), ""
    while True:
        page = rig.served.json(f"/v1/schedules?limit=2{cursor}")
        seen += [one["schedule_id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == sorted(made)
    assert rig.one(made[0])["when"] == "cron 0 3 * * 1-5 in Europe/Berlin"
    for one in made:
        rig.delete(one)


def test_a_contract_that_cannot_be_scheduled_is_refused_with_what_to_write(rig: Rig) -> None:
    plain = rig.post("/v1/schedules", rig.body(TICK.replace("schedule: {every: 1s}\n", ""), "x"))
    assert (plain.status, plain.code) == (400, "VALIDATION_ERROR")
    assert "schedule: {every: 15m}" in plain.json["hint"]
    zone = rig.post("/v1/schedules", rig.body(NIGHTLY.replace("Berlin", "Berlni"), "x"))
    assert zone.status == 400
    assert "Europe/Berlin" in zone.json["hint"]
    often = rig.post("/v1/schedules", rig.body(TICK.replace("1s", "1ms"), "x"))
    assert (often.status, often.code) == (422, "CONTRACT_INVALID")
    assert rig.served.json("/v1/schedules")["items"] == []


def test_a_deleted_schedule_leaves_no_copy_of_what_it_was_to_run(rig: Rig) -> None:
    secret = "the-patient-is-called-ann"
    schedule_id = rig.create(NIGHTLY, secret)
    home = rig.laboured.home.path

    def stored() -> bool:
        return any(secret.encode() in path.read_bytes() for path in home.rglob("*") if path.is_file())

    assert stored()
    rig.delete(schedule_id)
    assert rig.served.get(f"/v1/schedules/{schedule_id}").code == "NOT_FOUND"
    eventually(lambda: not stored(), "the erasure reached the files")


def test_an_occurrence_that_cannot_be_started_is_told_with_the_reason(rig: Rig) -> None:
    needy = TICK.replace("{id: note, run:", "{id: note, resources: {unicorn: 1}, run:")
    schedule_id = rig.create(needy, "needy")
    eventually(lambda: rig.one(schedule_id)["failure"] is not None, "the failure")
    shown = rig.one(schedule_id)
    assert "unicorn" in shown["failure"]["reason"]
    assert shown["last"] is None
    rig.delete(schedule_id)
    assert rig.audited(schedule_id) == ["schedule.create", "schedule.failed", "schedule.delete"], (
        "told once, not every second"
    )


@pytest.mark.door("command: detent schedules")
def test_commands_create_list_pause_resume_and_delete_a_schedule(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    (tmp_path / "tasks.py").write_bytes((rig.laboured.directory / "tasks.py").read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DETENT_URL", rig.served.told["url"])
    monkeypatch.setenv("DETENT_KEY", rig.post("/v1/keys", {"name": "cli", "role": "submitter"}).json["secret"])

    def detent(*words: str, code: int = 0) -> Any:
        assert run(["schedules", *words, "-o", "json"]) == code
        return json.loads(capsys.readouterr().out)

    made = detent("create", "nightly.yaml", "-p", "place=/tmp", "-p", "word=x", "--force")
    schedule_id = made["schedule_id"]
    (listed,) = detent("list")["schedules"]
    assert (listed["schedule_id"], listed["name"], listed["options"]) == (schedule_id, "nightly", {"force": True})
    assert listed["next_at"] == made["next_at"] is not None
    assert run(["schedules", "list"]) == 0
    assert "cron 0 3 * * 1-5 in Europe/Berlin" in capsys.readouterr().out
    assert detent("pause", schedule_id)["state"] == "paused"
    assert detent("resume", schedule_id)["state"] == "active"
    assert detent("delete", schedule_id) == {"schedule_id": schedule_id}
    assert detent("delete", schedule_id, code=2)["error"]["code"] == "NOT_FOUND"
    assert detent("list") == {"schedules": []}
    monkeypatch.delenv("DETENT_URL")
    assert "--watch" in detent("list", code=2)["error"]["hint"]
