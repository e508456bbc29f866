"""API keys, members and workspaces at the routes and by commands, with a server running."""

from __future__ import annotations

import json
import re
import threading
from base64 import b64decode
from typing import Any

import pytest

from detent.access.scopes import ROLES
from detent.canon import decode, sha256
from tests.homes import RUN
from tests.serve.served import Reply, Served
from tests.serve.shared import OTHER, OWN, Shared, detent
from tests.serve.test_jobs_write import CELL

pytestmark = pytest.mark.door("route: /v1/keys, /v1/members, /v1/workspaces, /v1/me; command: detent keys")
IN_OWN = {"Detent-Workspace": OWN}


def post(served: Served, path: str, document: Any, *, token: str = "own", **headers: str) -> Reply:
    return served.ask("POST", path, body=json.dumps(document).encode(), token=token, headers={**IN_OWN, **headers})


def test_a_key_acts_in_its_own_workspace_with_its_own_scopes(shared: Shared) -> None:
    me = shared.served.get("/v1/me", token=shared.keys["viewer"]).json
    assert (me["workspace"], me["via"], me["csrf"]) == (OWN, "key", None)
    assert me["workspaces"] == [OWN]
    assert me["scopes"] == sorted(ROLES["viewer"])
    assert me["principal"].startswith("p_")
    assert me["name"] == "viewer"
    assert shared.served.get(f"/v1/runs/{RUN}", token=shared.keys["viewer"]).status == 200
    assert shared.served.get(f"/v1/runs/{RUN}", token=shared.keys["other"]).status == 404
    assert shared.served.get(f"/v1/runs/{RUN}").status == 404, "the home's own token acts in the home's own workspace"
    assert shared.served.get(f"/v1/runs/{RUN}", headers=IN_OWN).status == 200


def test_the_secret_is_shown_once_and_kept_nowhere(shared: Shared) -> None:
    made = post(shared.served, "/v1/keys", {"name": "once", "role": "viewer"}).json
    secret, key_id = made["secret"], made["key"]["key_id"]
    assert re.fullmatch(r"dtk_[a-z2-7]{12}_[0-9A-Za-z]{49}", secret)
    listed = (
        shared.served.get("/v1/keys?limit=200", headers=IN_OWN).body
        + shared.served.get("/v1/audit", headers=IN_OWN).body
    )
    assert key_id.encode() in listed
    bare = secret.rpartition("_")[2]
    assert bare.encode() not in listed
    for path in shared.played.home.path.rglob("*"):
        if path.is_file():
            assert bare.encode() not in path.read_bytes(), path
    assert shared.served.get("/v1/jobs", token=secret).status == 200
    assert shared.served.get(f"/v1/keys/{key_id}", headers=IN_OWN).json["last_used_at"] is not None


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"name": "x", "role": "king"}, "body.role"),
        ({"name": "x", "scopes": []}, "body.scopes"),
        ({"name": "x", "scopes": ["jobs:fly"]}, "body.scopes.0"),
        ({"name": "x", "role": "server_admin"}, "body.scopes"),
        ({"name": "x", "role": "viewer", "never_expires": True}, "body.expires"),
        ({"name": "x", "role": "viewer", "expires_days": 401}, "body.expires_days"),
        ({"name": "x", "role": "viewer", "expires_days": 91}, "body.expires"),
        ({"name": "", "role": "viewer"}, "body.name"),
        ({"name": "x" * 101, "role": "viewer"}, "body.name"),
        ({"name": "x", "role": "viewer", "principal": "none"}, "body.principal"),
        ({"name": " x", "role": "viewer"}, "body.name"),
        ({"name": "x\u0007", "role": "viewer"}, "body.name"),
        ({"name": "x", "role": "viewer", "workspace": OTHER}, "body.workspace"),
    ],
)
def test_a_key_beyond_its_maker_or_described_badly_is_refused(shared: Shared, body: Any, path: str) -> None:
    """T1: the workspace of a new key is that of its maker, and a body cannot name another."""
    reply = shared.served.ask("POST", "/v1/keys", body=json.dumps(body).encode(), token=shared.keys["admin"])
    assert (reply.status, reply.code) == (400, "VALIDATION_ERROR")
    assert [error["path"] for error in reply.json["errors"]] == [path]


def test_rotation_keeps_the_old_secret_for_a_day_and_needs_all_that_the_key_may_do(shared: Shared) -> None:
    old = shared.make("turning", role="operator")
    key_id = old.split("_")[1]
    reply = post(shared.served, f"/v1/keys/{key_id}/rotate", {}, token=shared.keys["admin"])
    assert reply.code == "BODY_TOO_LARGE"
    reply = shared.served.ask("POST", f"/v1/keys/{key_id}/rotate", token=shared.keys["admin"])
    assert reply.status == 200, reply.body
    new = reply.json["secret"]
    assert new.split("_")[1] == key_id
    assert new != old
    assert reply.json["key"]["old_secret_until"] is not None
    assert [shared.served.get("/v1/me", token=secret).status for secret in (old, new)] == [200, 200]
    strong = shared.keys["server_admin"].split("_")[1]
    refused = shared.served.ask("POST", f"/v1/keys/{strong}/rotate", token=shared.keys["admin"])
    assert refused.code == "VALIDATION_ERROR"
    assert shared.served.ask("POST", f"/v1/keys/{key_id}/rotate", token=shared.keys["other"]).code == "NOT_FOUND"


