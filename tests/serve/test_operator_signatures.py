"""Requests that operators sign with keys of their own: made by commands, checked by the server, kept on the ledger, counted by verify."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from detent.access.signature import Said, sign
from detent.canon import SigningKey, sha256
from detent.owner.home import Home
from tests.serve.served import ANSWER_SECONDS, Reply, Served, serving
from tests.serve.test_jobs_write import post, task
from tests.serve.worked import Worked, project

pytestmark = pytest.mark.door(
    "command: detent keys operator, create --public-key, cancel --connect; route: any that is audited"
)


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Worked:
    return project(tmp_path_factory.mktemp("signed"))


@pytest.fixture(scope="module")
def served(worked: Worked) -> Iterator[Served]:
    with serving(worked.played, "--project", str(worked.directory)) as server:
        yield server
        assert server.process.poll() is None, "the server ended while it was tested"


def detent(worked: Worked, *words: str, at: Path | None = None, **environment: str) -> Any:
    """A command of an operator whose state is in a directory of its own; gives its JSON."""
    state = {"XDG_STATE_HOME": str(at)} if at is not None else {}
    ended = subprocess.run(
        [sys.executable, "-m", "detent", *words, "-o", "json"],
        env={**os.environ, **worked.environment, **state, **environment},
        cwd=worked.directory,
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    return json.loads(ended.stdout)


def new_job(served: Served) -> str:
    return str(post(served, "/v1/jobs", task()).json["job_id"])


def action_on(served: Served, job_id: str) -> Any:
    (found,) = served.json(f"/v1/audit?object={job_id}")["items"]
    return found


def test_a_command_signs_and_the_ledger_proves_who_asked(served: Served, worked: Worked, tmp_path: Path) -> None:
    home = str(served.home)
    public = detent(worked, "keys", "operator", at=tmp_path)
    assert detent(worked, "keys", "operator", at=tmp_path) == public
    (file,) = tmp_path.rglob("operator.key")
    assert file.stat().st_mode & 0o777 == 0o600
    made = detent(
        worked, "keys", "create", "ann", "--role", "operator", "--public-key", public["public_key"], "--home", home
    )
    assert made["signing_key"] == public["signing_key"]
    signed, unsigned = new_job(served), new_job(served)
    connect = ("--connect", served.told["url"])
    detent(worked, "cancel", signed, "--reason", "mine", *connect, at=tmp_path, DETENT_KEY=made["secret"])
    detent(worked, "cancel", unsigned, *connect, at=tmp_path / "another", DETENT_KEY=made["secret"])
    assert [action_on(served, job)["signed_by_operator"] for job in (signed, unsigned)] == [True, False]
    assert {action_on(served, job)["credential"] for job in (signed, unsigned)} == {made["key_id"]}
    verified = detent(worked, "verify", "--home", home)
    assert verified["ok"], verified
    (line,) = (one for one in verified["proved"] if "operator action" in one)
    assert "; 1 signed by the operators themselves, the rest asserted by the server" in line


SEED = bytes(range(32))


def signed_post(
    served: Served, token: str, path: str, document: Any, *, key: SigningKey | None = None, **changed: Any
) -> tuple[Mapping[str, str], Reply]:
    """A signed request, some of which was changed after it was signed."""
    body = json.dumps(document).encode()
    said = {"method": "POST", "path": path, "query": "", "content_digest": sha256(body), **changed.get("said", {})}
    headers = changed.get("headers") or sign(
        Said(**said),
        key or SigningKey(SEED),
        created=changed.get("created", int(time.time())),
        nonce=changed.get("nonce", os.urandom(16)),
        origin=changed.get("origin", Home(served.home).settings().origin),
    )
    sent = changed.get("sent", body)
    return headers, served.ask("POST", path, body=sent, headers=dict(headers), token=token)


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    body = json.dumps({"name": "eve", "role": "operator", "public_key": SigningKey(SEED).public_key.hex()}).encode()
    reply = served.ask("POST", "/v1/keys", body=body)
    assert reply.status == 201, reply.body
    assert reply.json["key"]["signing_key"] == SigningKey(SEED).key_id.hex()
    return str(reply.json["secret"])


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"key": SigningKey(bytes(32))}, "UNAUTHENTICATED"),
        ({"said": {"method": "PUT"}}, "UNAUTHENTICATED"),
        ({"said": {"path": "/v1/jobs/other/cancel"}}, "UNAUTHENTICATED"),
        ({"said": {"query": "wait=1"}}, "UNAUTHENTICATED"),
        ({"said": {"content_digest": bytes(32)}}, "UNAUTHENTICATED"),
        ({"sent": b'{"reason": "another"}'}, "UNAUTHENTICATED"),
        ({"origin": "another-ledger"}, "UNAUTHENTICATED"),
        ({"headers": {"signature-input": "x"}}, "UNAUTHENTICATED"),
        ({"created": 1}, "CLOCK_SKEW"),
        ({"created": 9_999_999_999}, "CLOCK_SKEW"),
    ],
    ids=["key", "method", "path", "query", "digest", "body", "ledger", "headers", "old", "future"],
)
def test_a_signature_that_does_not_hold_is_refused_and_nothing_happens(
    served: Served, token: str, changed: dict[str, Any], code: str
) -> None:
    job_id = new_job(served)
    _, reply = signed_post(served, token, f"/v1/jobs/{job_id}/cancel", {}, **changed)
    assert (reply.status, reply.code) == (401, code), reply.body
    assert served.json(f"/v1/jobs/{job_id}")["status"] == "queued"


def test_a_signature_counts_once(served: Served, token: str) -> None:
    job_id = new_job(served)
    headers, first = signed_post(served, token, f"/v1/jobs/{job_id}/cancel", {})
    assert first.status == 200, first.body
    _, again = signed_post(served, token, f"/v1/jobs/{job_id}/cancel", {}, headers=headers)
    assert (again.status, again.code) == (401, "UNAUTHENTICATED")
    assert [
        one["signed_by_operator"] for one in served.json(f"/v1/audit?object={job_id}&action=job.cancel")["items"]
    ].count(True) == 1


def test_a_key_that_is_no_key_is_refused(served: Served) -> None:
    body = json.dumps({"name": "x", "role": "viewer", "public_key": "00" * 32}).encode()
    reply = served.ask("POST", "/v1/keys", body=body)
    assert (reply.status, reply.code) == (400, "VALIDATION_ERROR")
    assert reply.json["errors"][0]["path"] == "body.public_key"
