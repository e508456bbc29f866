"""The matrix of credentials, routes and objects, made from the table of routes: what each request must be answered with.

A route that comes to the table is in the matrix by itself. If its path names something that is not in `OBJECTS`, or its body has no row in
`BODIES`, the test says so: add the row, with something that the workspace `demo` has (tests/serve/shared.py makes it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from detent.access.scopes import ANY, ROLES, SCOPES, own_scope
from detent.access.tokens import make_token
from detent.serve.routes import ALL
from detent.serve.table import Route
from tests.homes import OTHER_RUN, RUN

SHARED_BY_ALL = frozenset({"batch", "code", "name", "artifact"})
"""Names in paths that belong to no workspace, or to the holder of a signed URL."""
OBJECTS: dict[str, tuple[tuple[str, ...], str]] = {
    "job_id": (("done", "broken", "dropped", "waiting"), "nowhere"),
    "run_id": ((RUN, OTHER_RUN), "run-0"),
    "key_id": (("KEY",), "aaaaaaaaaaaa"),
    "other_id": ((OTHER_RUN,), "run-00"),
    "session_id": ((), "nowhere"),
    "stream": ((), "nowhere"),
    "hook_id": ((), "nowhere"),
    "schedule_id": ((), "nowhere"),
    "step": ((), "nowhere"),
    "worker_id": ((), "nowhere"),
    "pool": ((), "nowhere"),
    "enrolment_id": ((), "aaaaaaaaaaaa"),
    "digest": ((), f"sha256:{'0' * 64}"),
    "principal": (("p_member",), "p_nowhere"),
    "workspace": (("demo",), "nowhere"),
    "record": (("RECORD",), "0:999999999"),
    "upload": (("UPLOAD",), f"sha256:{'0' * 64}"),
}
"""For each name in a path: what `demo` has of it, ended or not, and what no one has. Capitals are filled in when the server runs."""
NAME = "NAME"
"""In bodies: where something is named that may belong to another workspace."""
BODIES: dict[str, Any] = {
    "POST /v1/jobs": {"task": {"target": "a:b", "arguments": [{"$result": NAME}]}},
    "POST /v1/jobs:read": {"job_ids": [NAME]},
    "POST /v1/pages/logs": {"jobs": [{"job_id": NAME}]},
    "POST /v1/pages/follow": {"job_ids": [NAME]},
    "POST /v1/jobs:batch": {"items": [{"task": {"target": "a:b", "arguments": [{"$result": NAME}]}}]},
    "POST /v1/jobs:cancel": {"run": NAME, "expected": 1, "dry_run": True},
    "POST /v1/runs": {"contract": "name: x\nsteps: [{id: a, run: {python: 'x:y'}}]"},
    "POST /v1/schedules": {"contract": "name: x\nsteps: [{id: a, run: {python: 'x:y'}}]"},
    "POST /v1/runs/{run_id}/verify": {},
    "POST /v1/ledger/verify": {},
    "POST /v1/trees:missing": {"files": []},
    "POST /v1/contracts:validate": {"contract": "name: x"},
    "POST /v1/contracts:plan": {"contract": "name: x"},
    "POST /v1/pools/{pool}/scale": {"hosts": 1},
    "PUT /v1/pools/{pool}/hosts": {"hosts": 0},
    "PUT /v1/events/{stream}/topics": {"topics": ["jobs"]},
    "POST /v1/webhooks": {"url": "https://hooks.example/x", "events": ["job.ended"]},
    "POST /v1/workers": {},
    "POST /v1/uploads": {"digest": f"sha256:{'1' * 64}", "size_bytes": 1},
    "POST /v1/login": {"token": "x"},
    "POST /v1/keys": {"name": "x"},
    "PUT /v1/members/{principal}": {"role": "viewer"},
    "POST /v1/workspaces": {"workspace": "x"},
    "PATCH /v1/workspaces/{workspace}": {},
}
NAMING = frozenset({"id", "run", "run_id", "job", "job_id", "session", "session_id", "topics"})
"""Parameters of queries that name something. Filters of the audit trail name what the workspace itself has asked about."""
QUERIES = {"/v1/events": "?topics=jobs", "/v1/ledger/consistency": "?from_size=1&to_size=1"}
GOOD = make_token("dtk", bytes(range(40))).text


@dataclass(frozen=True, slots=True)
class Case:
    """One request, and the code that it must be answered with; None: anything but a refusal of the credential."""

    name: str
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    code: str | None = None


def missing_rows() -> list[str]:
    """Routes that the matrix does not know how to ask."""
    found = []
    for route in (one for one in ALL if not one.page):
        unknown = [name for name in route.parameters if name not in OBJECTS and name not in SHARED_BY_ALL]
        found += [f"{route.name}: no row in OBJECTS for {{{name}}}" for name in unknown]
        if (
            route.body is not None
            and route.name not in BODIES
            and any(field.is_required() for field in route.body.model_fields.values())
        ):
            found.append(f"{route.name}: no row in BODIES")
    return found


def wrong_tokens(secret: str) -> dict[str, str]:
    """Values of `Authorization` that count for nothing, made from a key that does."""
    kind, key_id, rest = secret.split("_")
    other = make_token("dtk", bytes(40)).text
    changed = "A" if rest[0] != "A" else "B"
    return {
        "empty": "",
        "scheme only": "Bearer",
        "no token": "Bearer ",
        "no scheme": secret,
        "basic": f"Basic {secret}",
        "two spaces": f"Bearer  {secret}",
        "space behind": f"Bearer {secret} x",
        "prefix only": "Bearer dtk_",
        "id only": f"Bearer {kind}_{key_id}",
        "cut": f"Bearer {secret[:-1]}",
        "longer": f"Bearer {secret}0",
        "checksum": f"Bearer {secret[:-1]}{'0' if secret[-1] != '0' else '1'}",
        "secret changed": f"Bearer {kind}_{key_id}_{changed}{rest[1:]}",
        "kind dte": f"Bearer dte_{key_id}_{rest}",
        "kind dtl": f"Bearer dtl_{key_id}_{rest}",
        "capitals": f"Bearer {secret.upper()}",
        "quoted": f'Bearer "{secret}"',
        "twice": f"Bearer {secret}, Bearer {secret}",
        "unknown id": f"Bearer {other}",
        "enrolment token": f"Bearer {make_token('dte', bytes(range(40))).text}",
        "login token": f"Bearer {make_token('dtl', bytes(range(40))).text}",
        "null": "Bearer null",
        "a JWT": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.",
        "percent": f"Bearer {secret.replace('_', '%5f')}",
        "digest": f"Bearer {'0' * 64}",
        "another's secret": f"Bearer {kind}_{key_id}_{other.split('_')[2]}",
    }


def address(route: Route, fill: Mapping[str, str], *, absent: bool = True, choice: int = 0) -> str:
    """A route's path with something in the place of each name."""

    def value(found: re.Match[str]) -> str:
        own, none = OBJECTS.get(found[1], ((), "1"))
        chosen = none if absent or not own else own[choice % len(own)]
        return fill.get(chosen, chosen)

    return re.sub(r"\{([a-z_]+)\}", value, route.path) + QUERIES.get(route.path, "")


