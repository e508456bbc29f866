"""TLS, proxies and rates: what a server believes about its callers, and how often it answers them."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from detent.access.forwarded import caller_of, is_proxy, scheme_of
from detent.serve.limits import Rates
from tests.homes import fresh
from tests.serve.served import ANSWER_SECONDS, Served, play, serving
from tests.serve.shared import detent
from tests.serve.test_browser import link_of, log_in
from tests.serve.test_start import attempt

pytestmark = pytest.mark.door(
    "command: detent serve --behind-proxy, --trust-proxy-header, --tls-cert; setting: [access]"
)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose proxy is this machine, which names users in a header."""
    played = play(tmp_path_factory.mktemp("proxied"))
    detent(played, "keys", "member", "set", "p_ann", "--name", "ann", "--role", "operator")
    detent(played, "keys", "member", "set", "p_twin1", "--name", "twin", "--role", "operator")
    detent(played, "keys", "member", "set", "p_twin2", "--name", "twin", "--role", "operator")
    options = ("--behind-proxy", "127.0.0.1/32", "--trust-proxy-header", "Remote-User", "--allow-host", "jobs.example")
    with serving(played, *options) as served:
        yield served


def test_a_proxy_names_a_member_who_needs_the_marks_of_our_own_pages(proxied: Served) -> None:
    ann = {"Remote-User": "ann", "Host": "jobs.example", "X-Forwarded-Proto": "https"}
    me = proxied.get("/v1/me", token=None, headers=ann).json
    assert (me["principal"], me["via"], me["workspace"]) == ("p_ann", "proxy", "local")
    assert "keys:write" not in me["scopes"]
    body = b'{"job_ids": ["x"]}'
    forged = proxied.ask("POST", "/v1/jobs:read", body=body, token=None, headers=ann)
    assert forged.code == "CSRF_REFUSED"
    own = {**ann, "Origin": "https://jobs.example", "Detent-CSRF": me["csrf"]}
    assert proxied.ask("POST", "/v1/jobs:read", body=body, token=None, headers=own).status == 200
    for user in ("bob", "twin", "p_ann", "", "ann, bob"):
        refused = proxied.get("/v1/me", token=None, headers={**ann, "Remote-User": user})
        assert refused.code == "UNAUTHENTICATED", user
    assert proxied.get("/v1/me", headers=ann).json["principal"] == "p_local", "a key is judged by itself"


def test_cookies_are_secure_where_the_proxy_speaks_tls(proxied: Served) -> None:
    tls = {"Host": "jobs.example", "X-Forwarded-Proto": "https"}
    reply = log_in(proxied, link_of(proxied), **tls)
    cookie, *marks = reply.headers["set-cookie"].split("; ")
    assert cookie.startswith("__Host-detent=")
    assert "Secure" in marks
    assert not any(mark.startswith("Domain") for mark in marks)
    assert proxied.get("/v1/me", token=None, headers={**tls, "Cookie": cookie}).json["via"] == "session"
    port = proxied.host.rpartition(":")[2]
    plain = {"Host": proxied.host, "Cookie": cookie.replace("__Host-detent", f"detent-{port}")}
    assert proxied.get("/v1/me", token=None, headers=plain).status == 200
    assert proxied.get("/v1/me", token=None, headers={"Host": proxied.host, "Cookie": cookie}).status == 401


def test_what_is_forwarded_counts_only_from_the_proxy(shared: Any) -> None:
    """The shared server has no proxy: its callers can say what they like."""
    headers = {"Remote-User": "ann", "X-Forwarded-For": "192.0.2.9", "X-Forwarded-Proto": "https"}
    assert shared.served.get("/v1/me", token=None, headers=headers).code == "UNAUTHENTICATED"
    reply = log_in(shared.served, link_of(shared.served), **{"X-Forwarded-Proto": "https"})
    assert reply.headers["set-cookie"].startswith("detent-")


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "192.0.2.9", "192.0.2.9"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.9", "192.0.2.9"),
        ("10.0.0.1", "192.0.2.9, 10.0.0.7", "192.0.2.9"),
        ("10.0.0.1", "10.0.0.8, 10.0.0.7", "10.0.0.8"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.9, nonsense", "10.0.0.1"),
        ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "192.0.2.9", "192.0.2.9"),
        ("192.0.2.1", "6.6.6.6", "192.0.2.1"),
        ("unknown", "6.6.6.6", "unknown"),
        ("10.0.0.1", ", ".join(["6.6.6.6"] * 100), "6.6.6.6"),
        ("10.0.0.1", "", "10.0.0.1"),
    ],
)
def test_the_last_address_that_is_not_a_proxy_is_the_callers(peer: str, forwarded: str | None, expected: str) -> None:
    networks = [ip_network("10.0.0.0/8")]
    assert caller_of(peer, forwarded, networks) == expected
    assert is_proxy("10.255.0.1", networks)
    assert not is_proxy("11.0.0.1", networks)
    assert [scheme_of(said, "http") for said in (None, "https", "http, https", "HTTPS", "ftp")] == [
        *("http", "https", "https", "https", "http")
    ]


