"""Runs that the server drives: started, waited for, cancelled, retried over HTTP, and gone on with after any kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from detent.canon import decode
from detent.contract import load
from detent.inspect.audit import verify_home
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.runs.driver_host import DriverHost
from detent.runs.record.inputs import RunInputs
from detent.runs.runtime import Runtime
from tests.cli.submitted import needs_sandbox
from tests.serve.keyed import key, post_as
from tests.serve.laboured import Laboured, eventually, offspring, offspring_of, project
from tests.serve.served import ANSWER_SECONDS, Reply, Served, start
from tests.serve.test_events import stream, until
from tests.serve.test_jobs_write import CELL

TWO = """\
name: two
params:
  place: {type: string}
steps:
  - {id: first, run: {python: "tasks:wait", with: {word: first, place: {$param: place}}}}
  - {id: second, needs: [first], run: {python: "tasks:note", with: {word: second, place: {$param: place}}}}
"""
NOTE = """\
name: note
params:
  place: {type: string}
  word: {type: string}
steps:
  - {id: note, run: {python: "tasks:note", with: {word: {$param: word}, place: {$param: place}}}}
"""
FAILS = """\
name: fails
params:
  place: {type: string}
steps:
  - {id: good, run: {python: "tasks:note", with: {word: good, place: {$param: place}}}}
  - {id: bad, needs: [good], retry: 0, run: {python: "tasks:needs_file", with: {place: {$param: place}}}}
"""


@pytest.fixture(scope="module")
def laboured(tmp_path_factory: pytest.TempPathFactory) -> Laboured:
    made = project(tmp_path_factory.mktemp("driven"))
    settings = made.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("[log]", f'[log]\nto = "{made.directory / LOG}"'))
    return made


@pytest.fixture(scope="module")
def served(laboured: Laboured) -> Iterator[Served]:
    server = serve(laboured)
    yield server
    assert server.stop() == 0
    assert verify_home(laboured.home, environment=laboured.environment).ok


def serve(laboured: Laboured) -> Served:
    options = ("--project", str(laboured.directory), "--workers", "1")
    return start(laboured.home.path, laboured.environment, *options)


def post(served: Served, path: str, document: object) -> Reply:
    return served.ask("POST", path, body=json.dumps(document).encode())


def started(served: Served, contract: str, **params: Any) -> str:
    reply = post(served, "/v1/runs", {"contract": contract, "params": params})
    assert reply.status == 202, reply.body
    return str(reply.json["run_id"])


def ended(served: Served, run_id: str) -> str:
    return str(served.json(f"/v1/runs/{run_id}?wait=60")["status"])


@pytest.mark.door("route POST /v1/runs")
def test_a_run_is_on_the_ledger_when_it_is_answered_and_the_server_drives_it(
    served: Served, laboured: Laboured
) -> None:
    run_id = started(served, NOTE, place=str(laboured.directory), word="hello")
    assert served.get(f"/v1/runs/{run_id}").status == 200
    assert ended(served, run_id) == "succeeded"
    assert "hello" in laboured.done()
    assert "--new" not in json.dumps(served.json(f"/v1/runs/{run_id}/explain")), (
        "an option that the caller did not give"
    )


@pytest.mark.door("route POST /v1/runs")
def test_a_contract_with_faults_is_refused_with_line_and_column_and_no_run_begins(served: Served) -> None:
    before = served.json("/v1/runs")["items"]
    reply = post(served, "/v1/runs", {"contract": "name: x\nsteps:\n  - {id: a, run: {python: 3}}\n"})
    assert (reply.status, reply.code) == (422, "CONTRACT_INVALID")
    assert reply.json["errors"][0]["path"].startswith("contract:3:")
    missing = post(served, "/v1/runs", {"contract": NOTE, "params": {"word": "w"}})
    assert (missing.status, missing.code) == (400, "INVALID_PARAMS")
    assert "'place' is required" in missing.json["detail"]
    assert served.json("/v1/runs")["items"] == before


@pytest.mark.door("route POST /v1/runs")
def test_one_operation_is_one_run_and_other_inputs_under_it_are_refused(served: Served, laboured: Laboured) -> None:
    """X-145: the id of the operation follows from the key, so asking twice is one run, and asking otherwise none."""
    params = {"place": str(laboured.directory), "word": "operation"}

    def asked(**changes: str) -> Reply:
        body = json.dumps({"contract": NOTE, "params": params | changes}).encode()
        return served.ask("POST", "/v1/runs", body=body, headers={"Idempotency-Key": "operation"})

    first, again = asked(), asked()
    assert (first.status, again.body, again.headers["detent-replayed"]) == (202, first.body, "true")
    refused = asked(word="another")
    assert (refused.status, refused.code) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert ended(served, first.json["run_id"]) == "succeeded"
    assert asked().body == first.body
    assert laboured.done().count("operation") == 1
    assert "another" not in laboured.done()


CELL_WITH_FILE = """\
import pathlib