def needs_credential() -> list[Route]:
    """Routes for keys and sessions. Those of workers are asked with credentials of their own (tests/serve/test_turns.py)."""
    return [route for route in ALL if route.scope in SCOPES | {ANY}]


def credential_cases(secret: str, expired: str, revoked: str) -> Iterator[Case]:
    """Every route that needs a credential, with none and with each kind that does not count."""
    wrong: dict[str, str | None] = {"none": None, **wrong_tokens(secret)}
    wrong |= {"expired": f"Bearer {expired}", "revoked": f"Bearer {revoked}"}
    for route in needs_credential():
        for name, value in wrong.items():
            headers = {} if value is None else {"Authorization": value}
            yield Case(f"{route.name} {name}", route.method, address(route, {}), headers, None, "UNAUTHENTICATED")


def scope_cases(keys: Mapping[str, str]) -> Iterator[Case]:
    """Every route with the key of every role: refused exactly where the role lacks the scope."""
    for route in needs_credential():
        for role in ROLES:
            headers = {"Authorization": f"Bearer {keys[role]}"}
            lacks = route.scope != ANY and not {route.scope, own_scope(route.scope)} & ROLES[role]
            if lacks or (route.method == "GET" and not route.streams):
                path = address(route, {})
                yield Case(f"{route.name} {role}", route.method, path, headers, None, "FORBIDDEN" if lacks else None)


