"""A server for the pages: runs that succeeded, failed, go on, map over a list, and whose names and output are hostile.

Everything is made at the doors that users have: contracts posted to `/v1/runs`, functions in the server's project.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.access.tokens import Token
from detent.serve.login import link, make_login
from tests.serve.served import ANSWER_SECONDS, RATES, Served, start
from tests.warm import Warm

if TYPE_CHECKING:
    from playwright.sync_api import StorageState

HOSTILE = "<img src=x onerror=alert(1)>\"'&lt;{{7*7}}</script>"
"""A name that is markup, a template and the end of a script."""
LONG = "a-step-with-a-name-that-goes-on-because-someone-described-it-instead-of-naming-it-as-happens-daily"
TASKS = f"""
import sys, time

def cities(): return [f"city-{{n}}" for n in range(8)]

def fetch(city):
    print(f"GET https://prices.example/{{city}}")
    if city == "city-5":
        print("\\x1b[31mHTTPError: 503 Service Unavailable\\x1b[0m", file=sys.stderr)
        raise RuntimeError("HTTPError 503 for " + city)
    return len(city)

def total(prices): return sum(prices)

def hostile(gate):
    print("<script>document.title = 'owned'</script>\\x1b]0;owned\\x07\\x1b[1;31mred\\x1b[0m \\u202egnp.exe")
    raise ValueError({HOSTILE!r})

def chatty():
    for n in range(5000): print(f"line {{n}} of five thousand")
    return {{"html": {HOSTILE!r}, "list": [1, 2, 3]}}

def wait(gate):
    import pathlib
    print("waiting for the gate", flush=True)
    while not pathlib.Path(gate).exists(): time.sleep(0.05)

def ok(value=1): return value
"""
PRICES = """
name: prices
steps:
  - {id: cities, run: {python: "tasks:cities"}}
  - {id: fetch, map: {city: {$from: cities}}, chunk: 1, on_error: continue, run: {python: "tasks:fetch"}}
  - {id: total, run: {python: "tasks:total", with: {prices: {$from: fetch}}}}
  - {id: audit, needs: [cities], run: {python: "tasks:ok"}}
"""
REPORT = """
name: report
steps:
  - {id: collect, run: {python: "tasks:chatty"}}
  - {id: write, needs: [collect], run: {shell: "mkdir -p out && echo done > out/report.txt && echo '<svg><script>alert(1)</script></svg>' > out/evil.svg"}, outputs: {page: out/report.txt, picture: out/evil.svg}}
  - {id: %s, needs: [collect], run: {python: "tasks:ok"}}
"""
SLOW = """
name: nightly
steps:
  - {id: first, run: {python: "tasks:wait", with: {gate: %s}}}
  - {id: second, needs: [first], run: {python: "tasks:ok"}}
"""
SCHEDULED = """
name: hourly
schedule: {cron: "0 * * * *", timezone: Europe/Oslo}
steps:
  - {id: report, run: {python: "tasks:ok"}}
"""
MADE = {
    "/v1/schedules": {"contract": SCHEDULED},
    "/v1/keys": {"name": "ci", "role": "submitter"},
    "/v1/enrolments": {"tenants": ["local"], "labels": ["a100"], "uses": 3},
    "/v1/webhooks": {"url": "https://127.0.0.2:1/hook", "events": ["verify.failed"]},
    "/v1/sessions": {"tokens": 20_000, "time_ms": 600_000},
    "/v1/ledger/verify": {},
    "/v1/workspaces": {"workspace": "empty"},
}
"""What is there beside runs, by the route that makes it."""
SETTINGS = {
    "[webhooks]": '[pools]\nshelf = []\n\n[webhooks]\nallow = ["127.0.0.2/32"]',
    "[backoffs]": "[backoffs]\nwebhook = [7_200_000]",
}
"""Nobody listens where the webhook goes, and what could not be delivered waits for longer than tests take. The pool has no workers."""
HOSTILE_RUN = """
name: %s
steps:
  - {id: bad, name: %s, run: {python: "tasks:hostile", with: {gate: %s}}}