@pytest.mark.parametrize(
    "options",
    [("--trust-proxy-header", "Remote-User"), ("--behind-proxy", "127.0.0.1/32", "--trust-proxy-header", "a b")],
)
def test_a_header_that_anyone_could_send_is_not_trusted(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, document, _ = attempt(fresh(tmp_path), *options)
    assert (code, document["error"]["code"]) == (2, "INVALID_PARAMS")


def test_tls_is_spoken_with_the_given_certificate(tmp_path: Path) -> None:
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    made = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True, timeout=ANSWER_SECONDS)
    home = tmp_path / "home"
    home.mkdir()
    with serving(play(home), "--tls-cert", str(certificate), "--tls-key", str(key)) as served:
        assert served.told["url"].startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(certificate))

        def ask(method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
            line = http.client.HTTPSConnection("127.0.0.1", served.port, timeout=ANSWER_SECONDS, context=context)
            with closing(line):
                line.request(method, path, body=body, headers=headers)
                answer = line.getresponse()
                return answer.status, answer.getheader("set-cookie") or ""

        assert ask("GET", "/healthz") == (200, "")
        assert ask("GET", "/v1/me", Authorization=f"Bearer {served.token}") == (200, "")
        body = json.dumps({"token": Path(served.told["login_file"]).read_text().strip().partition("#")[2]}).encode()
        own = {"Content-Type": "application/json", "Origin": served.told["url"]}
        status, cookie = ask("POST", "/v1/login", body, **own)
        assert status == 201
        assert cookie.startswith(f"__Host-detent-{served.told['url'].rpartition(':')[2]}=")
        with pytest.raises((OSError, http.client.HTTPException)):
            served.get("/healthz")  # Plain HTTP gets no answer.


def test_rates_are_settings_and_a_refusal_says_when_to_come_back(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    with (played.home.path / "config.toml").open("a") as settings:
        settings.write(
            "\n[access]\nreads_per_second = 1\nfailures_per_second = 1\nlogins_per_minute = 2\nstreams = 1\n"
        )
    with serving(played) as served:
        statuses = [served.get("/v1/me").status for _ in range(12)]
        assert statuses[:4] == [200] * 4, "four seconds' worth may come at once"
        assert 429 in statuses
        reply = served.get("/v1/me")
        while reply.status != 429:
            reply = served.get("/v1/me")
        assert reply.code == "RATE_LIMITED"
        assert reply.headers["retry-after"] == "1"
        assert reply.headers["ratelimit-policy"] == '"reads";q=4;w=4'
        assert served.get("/healthz", token=None).status == 200, "what needs no credential goes on"
        failures = [served.get("/v1/me", token="dtk_x").status for _ in range(20)]
        assert failures[0] == 401
        assert 429 in failures
        logins = [log_in(served, "x").status for _ in range(4)]
        assert logins[:2] == [401, 401]
        assert logins[3] == 429
    assert attempt_with(tmp_path / "bad", "\n[access]\nreads_per_second = 0\n") == "HOME_INVALID"
    assert attempt_with(tmp_path / "worse", "\n[access]\nread_per_second = 1\n") == "HOME_INVALID"


def attempt_with(directory: Path, written: str) -> str:
    """The code with which a server refuses to start on such settings."""
    played = fresh(directory)
    with (played.home.path / "config.toml").open("a") as settings:
        settings.write(written)
    return str(attempt(played)[1]["error"]["code"])


def test_a_workspace_can_have_rates_of_its_own() -> None:
    rates = Rates.from_settings({"reads_per_second": 7})
    assert rates.of(False, None)[1].count == 7
    assert rates.of(True, None)[1].count == 50
    assert rates.of(False, {"reads_per_second": 3})[1].count == 3
    assert rates.of(True, {"streams": 3})[1].count == 50