def main():
    print("x" * 5000)
    pathlib.Path("/job/out/notes.txt").write_text("two lines\\nof text\\n")
    return 7
"""


@needs_sandbox
@pytest.mark.door("route POST /v1/jobs")
def test_the_platforms_checklist_holds_for_a_job_over_http(served: Served) -> None:
    """JOB-079: execution key, idempotency key, persistence with lifecycle, dedupe and reuse, signed URLs, bounded output."""
    payload = {
        **CELL,
        "inputs": {"object": {"type": "code", "content": {"format": "python", "value": CELL_WITH_FILE}}},
        "output_spec": {"formats": ["json"], "return_stdout": True},
        "limits": {"max_output_kb": 2},
    }
    headers = {"Idempotency-Key": "checklist"}
    first, again = (
        served.ask("POST", "/v1/jobs", body=json.dumps({"payload": payload}).encode(), headers=headers) for _ in "ab"
    )
    assert (first.status, again.body) == (202, first.body)
    job_id = first.json["job_id"]
    job = served.json(f"/v1/jobs/{job_id}?wait=60")
    assert job["status"] == "succeeded", job
    outputs = job["result"]["outputs"]
    assert (len(outputs["stdout"]), outputs["truncated"]) == (2048, ["stdout"])
    records = served.json(f"/v1/jobs/{job_id}/records")["items"]
    assert [one["fields"].get("to_state") for one in records] == [None, "RUNNING", "SUCCEEDED"]
    (file,) = served.json(f"/v1/jobs/{job_id}/artifacts")["items"]
    parts = urlsplit(file["url"])
    assert served.get(f"{parts.path}?{parts.query}", token=None).body == b"two lines\nof text\n"
    assert served.get(f"{parts.path}?{parts.query[:-1]}", token=None).status == 403
    # The same work under no key, and under another, has the same execution key: it is done already.
    for more in ({}, {"Idempotency-Key": "checklist, later"}):
        known = served.ask("POST", "/v1/jobs", body=json.dumps({"payload": payload}).encode(), headers=more)
        assert (known.status, known.json["job_id"], known.json["deduplicated"]) == (200, job_id, True)
    other = {**payload, "limits": {"max_output_kb": 3}}
    fresh = post(served, "/v1/jobs", {"payload": other})
    assert (fresh.status, fresh.json["deduplicated"]) == (202, False)


@pytest.mark.door("route POST /v1/contracts:validate")
def test_a_contract_is_checked_and_planned_without_running(served: Served, laboured: Laboured) -> None:
    good = post(served, "/v1/contracts:validate", {"contract": NOTE}).json
    assert (good["ok"], good["name"], good["steps"], good["findings"]) == (True, "note", 1, [])
    bad = post(served, "/v1/contracts:validate", {"contract": "name: x\nsteps: 3\n"}).json
    assert (bad["ok"], bad["findings"][0]["line"], bad["findings"][0]["column"]) == (False, 2, 8)
    params = {"place": str(laboured.directory), "word": "planned"}
    plan = post(served, "/v1/contracts:plan", {"contract": NOTE, "params": params}).json
    assert [(step["step"], step["verdict"]) for step in plan["steps"]] == [("note", "run")]
    assert "planned" not in laboured.done()


CHECKER = """
import socket
import sys
from detent.inspect import contract_checker

