"""Webhooks at the routes: a receiver with TLS on the loopback gets every event once, signed, and no address inside is reached."""

from __future__ import annotations

import json
import os
import sqlite3
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from detent.access.webhooks import FAILURES_MAX, signed_headers
from detent.canon.crypto import verify_signature
from detent.kernel import Job
from detent.owner.wiring import Parts
from tests.homes import Played
from tests.serve.certificates import Certificates, certificates
from tests.serve.served import ANSWER_SECONDS, Reply, Served, play, start
from tests.serve.shared import Shared

pytestmark = pytest.mark.door("route: /v1/webhooks; setting: [webhooks] allow")


@dataclass(slots=True)
class Receiver:
    """What a receiver has got, and what it answers."""

    port: int
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """The statuses of the next answers; 204 behind them."""
    test: int = 0
    """Part of the address, so that a late delivery of the test before is not taken for one of this test."""

    @property
    def path(self) -> str:
        return f"/hook?of={self.test}"

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}{self.path}"

    def begin(self) -> None:
        """Forget what came, and take nothing more at the address that was used until now."""
        self.test += 1
        self.got.clear()
        self.answers.clear()

    def events(self, kind: str) -> list[Any]:
        return [event for _, body in self.got if (event := json.loads(body))["type"] == kind]


