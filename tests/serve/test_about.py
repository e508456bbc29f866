"""The server about itself, and what every answer has."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from detent.access.scopes import BY_ENROLMENT, PUBLIC, WORKER
from detent.access.tokens import make_token
from detent.errors import CODES
from detent.scheduling.attempts import ALL_FAMILIES
from detent.serve.routes import ALL
from detent.serve.table import Route
from detent.version import __version__
from tests.serve.served import Served

ROOT = Path(__file__).resolve().parents[2]


def test_health_readiness_and_version_need_no_credential(served: Served) -> None:
    assert served.get("/healthz", token=None).json == {"status": "ok"}
    ready = served.get("/readyz", token=None).json
    assert (ready["status"], ready["owner"]) == ("ok", "here")
    assert ready["free_bytes"] > 0
    version = served.get("/v1/version", token=None).json
    assert (version["name"], version["version"], version["api"]) == ("detent", __version__, "v1")
    assert version["origin"].startswith("detent/")


def test_the_description_that_is_served_is_the_one_in_docs(served: Served) -> None:
    """CORE-X008"""
    reply = served.get("/v1/openapi.json", token=None)
    assert reply.json == json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    again = served.get("/v1/openapi.json", token=None, headers={"If-None-Match": reply.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == reply.headers["etag"]


def test_metrics_need_a_credential_and_have_every_declared_family(served: Served) -> None:
    """OC-CORE-1041"""
    assert served.get("/metrics", token=None).code == "UNAUTHENTICATED"
    reply = served.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(reply.body.decode())}
    assert {family.name.removesuffix("_total") for family in ALL_FAMILIES} <= families.keys()
    routes = {sample.labels["route"] for sample in families["detent_http_requests"].samples}
    assert "/metrics" in routes
    labels = {name for family in families.values() for sample in family.samples for name in sample.labels}
    assert not labels & {"tenant", "tenant_id", "workspace"}


def test_every_code_of_an_answer_has_a_page(served: Served) -> None:
    for code, entry in CODES.items():
        reply = served.get(f"/problems/{code}", token=None)
        if entry.http_status < 400:
            assert reply.code == "NOT_FOUND"
        else:
            expected = {"code": code, "title": entry.meaning, "status": entry.http_status}
            assert reply.json == {**expected, "retryable": entry.retryable, "exit_code": entry.exit_code}
    browser = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
    page = served.get("/problems/QUEUE_FULL", token=None, headers=browser)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.body == served.get("/login", token=None, headers=browser).body


def test_a_slash_behind_the_address_of_a_page_is_the_same_page(served: Served) -> None:
    page = served.get("/login", token=None)
    for path in ("/login/", "/w/demo/", "/w/demo/runs/", "/w/demo/runs/run-1/"):
        assert served.get(path, token=None).body == page.body, path
    for path in ("/login//", "/w/", "/v1/jobs/", "/healthz/"):
        assert served.get(path).code == "NOT_FOUND", path


@pytest.mark.parametrize("path", ["/healthz", "/v1/jobs", "/nowhere", "/v1/jobs/nope"])
def test_every_answer_has_the_headers_of_protection(served: Served, path: str) -> None:
    headers = served.get(path).headers
    assert headers["detent-request-id"].startswith("req_")
    assert headers["detent-version"] == __version__
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_head_is_answered_where_get_is_and_without_content(served: Served) -> None:
    whole, head = served.get("/healthz"), served.ask("HEAD", "/healthz")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]
    refused = served.ask("HEAD", "/v1/jobs", token=None)
    assert (refused.status, refused.body) == (401, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_another_method_is_refused_with_those_that_are_taken(served: Served, method: str) -> None:
    reply = served.ask(method, "/v1/counts")
    assert (reply.status, reply.code) == (405, "METHOD_NOT_ALLOWED")
    assert reply.headers["allow"] == "GET, HEAD"


def test_an_impossible_accept_is_refused(served: Served) -> None:
    reply = served.get("/v1/jobs", headers={"Accept": "text/html"})
    assert (reply.status, reply.code) == (406, "NOT_ACCEPTABLE")
    assert served.get("/v1/jobs", headers={"Accept": "application/*"}).status == 200


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1/nope", "/V1/jobs", "/v1/jobs/a/nope", "/problems", "/static/none"]
)
def test_an_address_without_a_route_is_not_found(served: Served, path: str) -> None:
    assert (served.get(path).status, served.get(path).code) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("limit=0", "query.limit"),
        ("limit=201", "query.limit"),
        ("limit=x", "query.limit"),
        ("limit=", "query.limit"),
        ("limit=1&limit=2", "query"),
        ("limit", "query"),
        ("&", "query"),
        ("tenant=other", "query.tenant"),
        ("workspace=other", "query.workspace"),
        ("state=lost", "query.state"),
        ("run=a/b", "query.run"),
        ("cursor=", "query.cursor"),
        ("cursor=AAAA", "query.cursor"),
        ("limit=%ff", "query"),
        ("&".join(f"a{n}=1" for n in range(40)), "query"),
    ],
)
def test_a_query_that_does_not_fit_is_refused_with_the_place(served: Served, query: str, place: str) -> None:
    reply = served.get(f"/v1/jobs?{query}")
    assert (reply.status, reply.code) == (400, "VALIDATION_ERROR")
    assert place in {error["path"] for error in reply.json["errors"]}


def test_a_route_without_a_query_takes_none(served: Served) -> None:
    assert served.get("/healthz?verbose=1").code == "VALIDATION_ERROR"


@pytest.mark.parametrize("token", [None, "", "dtk_", "nonsense", f"dtk_aaaaaaaaaaaa_{'0' * 49}"])
def test_a_request_without_a_valid_credential_learns_nothing(served: Served, token: str | None) -> None:
    known, unknown = served.get("/v1/jobs", token=token), served.get("/v1/jobs/done", token=token)
    assert known.code == unknown.code == "UNAUTHENTICATED"
    assert known.headers["www-authenticate"].startswith("Bearer")
    assert {**known.json, "instance": ""} == {**unknown.json, "instance": ""}


# Workers sign their requests, and enrol with a token in the body: `test_turns` forges both.
OWN_CREDENTIALS = {PUBLIC, BY_ENROLMENT, WORKER}


@pytest.mark.parametrize(
    "route", [route for route in ALL if route.scope not in OWN_CREDENTIALS], ids=lambda route: route.path
)
def test_no_route_but_the_public_ones_is_answered_without_a_credential(served: Served, route: Route) -> None:
    path = re.sub(r"\{\w+\}", "1", route.path)
    for token in (None, make_token("dtk", bytes(40)).text):
        reply = served.ask(route.method, path, token=token)
        while reply.status == 429:  # Wrong credentials are counted, and these are many.
            time.sleep(int(reply.headers["retry-after"]))
            reply = served.ask(route.method, path, token=token)
        assert (reply.status, reply.code) == (401, "UNAUTHENTICATED")


def test_what_belongs_to_another_workspace_is_answered_like_what_never_was(served: Served) -> None:
    """The played home's jobs belong to the tenant `demo`, and the home's own token is of another workspace."""
    for foreign, absent in (("/v1/jobs/done", "/v1/jobs/none"), ("/v1/runs/run-1", "/v1/runs/run-0")):
        one, other = served.get(foreign), served.get(absent)
        assert one.status == other.status == 404
        assert {**one.json, "instance": ""} == {**other.json, "instance": ""}
    assert served.json("/v1/jobs") == {"items": [], "next": None}
    assert served.json("/v1/runs") == {"items": [], "next": None}
    reply = served.ask("POST", "/v1/jobs:read", body=b'{"job_ids":["done","none"]}')
    assert reply.json == {"items": []}
