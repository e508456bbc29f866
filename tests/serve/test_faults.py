"""Faults inside: a broken invariant stops the server, a bug in one handler does not, and neither tells a caller anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from detent.errors import DetentError
from detent.kernel import Manifest, Submit
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.ledger import sign_manifest
from tests.homes import Hand
from tests.serve.served import ANSWER_SECONDS, Served, play, serving

PROGRAM = """
import sys
import detent.serve.server as server
from detent.cli.app import run
from detent.errors import InvariantBroken
from detent.serve.table import Route

async def broken(call):
    raise InvariantBroken("the secret of the house")

async def buggy(call):
    raise KeyError("the secret of the house")

server.ALL = (
    *server.ALL,
    Route("GET", "/v1/broken", broken, "Break.", "jobs:read", ()),
    Route("GET", "/v1/buggy", buggy, "Break.", "jobs:read", ()),
)
sys.exit(run(["serve", "--home", sys.argv[1], "--port", "0", "-o", "json", "--workers", "0"]))
"""


def test_a_broken_invariant_stops_the_server_and_a_bug_does_not(tmp_path: Path) -> None:
    """X-173"""
    played = play(tmp_path)
    environment = {**os.environ, **played.environment}
    line = [sys.executable, "-c", PROGRAM, str(played.home.path)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    served = Served(process, played.home.path, told, environment, Path(told["token_file"]).read_text().strip())
    reply = served.get("/healthz")
    for path in ("/v1/buggy", "/v1/broken"):
        reply = served.get(path)
        assert (reply.status, reply.code) == (500, "INVARIANT_VIOLATION")
        assert b"secret" not in reply.body
        assert reply.json.keys() == {"type", "title", "status", "detail", "instance", "code", "retryable"}
    assert process.wait(ANSWER_SECONDS) == 1
    said = process.communicate()[1]
    assert reply.json["instance"] in said, "the operator finds the request by its number"
    assert "the secret of the house" in said


FAILING = """
import sys
from functools import partial
import detent.serve.server as server
from detent.cli.app import run
from detent.testing import CrashAt

server.Parts = partial(server.Parts, crash_point=CrashAt("sealed", times=3))
sys.exit(run(["serve", "--home", sys.argv[1], "--port", "0", "-o", "json", "--workers", "0"]))
"""


def test_a_server_whose_commit_fails_ends_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """X-173"""
    played = play(tmp_path)
    environment = {**os.environ, **played.environment}
    line = [sys.executable, "-c", FAILING, str(played.home.path)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["owner"] == "here"
    with played.session() as session, suppress(DetentError):
        Hand(played.home, session).submit("lost", 1)
    assert process.wait(ANSWER_SECONDS) == 4
    assert "a commit failed, and the server ended rather than answer from memory" in process.communicate()[1]
    with serving(played) as served:
        assert served.get("/readyz").json["owner"] == "here"


@pytest.mark.door("route GET /v1/jobs/{job_id}/explain")
def test_jobs_of_other_workspaces_are_counted_in_an_explanation_and_never_named(tmp_path: Path) -> None:
    played = play(tmp_path)
    with played.session() as session:
        hand = Hand(played.home, session)
        hand.submit("foreign-job", 7)
        digest, inline = hand.stage(b"payload of a job")
        manifest = Manifest("local", "mine", "task", digest, 5, UNLIMITED_QUOTA.hash(), 0, origin=hand.origin)
        hand.ask(Submit(0, sign_manifest(manifest, hand._manifest_key)), inline)
    with serving(played) as served:
        explained = served.get("/v1/jobs/mine/explain")
        document = explained.json
        assert (document["state"], document["ahead"], document["ahead_total"]) == ("queued", [], 2)
        assert any("belongs to another workspace" in line for line in document["now"])
        assert b"foreign-job" not in explained.body
        assert document["head"] is None
        assert served.json("/v1/jobs")["items"][0]["job_id"] == "mine"