@contextmanager
def receiving(made: Certificates) -> Iterator[Receiver]:
    told = Receiver(0)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_own = self.path == told.path
            if is_own:
                told.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(told.answers.pop(0) if is_own and told.answers else 204)
            self.send_header("location", "https://localhost:1/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.chain, made.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(slots=True)
class Place:
    """A home that may reach the loopback, its server and a receiver."""

    played: Played
    environment: dict[str, str]
    receiver: Receiver
    served: Served

    def again(self) -> None:
        """Start the server anew after it was killed."""
        self.served = start(self.played.home.path, self.environment, "--workers", "1", "--project", self.project)

    @property
    def project(self) -> str:
        return str(self.played.home.path.parent / "project")

    def post(self, path: str, document: Any = None) -> Reply:
        return self.served.ask("POST", path, body=None if document is None else json.dumps(document).encode())

    def hook(self, *events: str, **said: Any) -> Any:
        reply = self.post("/v1/webhooks", {"url": self.receiver.url, "events": list(events), **said})
        assert reply.status == 201, reply.body
        return reply.json

    def counts(self) -> Any:
        return self.served.json("/v1/counts")["jobs"]

    def is_quiet(self) -> bool:
        return set(self.counts()) <= {"succeeded", "failed", "cancelled"}

    def run_job(self, target: str = "sums.py:add") -> str:
        reply = self.post("/v1/jobs", {"task": {"target": target, "arguments": [1, 2], "retries": 0}})
        assert reply.status == 202, reply.body
        job_id = str(reply.json["job_id"])
        assert self.served.get(f"/v1/jobs/{job_id}?wait=60").json["status"] in {"succeeded", "failed"}
        return job_id


@pytest.fixture
def place(shared_place: Place) -> Place:
    """The place without hooks and with an empty receiver."""
    for hook in shared_place.served.json("/v1/webhooks")["items"]:
        assert shared_place.served.ask("DELETE", f"/v1/webhooks/{hook['hook_id']}").status == 204
    until(shared_place.is_quiet)
    shared_place.receiver.begin()
    return shared_place


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with placed(tmp_path_factory.mktemp("webhooks"), pause_ms=50) as found:
        yield found


@contextmanager
def placed(tmp_path: Path, *, pause_ms: int) -> Iterator[Place]:
    """A server and a receiver; a delivery that fails is tried again after a pause."""
    made = certificates(tmp_path / "tls")
    played = play(tmp_path)
    settings = played.home.path / "config.toml"
    settings.write_text(
        settings.read_text()
        .replace("[backoffs]", f"[backoffs]\nwebhook = [{pause_ms}]")
        .replace("[webhooks]", '[webhooks]\nallow = ["127.0.0.0/8", "::1/128"]')
    )
    project = played.home.path.parent / "project"
    project.mkdir()
    (project / "sums.py").write_text("def add(a, b):\n    return a + b\n\n\ndef fail(a, b):\n    raise ValueError(a)\n")
    environment = {**os.environ, **played.environment, "SSL_CERT_FILE": str(made.authority)}
    with receiving(made) as receiver:
        options = ("--workers", "1", "--project", str(project))
        found = Place(played, environment, receiver, start(played.home.path, environment, *options))
        try:
            yield found
        finally:
            if found.served.process.poll() is None:
                found.served.stop()


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_the_end_of_a_job_is_delivered_once_and_signed(place: Place) -> None:
    before = place.run_job()
    made = place.hook("job.ended")
    job_id, failed = place.run_job(), place.run_job("sums.py:fail")

    until(lambda: len(place.receiver.got) >= 2)
    events = {event["data"]["job_id"]: event for event in place.receiver.events("job.ended")}
    assert events.keys() == {job_id, failed}, f"not {before}, which ended before there was a hook"
    assert events[job_id]["data"]["status"] == "succeeded"
    assert (events[failed]["data"]["status"], events[failed]["workspace"]) == ("failed", "local")
    public = b64decode(made["webhook"]["public_key"].removeprefix("whpk_"))
    for headers, body in place.receiver.got:
        assert headers["content-type"] == "application/json"
        assert headers["webhook-id"] == json.loads(body)["id"]
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300
        version, _, signature = headers["webhook-signature"].partition(",")
        message = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        assert version == "v1a"
        assert verify_signature(public, message, b64decode(signature))
    listed = place.served.json(f"/v1/webhooks/{made['webhook']['hook_id']}")
    assert (listed["state"], made["secret"]) == ("on", None)
    assert len(place.served.json(listed["deliveries"])["items"]) == 2


def test_a_delivery_is_repeated_until_the_receiver_takes_it_and_redirects_are_not_followed(place: Place) -> None:
    made = place.hook("job.ended", signature="hmac")
    place.receiver.answers += [500, 302]
    place.run_job()

    until(lambda: len(place.receiver.got) == 3)
    ids = {headers["webhook-id"] for headers, _ in place.receiver.got}
    assert len(ids) == 1
    headers, body = place.receiver.got[-1]
    secret = b64decode(made["secret"].removeprefix("whsec_"))
    assert (
        signed_headers(headers["webhook-id"], int(headers["webhook-timestamp"]), body, secret).items()
        <= headers.items()
    )
    assert place.served.json("/v1/webhooks")["items"][0]["public_key"] is None


def test_a_server_that_was_killed_delivers_what_ended_meanwhile_once(place: Place) -> None:
    place.hook("job.ended")
    place.receiver.answers += [500] * 2
    before = sum(place.counts().values())
    first = place.run_job()
    place.served.kill()
    position = place.played.home.path / "serve" / "webhooks" / "position"
    kept = json.loads(position.read_text())
    position.write_text(json.dumps({**kept, "at": [0 for _ in kept["at"]]}))  # As old as it can be.
    place.again()
    second = place.run_job()

    until(lambda: {event["data"]["job_id"] for event in place.receiver.events("job.ended")} == {first, second})
    until(place.is_quiet)
    assert sum(place.counts().values()) == before + 4, "two jobs, and one delivery for each"
    assert len({headers["webhook-id"] for headers, _ in place.receiver.got}) == 2


def test_a_receiver_that_is_gone_switches_its_hook_off_on_the_ledger(place: Place) -> None:
    made = place.hook("job.ended")
    hook_id = made["webhook"]["hook_id"]
    place.receiver.answers += [410]
    place.run_job()

    until(lambda: place.served.json(f"/v1/webhooks/{hook_id}")["state"] == "off")
    assert place.served.json(f"/v1/webhooks/{hook_id}")["reason"] == "the receiver answered 410"
    place.run_job()
    assert len(place.receiver.got) == 1
    actions = [item["action"] for item in place.served.json("/v1/audit?limit=200")["items"]]
    assert {"webhook.create", "webhook.disabled"} <= set(actions)


def test_failures_in_a_row_are_counted_over_a_restart_of_the_server(place: Place) -> None:
    hook_id = place.hook("job.ended")["webhook"]["hook_id"]
    place.run_job()
    until(lambda: len(place.receiver.got) == 1)
    until(place.is_quiet)
    position = place.played.home.path / "serve" / "webhooks" / "position"
    assert place.served.stop() == 0
    kept = json.loads(position.read_text())
    assert kept["failures"] == {}, "it was taken"
    position.write_text(json.dumps({**kept, "failures": {hook_id: FAILURES_MAX - 2, "wh_gone": 7}}))
    place.again()
    for expected, state in ((FAILURES_MAX - 1, "on"), (FAILURES_MAX, "off")):
        place.receiver.answers += [500] * 9
        place.run_job()
        until(lambda: not place.receiver.answers)
        until(place.is_quiet)
        if state == "on":
            until(lambda: json.loads(position.read_text())["failures"] == {hook_id: expected})  # noqa: B023
            place.served.kill()
            place.again()
    until(lambda: place.served.json(f"/v1/webhooks/{hook_id}")["state"] == "off")
    assert place.served.json(f"/v1/webhooks/{hook_id}")["reason"] == "50 deliveries in a row failed"


def test_a_full_queue_is_told_once_although_the_queue_is_full(place: Place) -> None:
    place.hook("queue.full")
    items = [{"task": {"target": "sums.py:add", "arguments": [1, 2]}} for _ in range(400)]
    told = place.post("/v1/jobs:batch", {"items": items}).json["items"]
    refused = [one["problem"]["code"] for one in told if "problem" in one]
    assert set(refused) == {"QUEUE_FULL"}
    place.post("/v1/jobs:batch", {"items": items})
    assert place.served.json("/v1/queue")["rejected_per_minute"] >= len(refused) > 0

    until(lambda: len(place.receiver.events("queue.full")) == 1)
    (event,) = place.receiver.events("queue.full")
    assert (event["workspace"], event["data"]["queue"]) == ("local", "jobs")
    until(place.is_quiet)
    assert len(place.receiver.got) == 1
    (action,) = place.served.json("/v1/audit?action=queue.full")["items"]
    assert (action["principal"], action["record"]) == ("p_server", event["position"])


def test_a_ledger_that_does_not_verify_is_told(place: Place) -> None:
    place.run_job()
    place.hook("verify.failed")
    change = "UPDATE jobs SET tick = tick {} 1 WHERE job_no = (SELECT min(job_no) FROM jobs)"
    with closing(sqlite3.connect(place.played.home.ledger_file, timeout=ANSWER_SECONDS)) as ledger:
        ledger.execute(change.format("+"))
        ledger.commit()
        assert place.post("/v1/ledger/verify", {}).status == 202
        until(lambda: bool(place.receiver.events("verify.failed")))
        ledger.execute(change.format("-"))
        ledger.commit()
    (event,) = place.receiver.events("verify.failed")
    assert (event["workspace"], event["data"]["ledger"], event["data"]["findings"] >= 1) == ("local", "ledger", True)
    assert place.post("/v1/ledger/verify", {}).status == 202
    until(lambda: place.served.json("/v1/ledger/verify")["state"] == "done")
    assert place.served.json("/v1/ledger/verify")["ok"]
    assert len(place.receiver.events("verify.failed")) == 1


def test_deliveries_have_pauses_of_a_second_to_six_hours_where_the_settings_name_no_others(shared: Shared) -> None:
    body = json.dumps({"url": "https://hooks.example/x", "events": ["worker.lost"]}).encode()
    made = shared.served.ask("POST", "/v1/webhooks", body=body).json["webhook"]["hook_id"]
    tried = shared.served.ask("POST", f"/v1/webhooks/{made}/test").json["job_id"]
    with Parts().open_reader(shared.played.home.ledger) as reader:
        row = reader.job(tried)
    assert row is not None
    job = Job.read(row.body)
    assert (job.backoff_schedule_id, job.max_retries) == ("webhook", 8)
    policies = shared.served.ask("POST", f"/v1/jobs/{tried}/cancel", body=b"{}")
    assert policies.status == 200
    assert shared.served.ask("DELETE", f"/v1/webhooks/{made}").status == 204


@pytest.mark.door("route GET /v1/webhooks/{hook_id}/deliveries")
def test_a_delivery_that_waits_says_when_it_is_sent_next_and_what_the_receiver_answered(tmp_path: Path) -> None:
    with placed(tmp_path, pause_ms=3_600_000) as place:
        hook = place.hook("job.ended")["webhook"]
        hook_id = hook["hook_id"]
        path = f"/v1/webhooks/{hook_id}/deliveries"
        assert place.served.json(path) == {"items": [], "next": None}
        place.receiver.answers += [503]
        place.run_job()
        until(lambda: [one["state"] for one in place.served.json(path)["items"]] == ["retrying"])
        (waiting,) = place.served.json(path)["items"]
        assert [one["job_id"] for one in place.served.json(hook["deliveries"])["items"]] == [waiting["job_id"]]
        (sent,) = place.receiver.events("job.ended")
        assert (waiting["event"], waiting["event_id"]) == ("job.ended", sent["id"])
        assert (waiting["attempts"], waiting["attempts_max"]) == (1, 9)
        assert waiting["last_answer"] == "localhost answered 503"
        pause = datetime.fromisoformat(waiting["next_at"]) - datetime.fromisoformat(waiting["changed_at"])
        assert pause == timedelta(hours=1)

        tried = place.post(f"/v1/webhooks/{hook_id}/test").json["job_id"]
        until(lambda: place.served.json(f"/v1/jobs/{tried}")["status"] == "succeeded")
        page = place.served.json(f"{path}?limit=1")
        (newest,) = page["items"]
        assert (newest["job_id"], newest["event"], newest["next_at"]) == (tried, "webhook.test", None)
        assert newest["last_answer"] == "answered 204"
        assert place.served.json(f"{path}?limit=1&cursor={page['next']}")["items"] == [waiting]
        assert place.served.get("/v1/webhooks/wh_nowhere/deliveries").code == "NOT_FOUND"


def test_a_hook_can_be_tried_and_deleted(place: Place) -> None:
    hook_id = place.hook("run.ended")["webhook"]["hook_id"]
    tried = place.post(f"/v1/webhooks/{hook_id}/test")
    assert tried.status == 202, tried.body
    assert place.served.get(f"/v1/jobs/{tried.json['job_id']}?wait=60").json["status"] == "succeeded"
    assert [event["data"] for event in place.receiver.events("webhook.test")] == [{}]

    assert place.served.ask("DELETE", f"/v1/webhooks/{hook_id}").status == 204
    assert place.served.get(f"/v1/webhooks/{hook_id}").code == "NOT_FOUND"
    assert place.post(f"/v1/webhooks/{hook_id}/test").code == "NOT_FOUND"
    assert place.served.json("/v1/webhooks") == {"items": []}


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.org/", "https://127.0.0.1/", "https://localhost/", "https://[::1]/", "https://10.0.0.1/"),
        *("https://169.254.169.254/latest/meta-data", "https://0x7f000001/", "https://2130706433/", "https://0/"),
        *("https://[::ffff:127.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://user@example.org/", "https://a b/"),
    ],
)
def test_a_url_that_leads_inside_is_refused(served: Served, url: str) -> None:
    reply = served.ask("POST", "/v1/webhooks", body=json.dumps({"url": url, "events": ["run.ended"]}).encode())

    assert (reply.status, reply.code) == (422, "URL_REFUSED")
    assert served.json("/v1/webhooks") == {"items": []}