contract_checker.CPU_SECONDS = 1
contract_checker.Checker(socket.socket(fileno=int(sys.argv[1]))).run()
"""


def test_a_contract_that_takes_too_long_is_refused_and_the_next_is_looked_at(laboured: Laboured) -> None:
    many = "name: many\nsteps:\n" + "".join(f"  - {{id: s{n}, run: {{shell: 'true'}}}}\n" for n in range(60_000))
    asked = {"mode": "check", "home": str(laboured.home.path), "base": None, "name": "contract", "workspace": "local"}
    ours, theirs = socket.socketpair()
    line = [sys.executable, "-c", CHECKER, str(theirs.fileno())]
    with ours, subprocess.Popen(line, pass_fds=(theirs.fileno(),)) as process:
        theirs.close()
        with ours.makefile("rwb") as link:
            for number, text in enumerate((many, NOTE)):
                link.write(json.dumps({"id": number, "text": text, **asked}).encode() + b"\n")
            link.flush()
            said = {one["id"]: one for one in map(json.loads, (link.readline(), link.readline()))}
        ours.shutdown(socket.SHUT_RDWR)
        assert process.wait(ANSWER_SECONDS) == 0
    assert said[0]["error"]["code"] == "CONTRACT_TOO_COSTLY"
    assert said[1]["answer"]["ok"]


@pytest.mark.door("route GET /v1/runs/{run_id}/diff/{other_id}")
def test_two_runs_are_compared_and_a_timeline_tells_every_attempt(served: Served, laboured: Laboured) -> None:
    place = str(laboured.directory)
    one, other = (started(served, NOTE, place=place, word=word) for word in ("old", "new"))
    assert [ended(served, run) for run in (one, other)] == ["succeeded", "succeeded"]
    told = served.json(f"/v1/runs/{one}/diff/{other}")
    assert told["params"] == [{"name": "word", "old": "old", "new": "new"}]
    (step,) = told["steps_changed"]
    (element,) = step["elements"]
    assert [changed["name"] for changed in element["ingredients"]] == ["argument:word"]
    assert element["result_digests"][0] != element["result_digests"][1]
    same = served.json(f"/v1/runs/{one}/diff/{one}")
    assert (same["params"], same["steps_changed"], same["steps_added"], same["complete"]) == ([], [], [], True)
    timeline = served.json(f"/v1/runs/{one}/timeline")
    assert (timeline["step"], timeline["attempt"], timeline["state"]) == (["note"], [1], ["succeeded"])
    assert timeline["started_ms"][0] <= timeline["ended_ms"][0]
    for path in (f"/v1/runs/{one}/diff/absent", f"/v1/runs/absent/diff/{one}", "/v1/runs/absent/timeline"):
        assert served.get(path).code == "UNKNOWN_RUN"


CHAIN = """\
name: chain
params:
  place: {type: string}
steps:
  - {id: quick, run: {python: "tasks:note", with: {word: chain, place: {$param: place}}}}
  - {id: slow, needs: [quick], run: {python: "tasks:wait", with: {word: chain slow, place: {$param: place}}}}
  - {id: last, needs: [slow], run: {python: "tasks:note", with: {word: chain last, place: {$param: place}}}}