def browser_cases(cookie: str, csrf: str, origin: str) -> Iterator[Case]:
    """Every route by a session's cookie, as a foreign page or a damaged cookie would send it."""
    foreign: dict[str, dict[str, str]] = {
        "cross-site": {"Sec-Fetch-Site": "cross-site", "Detent-CSRF": csrf},
        "same-site, other port": {"Sec-Fetch-Site": "same-site", "Detent-CSRF": csrf},
        "foreign origin": {"Origin": "https://evil.example", "Detent-CSRF": csrf},
        "null origin": {"Origin": "null", "Detent-CSRF": csrf},
        "origin with our name in it": {"Origin": f"{origin}.evil.example", "Detent-CSRF": csrf},
        "other scheme": {"Origin": origin.replace("http:", "https:"), "Detent-CSRF": csrf},
        "two origins": {"Origin": f"{origin}, https://evil.example", "Detent-CSRF": csrf},
    }
    unsafe: dict[str, dict[str, str]] = {
        "no token": {"Origin": origin},
        "wrong token": {"Origin": origin, "Detent-CSRF": "0" * 64},
        "no origin": {"Detent-CSRF": csrf},
        "nothing": {},
        "typed address": {"Sec-Fetch-Site": "none", "Detent-CSRF": csrf},
        "cookie as token": {"Origin": origin, "Detent-CSRF": cookie.partition("=")[2]},
    }
    damaged = {
        "empty": f"{cookie.partition('=')[0]}=",
        "cut": cookie[:-1],
        "longer": f"{cookie}0",
        "changed": cookie[:-1] + ("0" if cookie[-1] != "0" else "1"),
        "twice": f"{cookie}; {cookie}",
        "other name": cookie.replace("detent-", "session-"),
        "of another port": f"detent-1={cookie.partition('=')[2]}",
        "of no port": f"detent={cookie.partition('=')[2]}",
        "name of TLS": f"__Host-{cookie}",
        "capitals": cookie.upper(),
    }
    for route in needs_credential():
        path = address(route, {})
        marks = {**foreign, **(unsafe if route.method != "GET" else {})}
        if route.streams:
            marks |= {"stream without marks": {}, "stream by a typed address": {"Sec-Fetch-Site": "none"}}
        for name, headers in marks.items():
            sent = {"Cookie": cookie, **headers}
            yield Case(f"{route.name} cookie, {name}", route.method, path, sent, None, "CSRF_REFUSED")
        for name, value in damaged.items():
            sent = {"Cookie": value, "Origin": origin, "Detent-CSRF": csrf}
            yield Case(f"{route.name} cookie {name}", route.method, path, sent, None, "UNAUTHENTICATED")
        if route.method == "GET" and not route.streams:
            sent = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
            yield Case(f"{route.name} cookie", route.method, path, sent)


def twin_cases(secret: str, fill: Mapping[str, str]) -> Iterator[tuple[Case, Case]]:
    """Every route with something of another workspace, and with something that no one has: the answers must be equal."""
    headers = {"Authorization": f"Bearer {secret}"}
    for route in sorted(
        needs_credential(), key=lambda route: route.method == "PUT"
    ):  # What makes something comes last.
        body = BODIES.get(route.name, None if route.body is None else {})
        own = [name for name in route.parameters if name in OBJECTS]
        for choice in range(max((len(OBJECTS[name][0]) for name in own), default=0)):
            foreign, absent = address(route, fill, absent=False, choice=choice), address(route, fill)
            body = _named(body, "nowhere")
            pair = (Case(f"{route.name} {path}", route.method, path, headers, body) for path in (foreign, absent))
            yield next(pair), next(pair)


def naming_cases(secret: str) -> Iterator[tuple[Case, Case]]:
    """Every route whose query or body names something, with a name of another workspace and with one of no one."""
    headers = {"Authorization": f"Bearer {secret}"}
    for route in needs_credential():
        given = BODIES.get(route.name)
        fields = [] if route.query is None else [name for name in route.query.model_fields if name in NAMING]
        for name in fields:
            for foreign, absent in (("done", "nowhere"), (RUN, "run-0")):
                prefix = f"job:{foreign}", f"job:{absent}"
                values = prefix if name == "topics" else (foreign, absent)
                paths = [f"{address(route, {}).partition('?')[0]}?{name}={value}" for value in values]
                pair = [
                    Case(f"{route.name} {path}", route.method, path, headers, _named(given, absent)) for path in paths
                ]
                yield pair[0], pair[1]
        if _named(given, "a") != given:
            path = address(route, {})
            pair = [
                Case(f"{route.name} {value}", route.method, path, headers, _named(given, value))
                for value in ("done", "nowhere")
            ]
            yield pair[0], pair[1]


def _named(body: Any, name: str) -> Any:
    """A body with a name in the places for one."""
    if isinstance(body, dict):
        return {key: _named(value, name) for key, value in body.items()}
    if isinstance(body, list):
        return [_named(value, name) for value in body]
    return name if body == NAME else body
