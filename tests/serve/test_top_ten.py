"""The OWASP API top ten of 2023, a test for each, and the tenancy invariants T2, T8 and T9.

T1, T3, T4, T5, T6 and T7 are in the matrix (test_matrix.py), with keys (test_keys.py), runs (test_driven_runs.py) and workers (test_turns.py);
their docstrings name them. Each test here is an example at the door of what the matrix, the fuzzer and the corpora ask of every route.
"""

from __future__ import annotations

import ast
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from detent import serve
from detent.access.scopes import ANY, PUBLIC, ROLES, SCOPES
from detent.kernel import Job
from detent.owner.wiring import Parts
from detent.serve.routes import ALL
from tests.homes import RUN
from tests.rooms import findings
from tests.serve.matrix import BODIES, address
from tests.serve.served import Reply, play, serving
from tests.serve.shared import OTHER, OWN, Shared
from tests.serve.test_jobs_write import CELL

pytestmark = pytest.mark.door("route: all of them")


def asked(shared: Shared, role: str, method: str, path: str, document: Any = None, **headers: str) -> Reply:
    body = None if document is None else json.dumps(document).encode()
    return shared.served.ask(method, path, body=body, token=shared.keys[role], headers=headers)


def comparable(reply: Reply) -> tuple[int, set[str], Mapping[str, Any]]:
    return reply.status, set(reply.headers), {**reply.json, "instance": ""}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", "/v1/jobs/{job}"), ("GET", "/v1/jobs/{job}/logs"), ("POST", "/v1/jobs/{job}/cancel")),
        *(("POST", "/v1/jobs/{job}/retry"), ("GET", "/v1/jobs/{job}/records"), ("GET", "/v1/jobs/{job}/artifacts")),
        *(("GET", "/v1/runs/{run}"), ("GET", "/v1/runs/{run}/steps/a/elements"), ("POST", "/v1/runs/{run}/cancel")),
        *(("GET", "/v1/runs/{run}/diff/{run}"), ("GET", "/v1/runs/{run}/bundle"), ("POST", "/v1/runs/{run}/retry")),
    ],
)
def test_api1_an_object_of_another_workspace_does_not_exist(shared: Shared, method: str, path: str) -> None:
    """API1:2023 broken object level authorization"""
    document: dict[str, str] | None = {} if method == "POST" else None
    foreign, absent = (
        asked(shared, "other", method, path.format(job=job, run=run), document)
        for job, run in (("done", RUN), ("nowhere", "run-0"))
    )
    assert foreign.status == 404
    assert comparable(foreign) == comparable(absent)
    assert asked(shared, "server_admin", "GET", "/v1/jobs/done").status == 200, "and it is there for its own"


def test_api2_a_credential_counts_only_whole_in_force_and_for_what_it_was_made(shared: Shared) -> None:
    """API2:2023 broken authentication"""
    secret = shared.keys["viewer"]
    assert shared.served.get("/v1/me", token=secret).status == 200
    login = shared.served.told["login"].partition("#")[2] if "login" in shared.served.told else "dtl_x"
    wrong = [secret[:-1], secret.swapcase(), secret.replace("dtk_", "dtl_"), login, shared.keys["expired"]]
    for token in [*wrong, shared.keys["revoked"]]:
        reply = shared.served.get("/v1/me", token=token)
        assert (reply.status, reply.code) == (401, "UNAUTHENTICATED")
        assert token not in reply.body.decode()
    for path in (f"/v1/me?token={secret}", f"/v1/me?access_token={secret}", f"/v1/me?key={secret}"):
        assert shared.served.get(path, token=None).status in {400, 401}, (
            "an address is logged and shared: no key counts in it"
        )


def test_api3_no_property_is_taken_or_told_that_the_api_does_not_name(shared: Shared) -> None:
    """API3:2023 broken object property level authorization: mass assignment, and rows that leak"""
    for document in (
        {"payload": {**CELL, "workspace_id": OTHER}},
        {"payload": {**CELL, "requested_by": {"user_id": "p_ann"}}},
        {"payload": CELL, "tenant_id": OTHER},
        {"task": {"target": "a:b", "arguments": [], "requested_by": "p_ann"}},
        {"task": {"target": "a:b", "arguments": []}, "priority": 9, "role": "admin"},
    ):
        assert asked(shared, "server_admin", "POST", "/v1/jobs", document).status in {400, 403}, document
    made = asked(
        shared, "admin", "POST", "/v1/keys", {"name": "x", "role": "viewer", "scopes": None, "made_by": "home"}
    )
    assert made.code == "VALIDATION_ERROR"
    for path in ("/v1/keys", "/v1/jobs/done", "/v1/me", "/v1/members", "/v1/runs"):
        text = asked(shared, "admin", "GET", path).body.decode()
        assert not any(
            f'"{name}"' in text for name in ("uri", "secret", "previous", "body", "tenant_id", "lease_id")
        ), path
    for route in ALL:
        for model in (route.query, route.body):
            assert model is None or model.model_config.get("extra") == "forbid", route.name