def test_revoking_a_key_ends_its_open_streams_at_once(shared: Shared) -> None:
    secret = shared.make("watcher", role="viewer")
    with shared.served.connect() as connection:
        head = f"GET /v1/events?topics=jobs HTTP/1.1\r\nHost: {shared.served.host}\r\nAuthorization: Bearer {secret}\r\n\r\n"
        connection.sendall(head.encode())
        seen = b""
        while b"event: hello" not in seen:
            seen += connection.recv(65536)
        # By a command in another process: the server follows the ledger.
        detent(shared.played, "keys", "revoke", secret.split("_")[1], "--workspace", OWN, "--reason", "lost")
        while piece := connection.recv(65536):
            seen += piece
            if seen.endswith(b"0\r\n\r\n"):
                break
    assert seen.endswith(b"0\r\n\r\n"), "the answer ends in order"
    assert shared.served.get("/v1/me", token=secret).code == "UNAUTHENTICATED"
    listed = shared.served.get("/v1/keys?revoked=true&limit=200", headers=IN_OWN).json["items"]
    assert [key["state"] for key in listed if key["name"] == "watcher"] == ["revoked"]
    (last,) = shared.served.get(f"/v1/audit?object={secret.split('_')[1]}&action=key.revoke", headers=IN_OWN).json[
        "items"
    ]
    assert (last["principal"], last["outcome"], last["reason"], last["route"]) == (
        "p_local",
        "OK",
        "lost",
        "detent keys revoke",
    )


def test_a_lower_role_ends_what_a_member_may_no_longer_do(shared: Shared) -> None:
    served = shared.served

    def put(role: str) -> Reply:
        body = json.dumps({"role": role, "name": "ann"}).encode()
        return served.ask("PUT", "/v1/members/p_ann", body=body, token=shared.keys["admin"])

    assert put("operator").json["name"] == "ann"
    key = post(
        served, "/v1/keys", {"name": "of ann", "role": "operator", "principal": "p_ann"}, token=shared.keys["admin"]
    )
    assert key.json["key"]["principal"] == "p_ann"
    secret = key.json["secret"]
    assert "runs:cancel" in served.get("/v1/me", token=secret).json["scopes"]
    assert put("viewer").status == 200
    assert served.get("/v1/me", token=secret).json["scopes"] == sorted(ROLES["viewer"])
    assert put("server_admin").code == "VALIDATION_ERROR"
    assert served.get("/v1/members/p_ann", token=shared.keys["other"]).code == "NOT_FOUND"
    assert served.ask("DELETE", "/v1/members/p_ann", token=shared.keys["admin"]).status == 204
    assert served.get("/v1/me", token=secret).code == "UNAUTHENTICATED"
    left = served.get("/v1/members", token=shared.keys["admin"]).json["items"]
    assert "p_ann" not in {member["principal"] for member in left}


def test_only_the_server_admin_sees_and_makes_workspaces(shared: Shared) -> None:
    served = shared.served
    assert post(served, "/v1/workspaces", {"workspace": "mine"}, token=shared.keys["admin"]).code == "FORBIDDEN"
    names = [one["workspace"] for one in served.get("/v1/workspaces").json["items"]]
    assert names == sorted(names)
    assert {OWN, OTHER, "local"} <= set(names)
    plan = {"workspace": "planned", "name": "Planned", "plan": {"network_access": True, "timeout_ms": 1000}}
    made = post(served, "/v1/workspaces", {**plan, "quotas": {"stored_bytes": 5}})
    assert made.status == 201, made.body
    assert made.headers["location"] == "/v1/workspaces/planned"
    assert _given(made.json["plan"]) == plan["plan"]
    assert _given(made.json["quotas"]) == {"stored_bytes": 5}
    assert post(served, "/v1/workspaces", plan).code == "CONFLICT"
    for wrong in ({"timeout_ms": -1}, {"fly": 1}, {"network_access": 3}):
        assert post(served, "/v1/workspaces", {"workspace": "w", "plan": wrong}).code == "VALIDATION_ERROR"
    inside = {"Detent-Workspace": "planned"}
    bounded = served.ask("POST", "/v1/jobs", body=_payload(timeout_ms=2_000), headers=inside)
    assert (bounded.status, bounded.code) == (403, "PLAN_EXCEEDED"), "its plan holds in place of the settings"
    assert served.ask("POST", "/v1/jobs", body=_payload(timeout_ms=900), headers=inside).status == 202
    upload = {**inside, "Content-Type": "application/octet-stream"}
    large = f"/v1/uploads/sha256:{sha256(b'123456').hex()}"
    assert served.ask("PUT", large, body=b"123456", headers=upload).code == "UPLOAD_QUOTA"
    small = f"/v1/uploads/sha256:{sha256(b'12345').hex()}"
    assert served.ask("PUT", small, body=b"12345", headers=upload).status == 201
    changed = served.ask("PATCH", "/v1/workspaces/planned", body=b'{"quotas": {"streams": 3}}')
    assert (changed.json["plan"], _given(changed.json["quotas"]), changed.json["name"]) == (
        None,
        {"streams": 3},
        "Planned",
    )
    assert served.ask("PATCH", "/v1/workspaces/none", body=b"{}").code == "NOT_FOUND"
    (last,) = served.get("/v1/audit?server=true&action=workspace.change").json["items"]
    assert (last["object_id"], last["outcome"], last["workspace"]) == ("planned", "OK", None)
    audit = f"/v1/audit?server=true&action=workspace.change&since={last['at']}"
    assert served.json(audit)["items"] == [last]
    assert served.json(f"{audit}&until={last['at']}")["items"] == []
    assert served.get("/v1/audit?since=1794970399570").code == "VALIDATION_ERROR"
    assert served.get("/v1/audit?server=true", token=shared.keys["admin"]).code == "FORBIDDEN"