"""


@dataclass(slots=True)
class Seeded:
    """The server, and what is in it."""

    served: Served
    gate: Path
    """The run that goes on ends when this file is there."""
    failed: str
    failed_job: str
    succeeded: str
    running: str
    hostile: str
    record: str
    """An action of an operator on the ledger."""
    hook: str
    """A webhook with one delivery, which waits to be tried again."""
    cookies: StorageState | None = None
    """Those of a browser that is logged in, once there is one."""

    @property
    def base(self) -> str:
        return self.served.told["url"]

    def job_of(self, step: str) -> str:
        """The job of a step of the run that succeeded."""
        (found,) = (one for one in self.served.json(f"/v1/runs/{self.succeeded}/steps")["items"] if one["step"] == step)
        return str(found["jobs"][0]["job_id"])

    def login(self) -> str:
        """Another login link."""
        return link(self.base, login_of(self.served))


def run(served: Served, contract: str) -> str:
    """Start a run; gives its id."""
    reply = served.ask("POST", "/v1/runs", body=json.dumps({"contract": contract}).encode())
    assert reply.status == 202, reply.body
    return str(reply.json["run_id"])


def ended(served: Served, run_id: str) -> Any:
    """A run when it has ended."""
    deadline = time.monotonic() + ANSWER_SECONDS * 2
    while time.monotonic() < deadline:
        found = served.json(f"/v1/runs/{run_id}?wait=30")
        if found["status"] != "running":
            return found
    raise AssertionError(f"{run_id} did not end")


def login_of(served: Served) -> Token:
    """Another login, as `detent serve --login` makes it (tests/serve/test_browser.py)."""
    return make_login(served.home, now_ms=time.time_ns() // 1_000_000)


def begun_project(directory: Path, *options: str, settings_changed: Mapping[str, str] | None = None) -> Served:
    """A server on a home of its own, with the functions above; texts of its settings may be replaced."""
    project, home = directory / "a project", directory / "a project" / ".detent"
    project.mkdir()
    (project / "tasks.py").write_text(TASKS, encoding="utf-8")
    environment = {**os.environ, "XDG_STATE_HOME": str(directory / "state")}
    made = Warm(["init", "--home", str(home)], environment, project)
    _, said = made.communicate(ANSWER_SECONDS)
    assert made.wait() == 0, said
    settings = home / "config.toml"
    text = settings.read_text(encoding="utf-8")
    for before, after in {"[serve]": '[serve]\nembedded = "join"', **(settings_changed or {})}.items():
        assert before in text
        text = text.replace(before, after)
    settings.write_text(text + RATES, encoding="utf-8")  # Tests run things beside the server, too.
    return start(home, environment, *options, "--project", str(project))


@contextmanager
def seeding(directory: Path) -> Iterator[Seeded]:
    """A server with everything that pages show."""
    served = begun_project(directory, "--workers", "2", settings_changed=SETTINGS)
    gate = directory / "gate"
    try:
        done = run(served, REPORT % LONG)
        ended(served, done)  # So that the next one reuses a step of it, each time.
        failed = run(served, PRICES)
        hostile = run(served, HOSTILE_RUN % (json.dumps(HOSTILE), json.dumps(HOSTILE), json.dumps(str(gate))))
        for one in (failed, hostile):
            ended(served, one)
        for path, body in MADE.items():
            reply = served.ask("POST", path, body=json.dumps(body).encode())
            assert reply.status < 300, reply.body
        (hook,) = (one["hook_id"] for one in served.json("/v1/webhooks")["items"])
        tested = served.ask("POST", f"/v1/webhooks/{hook}/test")
        assert tested.status == 202, tested.body
        running = run(served, SLOW % json.dumps(str(gate)))
        failures = served.json(f"/v1/runs/{failed}/outcome")["failures"]
        record = served.json("/v1/audit")["items"][0]["record"]
        yield Seeded(served, gate, failed, failures[0]["job_id"], done, running, hostile, record, hook)
    finally:
        gate.touch()
        if served.process.poll() is None:
            served.stop()
        else:
            served.kill()
