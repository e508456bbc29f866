"""Workers on other machines, for tests: the real command as a process of its own, and one that a test moves turn by turn."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detent.access.certificate import replica_of
from detent.access.turn import Answer, Turn, read_answer
from detent.canon import SigningKey, json_digest
from detent.jobs.work import SUCCEEDED, Result, WorkReport
from detent.kernel import Grant
from detent.ledger import sign_results
from detent.remote.address import parse_address
from detent.remote.enrol import enrol
from detent.remote.http import Http
from detent.remote.signed import SignedRequests
from detent.remote.worker_state import Enrolled, WorkerState
from detent.reuse.ingredients import env_version
from tests.serve.served import ANSWER_SECONDS, Served


def enrolment(served: Served, **wanted: Any) -> str:
    """A token that enrols workers."""
    reply = served.ask("POST", "/v1/enrolments", body=json.dumps(wanted).encode())
    assert reply.status == 201, reply.body
    return str(reply.json["token"])


def task(served: Served, target: str, *arguments: object, **more: object) -> str:
    """Submit a call of a function; gives the job's id."""
    body = {"task": {"target": target, "arguments": list(arguments), **more}}
    reply = served.ask("POST", "/v1/jobs", body=json.dumps(body).encode())
    assert reply.status in (200, 202), reply.body
    return str(reply.json["job_id"])


def ended(served: Served, job_id: str) -> dict[str, Any]:
    """A job when it has ended."""
    found: dict[str, Any] = {"status": "unknown"}
    for _ in range(3):
        found = served.json(f"/v1/jobs/{job_id}?wait=40")
        if found["status"] in {"succeeded", "failed", "cancelled", "timed_out"}:
            return dict(found)
    raise AssertionError(f"the job is still {found['status']}")


@dataclass(slots=True)
class RemoteWorker:
    """`detent worker --connect` as a process."""

    state: Path
    project: Path
    url: str
    environment: Mapping[str, str]
    process: subprocess.Popen[str] | None = None
    options: Sequence[str] = field(default_factory=tuple)

    def start(self, token: str | None = None, *, alone: bool = False) -> RemoteWorker:
        """Start it; ``alone``: without a word about its server."""
        where = [] if alone else ["--connect", self.url, *([] if token is None else ["--enrol", token])]
        environment = {name: value for name, value in self.environment.items() if name != "DETENT_HOME"}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "detent", "worker", *where),
                *("--state", str(self.state), "--project", str(self.project), "--slots", "2", *self.options),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.project,
        )
        return self

    @property
    def worker_id(self) -> str:
        enrolled = WorkerState(self.state).enrolled()
        assert enrolled is not None
        return enrolled.worker_id

    @property
    def key_id(self) -> str:
        return WorkerState(self.state).key().key_id.hex()

    def wait_for(self, text: str) -> None:
        """Wait for a line that it tells."""
        assert self.process is not None
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            if text in line:
                return
            said.append(line)
        raise AssertionError(f"the worker ended with {self.ended()} without saying {text!r}, but: {''.join(said)}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; gives the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end; gives the exit code."""
        assert self.process is not None
        self.process.communicate(timeout=ANSWER_SECONDS)
        return self.process.returncode


@contextmanager
def remote_worker(served: Served, directory: Path, *options: str, url: str | None = None) -> Iterator[RemoteWorker]:
    """A worker that is enrolled and takes jobs."""
    state = directory / "state"
    worker = RemoteWorker(state, directory, url or served.told["url"], served.environment, options=options)
    worker.start(enrolment(served))
    assert worker.process is not None
    try:
        worker.wait_for("takes jobs")
        yield worker
    finally:
        if worker.process.poll() is None:
            worker.process.kill()
        worker.ended()


HANDS: list[HandWorker] = []
"""Those whose connections are open."""


class HandWorker:
    """A worker that a test moves turn by turn."""

    def __init__(self, served: Served, directory: Path, token: str | None = None, url: str | None = None) -> None:
        self.state = WorkerState(directory)
        address = parse_address(url or served.told["url"])
        self.enrolled: Enrolled = enrol(self.state, address, token or enrolment(served), pin=None)
        self.key: SigningKey = self.state.key()
        self.connect(url or served.told["url"])
        self.boot = "0123456789abcdef"
        HANDS.append(self)
        self.number = self.requests.now_ms()

    def connect(self, url: str) -> None:
        """Talk to a server at another address from now on."""
        self.http = Http(parse_address(url))
        self.requests = SignedRequests(self.http, self.enrolled.worker_id, self.key, self.enrolled.origin)

    @property
    def holder(self) -> str:
        return replica_of(self.enrolled.worker_id, self.boot)

    def say(self, **said: Any) -> Turn:
        """The next turn."""
        self.number += 1
        return Turn(**{"boot": self.boot, "turn": self.number, "slots": 4, **said})

    def turn(self, said: Turn | None = None, **fields: Any) -> Answer:
        """Take a turn."""
        return read_answer(self.requests.turn((said or self.say(**fields)).encode(), ANSWER_SECONDS))

    def report(self, grant: Grant, value: bytes | None = b"1", **changes: Any) -> tuple[bytes, bytes]:
        """A signed report of success."""
        result = Result(status=SUCCEEDED, value=value, started_ms=1, finished_ms=2)
        report = WorkReport(
            **{
                "job_id": grant.job_id,
                "attempt_id": grant.attempt_id,
                "lease_id": grant.lease_id,
                "manifest_hash": grant.job_manifest_hash,
                "nonce": b"\x01" * 16,
                "result": result,
                "value_digest": None if value is None else json_digest(value),
                "env_version": env_version({}),
                "worker": self.holder,
                **changes,
            }
        )
        (signed,) = sign_results([report.body()], self.key)
        return grant.lease_id, signed.envelope()