"""


@pytest.mark.door("route GET /v1/runs/{run_id}/steps")
def test_only_what_changed_behind_a_position_is_read_again(served: Served, laboured: Laboured) -> None:
    (laboured.directory / "go").unlink(missing_ok=True)
    run_id = started(served, CHAIN, place=str(laboured.directory))
    eventually(lambda: "chain slow" in laboured.begun(), "the second step runs")

    def read(what: str, name: str, since: str) -> Any:
        return served.json(f"/v1/runs/{run_id}/{what}?{name}={since}")

    def steps(since: str) -> list[str]:
        return [step["step"] for step in read("steps", "changed_since", since)["items"]]

    whole = served.json(f"/v1/runs/{run_id}/steps")
    quick = next(step["jobs"][0]["job_id"] for step in whole["items"] if step["step"] == "quick")
    end = served.json(f"/v1/jobs/{quick}/records")["items"][-1]
    at = f"{end['partition']}:{end['position']}"
    assert steps(whole["position"]) == []
    assert steps(at) == ["slow", "last"]  # The last has no record: it waits for one that has.
    assert steps(f"{end['partition']}:{end['position'] - 1}") == ["quick", "slow", "last"]
    assert read("timeline", "since", at)["step"] == ["slow"]
    assert read("timeline", "since", whole["position"])["step"] == []
    assert steps("0:999999999999") == ["quick", "slow", "last"], "a position that the ledger does not have yet"
    assert served.get(f"/v1/runs/{run_id}/steps?changed_since=yesterday").code == "VALIDATION_ERROR"
    laboured.go()
    assert ended(served, run_id) == "succeeded"
    assert steps(whole["position"]) == ["quick", "slow", "last"]


@pytest.mark.door("route POST /v1/trees:missing")
def test_a_run_takes_its_code_from_a_source_tree(served: Served, laboured: Laboured) -> None:
    """T4: what a workspace has not uploaded it cannot name, whether it is there or not."""
    code = b"def note(word, place):\n    return 'from the tree: ' + word\n"
    contract = NOTE.replace("tasks:note", "treed:note").encode() + b"result: {$from: note}\n"
    files = {"flows/note.yaml": contract, "flows/treed.py": code}
    listed = [
        {"path": path, "digest": f"sha256:{sha256(data).hexdigest()}", "size_bytes": len(data)}
        for path, data in files.items()
    ]
    first = post(served, "/v1/trees:missing", {"files": listed}).json
    run = {
        "contract": {"tree": first["tree"], "entry": "flows/note.yaml"},
        "params": {"place": str(laboured.directory), "word": "hi"},
    }
    assert len(first["missing"]) == 3
    assert post(served, "/v1/runs", run).code == "CONTENT_UNKNOWN"
    for data in (*files.values(), first["list"].encode()):
        path = f"/v1/uploads/sha256:{sha256(data).hexdigest()}"
        assert served.ask("PUT", path, body=data, headers={"Content-Type": "application/octet-stream"}).status == 201
    assert post(served, "/v1/trees:missing", {"files": listed}).json["missing"] == []
    reply = post(served, "/v1/runs?wait=60", run)
    assert reply.status == 202, reply.body
    assert ended(served, reply.json["run_id"]) == "succeeded"
    (job,) = served.json(f"/v1/jobs?run={reply.json['run_id']}")["items"]
    assert served.json(f"/v1/jobs/{job['job_id']}")["value"] == "from the tree: hi"
    laid_out = laboured.home.path / "trees" / first["tree"].removeprefix("sha256:") / "flows" / "treed.py"
    laid_out.chmod(0o644)
    laid_out.write_bytes(code.replace(b"from the tree", b"from an enemy"))
    again = post(served, "/v1/runs?wait=60", {**run, "params": {**run["params"], "word": "again"}}).json["run_id"]
    assert ended(served, again) == "succeeded"
    assert laid_out.read_bytes() == code
    (job,) = served.json(f"/v1/jobs?run={again}")["items"]
    assert served.json(f"/v1/jobs/{job['job_id']}")["value"] == "from the tree: again"
    absent = post(served, "/v1/runs", {**run, "contract": {"tree": first["tree"], "entry": "../note.yaml"}})
    assert (absent.status, absent.code) == (422, "TREE_INVALID")
    for path in ("../x", "/etc/passwd", "a/../b", "a\\b"):
        refused = post(served, "/v1/trees:missing", {"files": [{**listed[0], "path": path}]})
        assert (refused.status, refused.code) == (422, "TREE_INVALID")


@pytest.mark.door("route POST /v1/runs/{run_id}/retry")
def test_a_retry_runs_what_failed_and_takes_what_succeeded(served: Served, laboured: Laboured) -> None:
    run_id = started(served, FAILS, place=str(laboured.directory))
    assert ended(served, run_id) == "failed"
    (laboured.directory / "file").touch()
    reply = post(served, f"/v1/runs/{run_id}/retry?wait=60", {})
    assert (reply.status, reply.json["retry_of"]) == (202, run_id)
    retried = reply.json["run_id"]
    assert ended(served, retried) == "succeeded"
    assert laboured.done().count("good") == 1
    assert post(served, f"/v1/runs/{retried}/retry", {}).code == "CONFLICT"
    assert post(served, "/v1/runs/absent/retry", {}).code == "UNKNOWN_RUN"
    with Parts().open_reader(laboured.home.ledger) as reader:
        records = list(reader.records(0, 0, reader.head(0).next_position))
    (action,) = (one for one in records if one.kind == "operated" and b"run.retry" in one.body and b"OK" in one.body)
    (begun,) = (one for one in records if one.kind == "run_started" and one.run_id == retried)
    assert action.batch_no == begun.batch_no, "the record of a retry is in another commit than its effect"
    assert retried.encode() in (action.evidence or b"")


@pytest.mark.door("route POST /v1/runs with Idempotency-Key")
def test_a_key_that_is_used_again_after_its_window_starts_another_run(tmp_path: Path) -> None:
    """Keys count for a millisecond here: each request under one comes after its window."""
    brief = project(tmp_path)
    config = brief.home.path / "config.toml"
    config.write_text(config.read_text().replace("window_ms = 86400000", "window_ms = 1"))
    served = serve(brief)
    body = json.dumps({"contract": NOTE, "params": {"place": str(brief.directory), "word": "daily"}}).encode()
    replies = [served.ask("POST", "/v1/runs", body=body, headers={"Idempotency-Key": "daily"}) for _ in range(2)]
    assert [reply.status for reply in replies] == [202, 202]
    first, second = (reply.json["run_id"] for reply in replies)
    assert first != second
    assert [ended(served, run_id) for run_id in (first, second)] == ["succeeded", "succeeded"]
    assert served.stop() == 0


@pytest.mark.door("route POST /v1/runs/{run_id}/cancel")
def test_a_cancelled_run_ends_and_the_record_says_by_whom(served: Served, laboured: Laboured) -> None:
    (laboured.directory / "go").unlink(missing_ok=True)
    begun = len(laboured.begun())
    run_id = started(served, TWO, place=str(laboured.directory))
    eventually(lambda: len(laboured.begun()) > begun, "the first step runs")
    reply = post(served, f"/v1/runs/{run_id}/cancel", {"reason": "not today"})
    assert reply.status == 200, reply.body
    assert ended(served, run_id) == "cancelled"
    assert post(served, f"/v1/runs/{run_id}/cancel", {}).json["status"] == "cancelled"
    with Parts().open_reader(laboured.home.ledger) as reader:
        records = reader.records(0, 0, reader.head(0).next_position)
        actions = [decode(record.body) for record in records if record.kind == "operated"]
    (action,) = (one for one in actions if isinstance(one, dict) and one["action"] == "run.cancel")
    assert (action["object_id"], action["outcome_code"], action["tenant_id"]) == (run_id, "OK", "local")
    assert post(served, "/v1/runs/absent/cancel", {}).code == "UNKNOWN_RUN"


@pytest.mark.door("route POST /v1/runs/{run_id}/cancel")
def test_a_submitter_cancels_the_runs_that_it_started_and_their_jobs(served: Served, laboured: Laboured) -> None:
    (laboured.directory / "go").unlink(missing_ok=True)
    ann, bob, begun = key(served, "submitter"), key(served, "submitter"), len(laboured.begun())
    body = {"contract": TWO, "params": {"place": str(laboured.directory)}}
    run_id = post_as(served, ann, "/v1/runs", body).json["run_id"]
    eventually(lambda: len(laboured.begun()) > begun, "the first step runs")
    (job,) = served.json(f"/v1/jobs?run={run_id}")["items"]
    for path in (f"/v1/runs/{run_id}/cancel", f"/v1/jobs/{job['job_id']}/cancel"):
        assert post_as(served, bob, path, {}).code == "FORBIDDEN"
    assert served.json(f"/v1/runs/{run_id}")["status"] == "running"
    assert post_as(served, ann, f"/v1/runs/{run_id}/cancel", {}).status == 200
    assert ended(served, run_id) == "cancelled"
    begun = len(laboured.begun())
    retried = post_as(served, bob, f"/v1/runs/{run_id}/retry", {}).json["run_id"]
    eventually(lambda: len(laboured.begun()) > begun, "the first step runs again")
    assert post_as(served, ann, f"/v1/runs/{retried}/cancel", {}).code == "FORBIDDEN", "the retry is bob's"
    assert post_as(served, bob, f"/v1/runs/{retried}/cancel", {}).status == 200
    assert ended(served, retried) == "cancelled"
    listed = {one["run_id"]: one["requested_by"] for one in served.json("/v1/runs")["items"]}
    assert listed[run_id] == served.json(f"/v1/runs/{run_id}")["requested_by"]
    assert listed[run_id] == listed[retried] == "submitter", "the name of both keys"


@pytest.mark.parametrize("killed", ["driver", "server"])
def test_a_run_goes_on_after_a_kill_and_runs_no_step_twice(tmp_path: Path, killed: str) -> None:
    """X-174"""
    laboured = project(tmp_path)
    served = serve(laboured)
    run_id = started(served, TWO, place=str(tmp_path))
    eventually(lambda: laboured.begun() == ["first"], "the first step runs")
    first, host = served, offspring_of(served, "driver_host")
    if killed == "server":
        served.process.kill()
        served.process.wait()
        served = serve(laboured)
    else:
        os.kill(host, signal.SIGKILL)
    laboured.go()
    assert ended(served, run_id) == "succeeded"
    assert laboured.begun() == ["first"]
    assert laboured.done() == ["first", "second"]
    assert served.stop() == 0
    assert verify_home(laboured.home, environment=laboured.environment).ok
    if killed == "server":
        first.process.communicate()


def test_what_drives_runs_starts_when_there_is_one_also_one_that_a_killed_server_left_late(tmp_path: Path) -> None:
    """The driver host of a killed server may record a run after the next server has looked for open ones."""
    laboured = project(tmp_path)
    served = serve(laboured)
    assert not {"driver_host", "contract_checker"} & offspring(served)
    assert post(served, "/v1/contracts:validate", {"contract": TWO}).json["ok"]
    assert {"driver_host", "contract_checker"} & offspring(served) == {"contract_checker"}
    params = {"place": str(tmp_path)}
    asked = {
        "inputs": RunInputs(load(TWO.encode(), base=str(tmp_path)), params).document(),
        "options": {},
        "requested_by": "a killed server",
        "run_id": "left",
        "operation_id": str(UUID(int=1)),
        "workspace": "local",
    }
    with (
        Session(laboured.home, take_over=False) as session,
        Runtime(laboured.home, workers=0, idle=True, session=session) as work,
    ):
        host = DriverHost(laboured.home, work)
        assert host.start(asked)["created"]
        host.stop()
    eventually(lambda: "driver_host" in offspring(served), "the server drives the run")
    laboured.go()
    assert ended(served, "left") == "succeeded"
    assert laboured.done() == ["first", "second"]
    assert served.stop() == 0


EACH = """\
name: each
steps:
  - {id: each, map: {place: PLACES}, retry: 0, run: {python: "tasks:note", with: {word: each}}}