def test_api4_what_a_request_may_cost_is_bounded(shared: Shared) -> None:
    """API4:2023 unrestricted resource consumption"""
    deep = "[" * 200 + "]" * 200
    for path, body, code in (
        ("/v1/jobs:read", json.dumps({"job_ids": ["x"] * 501}), "VALIDATION_ERROR"),
        ("/v1/jobs:read", " " * 300_000 + "{}", "BODY_TOO_LARGE"),
        ("/v1/jobs:batch", json.dumps({"items": [{"task": {"target": "a:b"}}] * 1_001}), "VALIDATION_ERROR"),
        ("/v1/jobs", f'{{"task": {{"target": "a:b", "arguments": {deep}}}}}', "NOT_STRICT_JSON"),
        ("/v1/jobs", '{"task": {"target": "a:b", "target": "c:d"}}', "NOT_STRICT_JSON"),
    ):
        reply = shared.served.ask("POST", path, body=body.encode(), token=shared.keys["server_admin"])
        assert (reply.code, reply.status // 100) == (code, 4), path
    for query in ("limit=201", "limit=0", "limit=1e9", f"cursor={'A' * 5_000}"):
        assert asked(shared, "viewer", "GET", f"/v1/jobs?{query}").code == "VALIDATION_ERROR"
    topics = ",".join(f"job:j{number}" for number in range(51))
    assert asked(shared, "viewer", "GET", f"/v1/events?topics={topics}").code == "VALIDATION_ERROR"


def test_api5_every_route_is_refused_to_a_role_that_lacks_its_scope(shared: Shared) -> None:
    """API5:2023 broken function level authorization"""
    refused = 0
    for route in ALL:
        if route.scope not in SCOPES or route.scope in ROLES["viewer"]:
            continue
        body = BODIES.get(route.name, None if route.body is None else {})
        reply = asked(shared, "viewer", route.method, address(route, {}), body)
        assert (reply.status, reply.code) == (403, "FORBIDDEN"), route.name
        assert route.scope in reply.json["detail"] or route.scope in str(reply.json.get("hint")), (
            "which scope is missing"
        )
        refused += 1
    assert refused > 40
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        assert asked(shared, "server_admin", method, "/v1/jobs").status == 405, "no other method opens a route"


def test_api6_a_workspace_cannot_take_more_than_its_share(shared: Shared) -> None:
    """API6:2023 unrestricted access to sensitive business flows"""
    served = shared.served
    body = {"workspace": "flood", "quotas": {"writes_per_second": 1}}
    assert served.ask("POST", "/v1/workspaces", body=json.dumps(body).encode()).status in {201, 409}
    made = served.ask(
        "POST", "/v1/keys", body=b'{"name": "f", "role": "operator"}', headers={"Detent-Workspace": "flood"}
    )
    token = made.json["secret"]

    def open_session() -> Reply:
        return served.ask("POST", "/v1/sessions", body=b"{}", token=token)

    replies = [open_session() for _ in range(20)]
    limited = [one for one in replies if one.status == 429]
    assert limited
    assert {one.code for one in limited} == {"RATE_LIMITED"}
    assert all(1 <= int(one.headers["retry-after"]) <= 60 for one in limited)
    assert asked(shared, "operator", "POST", "/v1/sessions", {}).status == 201, "others go on"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1", "[::ffff:10.0.0.1]", "localhost"]
)
def test_api7_no_request_makes_the_server_reach_an_address_inside(shared: Shared, host: str) -> None:
    """API7:2023 server side request forgery"""
    hook = {"url": f"https://{host}/", "events": ["run.ended"]}
    assert asked(shared, "admin", "POST", "/v1/webhooks", hook).code == "URL_REFUSED"


