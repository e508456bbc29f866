"""Bundles and verification over HTTP: a run for its own workspace, the whole ledger for a server's auditors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import detent
from tests.serve.laboured import eventually
from tests.serve.served import ANSWER_SECONDS, Reply
from tests.serve.shared import Shared

CANARY = "canary_of_another_workspace"
BUNDLE = pytest.mark.door("route GET /v1/runs/{run_id}/bundle")


def as_key(shared: Shared, name: str, method: str, path: str, body: object = None) -> Reply:
    data = None if body is None else json.dumps(body).encode()
    return shared.served.ask(method, path, body=data, token=shared.keys[name])


@pytest.fixture(scope="module")
def run_id(shared: Shared) -> str:
    """A run that has ended."""
    runs = as_key(shared, "auditor", "GET", "/v1/runs").json["items"]
    return next(str(run["run_id"]) for run in runs if run["ended_at"] is not None)


def listed(shared: Shared, run_id: str) -> Any:
    """A run as the list of runs shows it."""
    return next(one for one in as_key(shared, "viewer", "GET", "/v1/runs").json["items"] if one["run_id"] == run_id)


@pytest.fixture(scope="module")
def foreign(shared: Shared) -> str:
    """A job of the other workspace, whose words must never leave it."""
    said = {"task": {"target": f"tasks:{CANARY}", "arguments": [CANARY], "label": CANARY}}
    reply = as_key(shared, "other", "POST", "/v1/jobs", said)
    assert reply.status == 202, reply.body
    job_id = str(reply.json["job_id"])
    as_key(shared, "other", "POST", f"/v1/jobs/{job_id}/cancel", {"reason": CANARY})
    return job_id


def verified(shared: Shared, key: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def done() -> bool:
        found.update(as_key(shared, key, "GET", path).json)
        return found["state"] in {"done", "failed"}

    eventually(done, "the verification has ended")
    return found


@BUNDLE
def test_a_bundle_of_a_run_verifies_offline_against_its_root(shared: Shared, run_id: str, tmp_path: Path) -> None:
    reply = as_key(shared, "auditor", "GET", f"/v1/runs/{run_id}/bundle")
    assert reply.status == 200, reply.body
    assert reply.headers["content-disposition"] == f'attachment; filename="{run_id}.detent"'
    assert int(reply.headers["content-length"]) == len(reply.body)
    file = tmp_path / "run.detent"
    file.write_bytes(reply.body)
    line = [sys.executable, "-m", "detent", "verify", str(file), "--root", reply.headers["detent-root"], "-o", "json"]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (json.loads(ended.stdout)["run_id"], json.loads(ended.stdout)["ok"]) == (run_id, True)
    assert not detent.verify(file, "sha256:" + "0" * 64).ok
    actions = as_key(shared, "auditor", "GET", "/v1/audit?action=export").json["items"]
    assert (actions[0]["object_id"], actions[0]["outcome"]) == (run_id, "OK")


@BUNDLE
def test_a_bundle_of_a_run_holds_nothing_of_another_workspace(shared: Shared, run_id: str, foreign: str) -> None:
    """T1, T3: not its words, not its ids; and its run is as absent as one that never was."""
    bundle = as_key(shared, "auditor", "GET", f"/v1/runs/{run_id}/bundle").body
    assert run_id.encode() in bundle
    for word in (CANARY, foreign):
        assert word.encode() not in bundle
    for path in ("bundle", "verify"):
        theirs = as_key(shared, "other", "GET", f"/v1/runs/{run_id}/{path}")
        absent = as_key(shared, "other", "GET", f"/v1/runs/absent/{path}")
        assert (theirs.status, theirs.code) == (absent.status, absent.code) == (404, "UNKNOWN_RUN")
    assert as_key(shared, "other", "POST", f"/v1/runs/{run_id}/verify", {}).code == "UNKNOWN_RUN"
    assert as_key(shared, "viewer", "GET", f"/v1/runs/{run_id}/bundle").code == "FORBIDDEN"


@pytest.mark.door("route POST /v1/runs/{run_id}/verify")
def test_a_verification_says_what_it_proves_and_what_not(shared: Shared, run_id: str) -> None:
    path = f"/v1/runs/{run_id}/verify"
    assert listed(shared, run_id)["verified"] is None
    begun = as_key(shared, "viewer", "POST", path, {})
    assert (begun.status, begun.json["state"]) == (202, "running")
    again = as_key(shared, "viewer", "POST", path, {})
    assert again.json["state"] in {"running", "done"}
    found = verified(shared, "viewer", path)
    assert (found["state"], found["ok"], found["findings"]) == ("done", True, [])
    assert found["proved"]
    assert found["not_proved"]
    assert found["root"].startswith("sha256:")
    told = {name: found[name] for name in ("state", "ok", "started_at", "ended_at")}
    assert listed(shared, run_id)["verified"] == told
    assert as_key(shared, "other", "GET", "/v1/runs/absent/verify").code == "UNKNOWN_RUN"


@pytest.mark.door("route GET /v1/ledger/bundle")
def test_the_whole_ledger_is_for_auditors_of_the_server_alone(shared: Shared, foreign: str, tmp_path: Path) -> None:
    secret = shared.make("server auditor", scopes=["server:audit", "ledger:read"])
    shared.keys["server_auditor"] = secret
    for name in ("auditor", "admin", "other"):
        for path in ("/v1/ledger/bundle", "/v1/ledger/verify"):
            assert as_key(shared, name, "GET", path).code == "FORBIDDEN"
    bundle = as_key(shared, "server_auditor", "GET", "/v1/ledger/bundle")
    assert bundle.status == 200, bundle.body
    assert foreign.encode() in bundle.body
    file = tmp_path / "ledger.detent"
    file.write_bytes(bundle.body)
    assert detent.verify(file, bundle.headers["detent-root"]).ok
    assert as_key(shared, "server_auditor", "GET", "/v1/ledger/verify").json["state"] in {"never", "done"}
    assert as_key(shared, "server_auditor", "POST", "/v1/ledger/verify", {}).status == 202
    found = verified(shared, "server_auditor", "/v1/ledger/verify")
    assert (found["state"], found["ok"]) == ("done", True), found
    assert found["not_proved"]