"""


@pytest.mark.door("route GET /v1/runs/{run_id}/steps/{step}/elements")
def test_the_elements_of_a_mapped_step_are_listed_with_state_attempt_and_error(
    served: Served, laboured: Laboured
) -> None:
    good, bad = str(laboured.directory), str(laboured.directory / "nowhere")
    run_id = started(served, EACH.replace("PLACES", json.dumps([good, bad, f"{good}/", f"{good}/."])))
    assert ended(served, run_id) == "failed"
    address = f"/v1/runs/{run_id}/steps/each/elements"
    whole = served.json(address)
    assert (whole["mapped"], whole["total"], whole["next"]) == (True, 4, None)
    assert [one["name"] for one in whole["items"]] == [f"each[{place}]" for place in range(4)]
    failed = whole["items"][1]
    assert (failed["state"], failed["index"], failed["attempt"]) == ("failed", 1, 1)
    assert (failed["error"]["type"], failed["error"]["category"]) == ("FileNotFoundError", "USER_CODE_ERROR")
    assert served.json(f"{address}?state=failed")["items"] == served.json(f"{address}?index=1")["items"] == [failed]
    assert {one["state"] for one in whole["items"] if one is not failed} == {"succeeded"}
    for one in whole["items"]:
        job = served.json(f"/v1/jobs/{one['job_id']}")
        assert (job["run_id"], job["step"], job["label"]) == (run_id, "each", "each/each")
    first = served.json(f"{address}?limit=3")
    rest = served.json(f"{address}?limit=3&cursor={first['next']}")
    assert first["items"] + rest["items"] == whole["items"]
    assert served.get(f"/v1/runs/{run_id}/steps/other/elements").code == "NOT_FOUND"
    assert [one["step"] for one in served.json(f"/v1/runs/{run_id}/steps?q=AC")["items"]] == ["each"]
    assert served.json(f"/v1/runs/{run_id}/steps?q=other")["items"] == []
    assert served.get("/v1/runs/run-0/steps/each/elements").code == "UNKNOWN_RUN"


HALF = """\
name: half
params:
  place: {type: string}
