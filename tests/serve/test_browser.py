"""Browsers: login links, sessions, cookies, and requests that a foreign page makes."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detent.access.browser import IDLE_MS, LIFE_MS
from detent.access.tokens import make_token
from detent.serve.browser_sessions import BrowserSessions
from detent.serve.login import LASTS_MS, make_login, use_login
from tests.serve.served import ANSWER_SECONDS, Reply, Served, play, serving
from tests.serve.shared import OTHER, OWN, Shared, detent

pytestmark = pytest.mark.door("route: /login, /v1/login, /v1/me; command: detent serve --login")


def link_of(served: Served) -> str:
    """A token of another login link, as `detent serve --login` prints it."""
    line = [sys.executable, "-m", "detent", "serve", "--login", "--home", str(served.home), "-o", "json"]
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True, env=dict(served.environment)
    )
    link: str = json.loads(done.stdout)["login"]
    assert link.startswith(f"{served.told['url']}/login#dtl_")
    return link.partition("#")[2]


def log_in(served: Served, token: str, **headers: str) -> Reply:
    return served.ask("POST", "/v1/login", body=json.dumps({"token": token}).encode(), token=None, headers=headers)


def by_cookie(served: Served, method: str, path: str, cookie: str, **headers: str) -> Reply:
    return served.ask(method, path, token=None, headers={"Cookie": cookie, **headers})


def test_a_link_logs_in_once_and_the_session_ends_with_logout(shared: Shared) -> None:
    served, token = shared.served, link_of(shared.served)
    reply = log_in(served, token, Origin=served.told["url"])
    assert reply.status == 201, reply.body
    parts = reply.headers["set-cookie"].split("; ")
    cookie = parts[0]
    assert parts[1:] == ["Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=604800"], "no Secure on plain HTTP"
    assert log_in(served, token).code == "UNAUTHENTICATED", "a link works once"
    me = by_cookie(
        served, "GET", "/v1/me", f"detent-1={'0' * 64}; {cookie}"
    ).json  # With that of a server on another port.
    assert (me["principal"], me["via"], me["workspace"]) == ("p_local", "session", "local")
    assert {OWN, OTHER} <= set(me["workspaces"])
    assert by_cookie(served, "GET", "/v1/runs/run-1", cookie, **{"Detent-Workspace": OWN}).status == 200
    own = {"Origin": served.told["url"], "Detent-CSRF": me["csrf"]}
    assert by_cookie(served, "DELETE", "/v1/login", cookie, Origin=served.told["url"]).code == "CSRF_REFUSED"
    ended = by_cookie(served, "DELETE", "/v1/login", cookie, **own)
    assert (ended.status, ended.headers["set-cookie"].split(";")[0]) == (
        204,
        f"detent-{served.told['url'].rpartition(':')[2]}=",
    )
    assert by_cookie(served, "GET", "/v1/me", cookie).code == "UNAUTHENTICATED"
    actions = served.get("/v1/audit?limit=200").json["items"]
    mine = [one["action"] for one in actions if one["credential"] == me["credential"]]
    assert mine == ["logout", "login"]
    assert served.ask("DELETE", "/v1/login").code == "NOT_FOUND", "a key has no session"


def test_a_session_begun_with_a_key_ends_with_the_key(shared: Shared) -> None:
    served, secret = shared.served, shared.make("for a browser", role="operator")
    reply = log_in(served, secret)
    cookie = reply.headers["set-cookie"].partition(";")[0]
    me = by_cookie(served, "GET", "/v1/me", cookie).json
    assert (me["workspace"], me["via"], me["workspaces"]) == (OWN, "session", [OWN])
    refused = by_cookie(served, "GET", "/v1/me", cookie, **{"Detent-Workspace": OTHER})
    assert refused.code == "WORKSPACE_MISMATCH"
    with served.connect() as connection:
        head = f"GET /v1/events?topics=jobs HTTP/1.1\r\nHost: {served.host}\r\nSec-Fetch-Site: same-origin\r\n"
        connection.sendall(f"{head}Cookie: {cookie}\r\n\r\n".encode())
        seen = b""
        while b"event: hello" not in seen:
            seen += connection.recv(65536)
        detent(shared.played, "keys", "revoke", secret.split("_")[1], "--workspace", OWN)
        while not seen.endswith(b"0\r\n\r\n"):
            piece = connection.recv(65536)
            assert piece, seen
            seen += piece
    assert by_cookie(served, "GET", "/v1/me", cookie).code == "UNAUTHENTICATED"


def test_a_member_of_two_workspaces_switches_within_both_roles(shared: Shared) -> None:
    served = shared.served
    for workspace, role in ((OWN, "operator"), (OTHER, "viewer")):
        detent(shared.played, "keys", "member", "set", "p_two", "--role", role, "--workspace", workspace)
    made = detent(shared.played, "keys", "create", "two", "--role", "operator", "--member", "p_two", "--workspace", OWN)
    cookie = log_in(served, made["secret"]).headers["set-cookie"].partition(";")[0]
    here = by_cookie(served, "GET", "/v1/me", cookie).json
    there = by_cookie(served, "GET", "/v1/me", cookie, **{"Detent-Workspace": OTHER}).json
    assert (here["workspaces"], there["workspace"]) == ([OWN, OTHER], OTHER)
    assert "jobs:cancel" in here["scopes"]
    assert "jobs:cancel" not in there["scopes"]
    assert served.get("/v1/me", token=made["secret"], headers={"Detent-Workspace": OTHER}).status == 200


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "dtl_",
        make_token("dtl", bytes(40)).text,
        make_token("dtk", bytes(40)).text,
        make_token("dte", bytes(40)).text,
    ],
)
def test_a_token_that_is_not_good_begins_no_session(shared: Shared, token: str) -> None:
    reply = log_in(shared.served, token)
    assert (reply.status, reply.code) == (401, "UNAUTHENTICATED")
    assert "set-cookie" not in reply.headers


def test_the_homes_own_token_begins_no_session(shared: Shared) -> None:
    assert log_in(shared.served, shared.served.token).code == "UNAUTHENTICATED"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_a_foreign_page_cannot_log_a_browser_in(shared: Shared, headers: dict[str, str]) -> None:
    token = link_of(shared.served) if "Origin" in headers else "x"
    assert log_in(shared.served, token, **headers).code == "CSRF_REFUSED"


def test_only_one_of_many_logins_at_once_uses_a_link_up(shared: Shared) -> None:
    token = link_of(shared.served)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: log_in(shared.served, token).status, range(8)))
    assert sorted(found) == [201, *[401] * 7]


def test_a_link_is_good_for_ten_minutes(tmp_path: Path) -> None:
    token = make_login(tmp_path, now_ms=0)
    assert stat.S_IMODE((tmp_path / "serve" / "logins").stat().st_mode) == 0o700
    assert not use_login(tmp_path, token, now_ms=LASTS_MS)
    other = make_token("dtl", bytes(40))
    assert not use_login(tmp_path, replace(other, token_id=token.token_id), now_ms=0)
    assert use_login(tmp_path, token, now_ms=LASTS_MS - 1)
    assert not use_login(tmp_path, token, now_ms=0)
    for _ in range(300):
        make_login(tmp_path, now_ms=0)
    assert len(list((tmp_path / "serve" / "logins").iterdir())) <= 100


def test_sessions_end_idle_or_old_and_survive_a_restart(tmp_path: Path) -> None:
    (tmp_path / "serve").mkdir()
    sessions = BrowserSessions(tmp_path)
    value = sessions.begin(None, 0)
    assert sessions.find(value, IDLE_MS - 1) is not None
    assert BrowserSessions(tmp_path).find(value, 1) is not None, "it is kept as a digest"
    assert value not in (tmp_path / "serve" / "sessions.json").read_text()
    now_ms = IDLE_MS - 1
    while now_ms < LIFE_MS - IDLE_MS:
        now_ms += IDLE_MS - 1
        assert sessions.find(value, now_ms) is not None
    assert sessions.find(value, LIFE_MS) is None
    assert sessions.find(value, now_ms + IDLE_MS) is None
    (tmp_path / "serve" / "sessions.json").write_text("nonsense")
    assert BrowserSessions(tmp_path).find(value, 1) is None


@pytest.mark.parametrize("path", ["/", "/login", "/w/demo", "/w/demo/runs?status=failed&odd=1", "/w/demo/diff/a/b"])
def test_every_page_is_the_dashboard_and_allows_nothing_from_elsewhere(shared: Shared, path: str) -> None:
    page = shared.served.get(path, token=None)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert rule in policy
    assert "unsafe" not in policy


def test_built_files_are_kept_for_ever_and_packed_for_browsers_that_ask(shared: Shared) -> None:
    page = shared.served.get("/login", token=None).body.decode()
    found = re.findall(r"/static/[a-z]+-[0-9a-f]{10}\.(?:js|css|svg)", page)
    assert len(found) == 3
    for path in found:
        plain = shared.served.get(path, token=None)
        packed = shared.served.get(path, token=None, headers={"Accept-Encoding": "gzip, br"})
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert "content-encoding" not in plain.headers
        assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "accept-encoding")
        assert gzip.decompress(packed.body) == plain.body
    for name in ("index.html", "sources.sha256", "licences.txt", "app-0000000000.js"):
        assert shared.served.get(f"/static/{name}", token=None).code == "NOT_FOUND"


def test_the_link_reaches_no_log_and_a_file_that_only_the_user_can_read(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    home = tmp_path / "home"
    home.mkdir()
    with serving(play(home), "--access-log", str(log)) as served:
        path = Path(served.told["login_file"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        token = path.read_text().strip().partition("#")[2]
        assert log_in(served, token).status == 201
        served.stop()
    assert token not in log.read_text()
    line = [sys.executable, "-m", "detent", "serve", "--login", "--home", str(served.home), "-o", "json"]
    env = {**os.environ, **served.environment}
    done = subprocess.run(line, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False, env=env)
    document: Any = json.loads(done.stdout)
    assert (done.returncode, document["error"]["code"]) == (4, "NOT_READY")