def test_api8_every_answer_is_safe_as_it_comes(shared: Shared) -> None:
    """API8:2023 security misconfiguration"""
    pages = ("/login", "/v1/version", "/v1/me", "/v1/nowhere", "/healthz", "/v1/jobs/nowhere", "/problems/QUEUE_FULL")
    for path in pages:
        reply = shared.served.get(path, headers={"Origin": "https://evil.example"})
        assert reply.headers["x-content-type-options"] == "nosniff", path
        assert "default-src 'none'" in reply.headers["content-security-policy"], path
        assert not {"server", "x-powered-by", "access-control-allow-origin"} & set(reply.headers), path
        assert "Traceback" not in reply.body.decode(), path
    assert shared.served.get("/v1/version", headers={"Host": "evil.example"}).code == "HOST_REFUSED"
    assert shared.served.get("/metrics", token=None).status == 401


def test_api9_what_is_served_is_the_table_and_nothing_else(shared: Shared) -> None:
    """API9:2023 improper inventory management"""
    told = shared.served.json("/v1/openapi.json")["paths"]
    served = {(method.upper(), path) for path, methods in told.items() for method in methods if method != "head"}
    assert served >= {(route.method, route.path) for route in ALL if route.path.startswith("/v1/")}
    assert {path for _, path in served} <= {route.path for route in ALL}
    for path in (
        "/v0/jobs",
        "/v2/jobs",
        "/jobs",
        "/v1",
        "/v1/",
        "/v1/jobs/",
        "/docs",
        "/admin",
        "/debug",
        "/.git/config",
        "/static/../x",
    ):
        assert asked(shared, "server_admin", "GET", path).status in {400, 404}, path
    assert {route.name for route in ALL if route.scope in {PUBLIC, ANY} and route.method != "GET"} <= {
        *("POST /v1/login", "DELETE /v1/login", "POST /v1/workers"),
    }


def test_api10_the_server_asks_no_other_service_and_deliveries_are_jobs() -> None:
    """API10:2023 unsafe consumption of APIs: nothing is called but the receivers of webhooks, by a job of its own"""
    clients = {"http.client", "urllib.request", "urllib3", "httpx", "requests", "aiohttp"}
    found = set()
    for path in Path(serve.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {one.name for one in node.names} if isinstance(node, ast.Import) else set()
            names |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
            if names & clients:
                found.add(path.name)
    assert found == {"deliver.py"}


def test_t2_handlers_cannot_reach_a_reader_that_takes_no_workspace() -> None:
    """T2"""
    for line in (
        *("from detent.store.api import StoreReader", "import detent.store.sqlite.reader"),
        *("from detent.owner.wiring import Parts", "from detent.owner.content import Content"),
    ):
        assert findings(line, "detent.serve.routes.new"), line
        assert not findings(line, "detent.serve.new"), line


def test_t8_equal_work_of_another_workspace_answers_for_nothing(shared: Shared) -> None:
    """T8, X-148: neither a result nor work under way nor uploaded bytes of one workspace serve another."""
    body = {"payload": {**CELL, "document_revision_id": "t8"}, "in_flight": "join"}
    own, again = (asked(shared, "server_admin", "POST", "/v1/jobs", body) for _ in range(2))
    assert (own.status, again.status, again.json["job_id"]) == (202, 200, own.json["job_id"])
    other = asked(shared, "other", "POST", "/v1/jobs", body)
    assert (other.status, other.json["deduplicated"]) == (202, False)
    assert other.json["job_id"] != own.json["job_id"]
    assert asked(shared, "other", "GET", f"/v1/jobs/{own.json['job_id']}").status == 404


def test_t9_a_damaged_payload_harms_its_own_job_only(tmp_path: Path) -> None:
    """T9"""
    played = play(tmp_path)
    with Parts().open_reader(played.home.ledger) as reader:
        row = reader.job("done")
        assert row is not None
        digest = Job.decode(row.body).payload_digest
    with closing(sqlite3.connect(played.home.ledger_file)) as ledger, ledger:
        assert ledger.execute("UPDATE content SET bytes = x'00ff' WHERE digest = ?", (digest,)).rowcount == 1
    with serving(played) as served:
        body = json.dumps({"workspace": OWN}).encode()
        assert served.ask("POST", "/v1/workspaces", body=body).status == 201

        def get(path: str) -> Reply:
            return served.get(path, headers={"Detent-Workspace": OWN})

        damaged = get("/v1/jobs/done")
        assert damaged.status == 200 or damaged.code == "STORE_CORRUPT"
        assert damaged.status == 500 or damaged.json["label"] is None
        listed = {one["job_id"] for one in get("/v1/jobs?limit=200").json["items"]}
        assert {"done", "broken", "waiting"} <= listed
        for path in ("/v1/jobs/broken", "/v1/jobs/waiting", "/v1/runs", f"/v1/runs/{RUN}", "/v1/counts", "/v1/queue"):
            assert get(path).status == 200, path
        assert served.get("/readyz", token=None).status == 200