steps:
  - {id: half, run: {python: "tasks:half", with: {place: {$param: place}}}}
  - {id: said, run: {shell: "printf %s \\"$TRACEPARENT\\""}}
"""
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LOG = "log.jsonl"


@pytest.mark.door("setting: [log]", "POST /v1/jobs", "POST /v1/runs")
def test_the_lines_of_a_job_name_the_request_that_it_came_with(served: Served, laboured: Laboured) -> None:
    """OC-CORE-1040: by the id that the answer to the request has, and the access log."""
    shell = "name: logged\nsteps: [{id: one, run: {shell: 'exit 3'}, retry: {max: 0}}]\n"
    run = post(served, "/v1/runs", {"contract": shell})
    run_id = run.json["run_id"]
    assert ended(served, run_id) == "failed"
    task = {"target": "tasks:none_such", "arguments": [], "retries": 0}
    first = post(served, "/v1/jobs", {"task": task})
    assert served.json(f"/v1/jobs/{first.json['job_id']}?wait=40")["status"] == "failed"
    again = post(served, f"/v1/jobs/{first.json['job_id']}/retry", {})
    assert served.json(f"/v1/jobs/{again.json['job_id']}?wait=40")["status"] == "failed"
    retried = post(served, f"/v1/runs/{run_id}/retry", {})
    assert ended(served, retried.json["run_id"]) == "failed"

    def lines(name: str, value: str) -> set[tuple[str, str]]:
        told = map(json.loads, (laboured.directory / LOG).read_text().splitlines())
        return {(line["event"], line["request_id"]) for line in told if line[name] == value}

    for name, value, reply in (
        ("run_id", run_id, run),
        ("job_id", first.json["job_id"], first),
        ("job_id", again.json["job_id"], again),
        ("run_id", retried.json["run_id"], retried),
    ):
        request_id = reply.headers["detent-request-id"]
        eventually(
            lambda: lines(name, value) == {("dispatch", request_id), ("finish", request_id)},  # noqa: B023 - called now
            f"the lines of {value} name {request_id}",
        )


@pytest.mark.door("route GET /v1/events")
def test_progress_of_a_task_is_told_to_those_who_follow_its_run_or_job(served: Served, tmp_path: Path) -> None:
    """Section 2.4: `progress` has no id, and is told live to `run:ID` and `job:ID`. The trace of the request reaches the work."""
    body = json.dumps({"contract": HALF, "params": {"place": str(tmp_path)}}).encode()
    reply = served.ask("POST", "/v1/runs", body=body, headers={"traceparent": TRACE})
    run_id = reply.json["run_id"]
    with stream(served, f"run:{run_id}") as told:
        _, event_id, data = until(told, "progress")[-1]
        assert (event_id, data["run_id"], data["fraction"], data["message"]) == (None, run_id, 0.5, "half of it")
        with stream(served, f"job:{data['job_id']}") as own:
            assert until(own, "progress")[-1][2] == data
        (tmp_path / "go").touch()
    assert ended(served, run_id) == "succeeded"
    assert served.json(f"/v1/jobs/{data['job_id']}")["value"] == TRACE
    said = next(one for one in served.json(f"/v1/runs/{run_id}/steps")["items"] if one["step"] == "said")
    assert served.get(f"/v1/jobs/{said['jobs'][0]['job_id']}/logs").body.decode() == TRACE