def _given(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}


def test_a_workspace_that_is_not_the_keys_own_is_refused_whether_it_exists_or_not(shared: Shared) -> None:
    """T1, T3"""
    replies = [
        shared.served.get("/v1/me", token=shared.keys["admin"], headers={"Detent-Workspace": name})
        for name in (OTHER, "nowhere", "", "../demo")
    ]
    bodies = [re.sub(rb"req_[0-9a-f]+", b"req", reply.body) for reply in replies]
    assert {reply.status for reply in replies} == {403}
    assert len(set(bodies)) == 1
    assert replies[0].code == "WORKSPACE_MISMATCH"
    assert shared.served.get("/v1/me", token=shared.keys["admin"], headers=IN_OWN).status == 200


def test_refused_attempts_are_recorded_once_a_second_and_then_counted(shared: Shared) -> None:
    served, secret = shared.served, shared.make("pusher", role="viewer")
    principal = served.get("/v1/me", token=secret).json["principal"]
    for _ in range(20):
        assert post(served, "/v1/keys", {"name": "x", "role": "viewer"}, token=secret).code == "FORBIDDEN"
    found: list[Any] = []
    while sum(one["parameters"].get("attempts", 1) for one in found) < 20:
        found = served.get(f"/v1/audit?principal={principal}&action=key.create", headers=IN_OWN).json["items"]
    assert {one["outcome"] for one in found} == {"FORBIDDEN"}
    assert sum(one["parameters"].get("attempts", 1) for one in found) == 20
    assert len(found) <= 12


def test_keys_made_at_the_same_time_are_all_made(shared: Shared) -> None:
    replies: list[Reply] = []
    body = {"name": "crowd", "role": "viewer"}
    threads = [threading.Thread(target=lambda: replies.append(post(shared.served, "/v1/keys", body))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [reply.status for reply in replies] == [201] * 8
    assert len({reply.json["key"]["key_id"] for reply in replies}) == 8


def test_keys_members_and_workspaces_are_listed_in_pages(shared: Shared) -> None:
    for path in ("/v1/keys", "/v1/workspaces", "/v1/audit"):
        whole = shared.served.get(f"{path}?limit=200", headers=IN_OWN).json["items"]
        paged: list[Any] = []
        cursor = ""
        while True:
            page = shared.served.get(f"{path}?limit=3{cursor}", headers=IN_OWN).json
            paged += page["items"]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert paged == whole, path


def test_every_action_can_be_proved_from_its_bytes(shared: Shared) -> None:

    served = shared.served
    newest = served.get("/v1/audit?limit=1", headers=IN_OWN).json["items"][0]
    proof = served.get(f"/v1/audit/{newest['record']}", headers=IN_OWN).json
    body = decode(b64decode(proof["record_body"]))
    assert isinstance(body, dict)
    assert (body["action"], body["principal_id"]) == (newest["action"], newest["principal"])
    assert body["evidence_digest"] == sha256(b64decode(proof["evidence"]))
    told = served.get(f"/v1/ledger/proof/{newest['batch']}?size={proof['size']}", headers=IN_OWN).json
    assert (told["root"], told["leaf"], told["path"]) == (proof["root"], proof["leaf"], proof["path"])
    foreign = served.get(f"/v1/audit/{newest['record']}", token=shared.keys["other"])
    absent = served.get("/v1/audit/0:999999999", token=shared.keys["other"])
    assert (foreign.code, foreign.json["detail"]) == (absent.code, absent.json["detail"])


def test_the_ledger_with_operators_actions_verifies(shared: Shared) -> None:
    assert detent(shared.played, "verify")["ok"]


def _payload(**limits: int) -> bytes:
    """A platform job as a request has it."""
    return json.dumps({"payload": {**CELL, "limits": limits}}).encode()
