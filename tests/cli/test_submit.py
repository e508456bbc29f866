"""`detent submit`: payloads checked whole, held to plans, compared with earlier work, and queued."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import detent
from detent.canon import digest_text, sha256
from tests.cli.project import Project, detent_home, project
from tests.cli.submitted import draft, needs_sandbox, payload_file, settings, square, submit
from tests.executor.runners.rig import execute, render

__all__ = ["detent_home", "project"]

PLANS = """
[plans.default]
timeout_ms = 10000
memory_mb = 256

[plans.large]
memory_mb = 4096
network_access = true
workspaces = ["team-b"]
"""


def test_a_submitted_job_belongs_to_its_workspace_and_waits_in_its_class(project: Project) -> None:
    """JOB-007, JOB-019, JOB-035, JOB-081, JOB-085, X-010, X-017"""
    told = submit(project, square(workspace_id="team-a", priority="high", requested_by={"user_id": "ada"}))
    assert (told["workspace_id"], told["user_id"], told["plan"]) == ("team-a", "ada", "default")
    assert (told["status"], told["deduplicated"], told["superseded"]) == ("queued", False, [])
    job = project.json("show", told["job_id"])
    assert (job["tenant_id"], job["job_kind"], job["priority"], job["state"]) == ("team-a", "platform", 10, "queued")
    assert job["order"]["target"]["requested_by"] == {"user_id": "ada"}
    assert job["order"]["target"]["execution_key"] == told["execution_key"]


def test_a_payload_is_read_from_standard_input(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(square()).encode())))
    assert project.json("submit", "-")["status"] == "queued"


def test_the_id_that_a_payload_gives_its_job_is_kept_and_can_be_used_once(project: Project) -> None:
    """JOB-019, X-017"""
    first = execute("def main(): return 1")
    assert submit(project, first)["job_id"] == first["job_id"]
    again = submit(project, {**first, "workspace_id": "another"}, code=1)
    assert again["error"]["code"] == "CONFLICT"
    assert len(project.json("list", "--jobs")) == 1


def test_every_fault_of_a_payload_is_told_by_its_path_and_nothing_is_submitted(project: Project) -> None:
    """JOB-003, JOB-034, JOB-036, JOB-062, X-016: a platform job names its document, and other jobs have none."""
    wrong = square(workspace_id=1, limits={"memory_mb": 0}, output_spec={"formats": ["gif"]})
    del wrong["document_revision_id"]
    told = submit(project, wrong, code=2)["error"]
    assert told["code"] == "VALIDATION_ERROR"
    assert {fault["path"] for fault in told["details"]["errors"]} == {
        "workspace_id",
        "limits.memory_mb",
        "output_spec.formats[0]",
        "document_revision_id",
    }
    said = project("submit", "payload.json")
    assert (said.code, said.err.count("error: ")) == (2, 4)
    assert project.json("list", "--jobs") == []
    with detent.Client(project.home.path, workers=0) as client:
        client.submit(sum, [1, 2])
    assert [job["state"] for job in project.json("list", "--jobs")] == ["queued"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"job_type": "object_bake"}, "job_type"),
        ({"schema_version": "2.0"}, "schema_version"),
        ({"environment": {"env_version": "py-executor@2019"}}, "environment.env_version"),
        ({"execution_key": "sha256:" + "0" * 64}, "execution_key"),
        ({"retry_of": "abc"}, "retry_of"),
    ],
)
def test_a_payload_that_cannot_run_here_is_refused_by_its_field(
    project: Project, change: dict[str, Any], path: str
) -> None:
    """JOB-025, JOB-060, JOB-076"""
    told = submit(project, square(**change), code=2)["error"]
    assert (told["code"], told["details"]["path"]) == ("VALIDATION_ERROR", path)
    assert project.json("list", "--jobs") == []


def test_limits_above_the_plan_are_all_refused_and_a_smaller_plan_lowers_the_defaults(project: Project) -> None:
    """JOB-038, X-032: the plan of a workspace comes from [plans.NAME] in the settings."""
    settings(project, PLANS)
    told = submit(project, square(limits={"timeout_ms": 10_001, "memory_mb": 257}), code=3)["error"]
    assert told["code"] == "PLAN_EXCEEDED"
    assert [(fault["path"], fault["allowed"]) for fault in told["details"]["errors"]] == [
        ("limits.timeout_ms", 10_000),
        ("limits.memory_mb", 256),
    ]
    assert project.json("list", "--jobs") == []
    limits = project.json("show", submit(project, square())["job_id"])["order"]["target"]["limits"]
    assert (limits["timeout_ms"], limits["memory_mb"], limits["cpu_ms"]) == (10_000, 256, 30_000)
    wide = submit(project, square(workspace_id="team-b", limits={"memory_mb": 4096, "timeout_ms": 60_000}))
    assert wide["plan"] == "large"


REACH = """\
import socket


def main(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            return connection.recv(100).decode()
    except OSError as exc:
        return type(exc).__name__
"""
LISTEN = """\
import socket


def main(port):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "bound"
"""
HIDDEN = """\
import socket


def main(port):
    try:
        socket.socket(socket.AF_UNIX)
    except OSError as exc:
        left, right = socket.socketpair()
        left.send(exc.strerror.encode())
        return right.recv(100).decode()
    return "made"
"""


@contextmanager
def greeting() -> Iterator[int]:
    """A program of the machine that greets callers; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(b"hello from outside")

        threading.Thread(target=greet, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def reaching(port: int, source: str = REACH, **changes: Any) -> dict[str, Any]:
    """A job that calls a program of the machine."""
    return draft(execute(source, parameters={"port": port}), workspace_id="team-b", **changes)


@needs_sandbox
def test_a_network_needs_the_grant_of_the_plan_and_is_off_unless_a_job_asks_for_it(project: Project) -> None:
    """JOB-040, JOB-041, JOB-072"""
    settings(project, PLANS)
    asked = square(environment={"network_access": "enabled"})
    ungranted = submit(project, asked, code=3)["error"]
    assert (ungranted["code"], ungranted["details"]["path"]) == ("PLAN_EXCEEDED", "environment.network_access")
    enabled = {"network_access": "enabled"}
    with greeting() as port:
        reached = submit(project, reaching(port, environment=enabled), "--wait")
        cut_off = submit(project, reaching(port), "--wait", code=1)
        bound = submit(project, reaching(port, LISTEN, environment=enabled), "--wait", code=1)
        hidden = submit(project, reaching(port, HIDDEN, environment=enabled), "--wait")
    assert "hello from outside" in json.dumps(reached)
    assert "SANDBOX_VIOLATION" in json.dumps(cut_off)
    assert "SANDBOX_VIOLATION" in json.dumps(bound), "a job with a network listens to nobody"
    assert "not supported" in json.dumps(hidden), "sockets of the machine's own programs stay out of reach"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[plans.free]\nmemory = 1\n", "plans.free: unknown key 'memory'"),
        ("[plans.free]\nmemory_mb = 0\n", "plans.free.memory_mb"),
        ('[plans.free]\nworkspaces = "a"\n', "plans.free.workspaces: must be a list"),
        ('[plans.a]\nworkspaces = ["w"]\n[plans.b]\nworkspaces = ["w"]\n', "'w' has the plan 'a' already"),
        ("[jobs]\nsupersede = 1\n", "jobs.supersede: 1 is not true or false"),
        ("[jobs]\nmax_error_details_bytes = 1\n", "max_error_details_bytes must be at least 256"),
    ],
)
def test_a_setting_of_jobs_that_makes_no_sense_names_its_key(project: Project, text: str, said: str) -> None:
    project.checked = False  # A home with such settings cannot be opened.
    settings(project, text)
    told = project("submit", payload_file(project, square()))
    assert told.code == 2
    assert said in told.err


@needs_sandbox
def test_equal_work_that_succeeded_answers_for_a_new_job_of_its_workspace(project: Project) -> None:
    """JOB-005, JOB-022, JOB-026, JOB-063, JOB-078, X-148: file names, priority and limits are not part of the work."""
    first = submit(project, square(), "--wait")
    again = submit(project, square(priority="low", limits={"memory_mb": 300}))
    assert (again["job_id"], again["deduplicated"]) == (first["job_id"], True)
    assert again["execution_key"] == first["execution_key"]
    others = [
        square(8),
        square(document_revision_id="rev-2"),
        square(workspace_id="another"),
        square(target={"object_id": "cell-2"}),
    ]
    assert [submit(project, other)["deduplicated"] for other in others] == [False] * len(others)
    assert len(project.json("list", "--jobs")) == 1 + len(others)


@needs_sandbox
def test_a_failure_is_reused_only_when_that_is_asked_for(project: Project) -> None:
    """JOB-027, JOB-061"""
    broken = draft(execute("def main(): return 1 / 0"))
    first = submit(project, broken, "--wait", code=1)
    assert submit(project, broken, "--reuse-failed")["job_id"] == first["job_id"]
    assert submit(project, broken)["deduplicated"] is False


def test_work_under_way_is_joined_only_when_that_is_asked_for(project: Project) -> None:
    """JOB-028, X-149"""
    first = submit(project, square())
    assert submit(project, square(), "--join")["job_id"] == first["job_id"]
    assert submit(project, square())["deduplicated"] is False


def test_a_request_under_an_idempotency_key_is_answered_once(project: Project) -> None:
    """JOB-029, JOB-031, JOB-032, JOB-033: by workspace and user; another body under the same key is refused."""
    first = submit(project, square(), "--idempotency-key", "order 1")
    again = submit(project, square(), "--idempotency-key", "order 1")
    assert (again["job_id"], again["deduplicated"]) == (first["job_id"], True)
    other = submit(project, square(8), "--idempotency-key", "order 1", code=2)["error"]
    assert other["code"] == "IDEMPOTENCY_KEY_REUSED"
    assert submit(project, square(), "--idempotency-key", "order 1", "--user", "eve")["job_id"] != first["job_id"]
    assert submit(project, square(workspace_id="w"), "--idempotency-key", "order 1")["deduplicated"] is False
    assert len(project.json("list", "--jobs")) == 3


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("[jobs]\nsupersede = true\n", 1)])
def test_a_newer_revision_supersedes_waiting_jobs_if_the_settings_say_so(
    project: Project, text: str, expected: int
) -> None:
    """JOB-015, JOB-067, X-034: `show` and `result` name the job that replaced it, and it was never shown as running."""
    settings(project, text)
    old = submit(project, square())["job_id"]
    unrelated = submit(project, square(target={"object_id": "cell-2"}))["job_id"]
    new = submit(project, square(document_revision_id="rev-2"))
    assert new["superseded"] == [old][:expected]
    shown = project.json("show", old)
    assert project.json("show", unrelated)["state"] == "queued"
    if not expected:
        assert shown["state"] == "queued"
        return
    assert (shown["state"], shown["reason_code"], shown["superseded_by"]) == ("cancelled", "SUPERSEDED", new["job_id"])
    assert shown["timeline"]["history"] == ["pending", "queued", "cancelled"]
    told = project.json("result", old, code=1)
    assert (told["status"], told["superseded_by"], told["result"]) == ("cancelled", new["job_id"], None)


def test_a_number_says_which_revision_is_the_newer_one(project: Project) -> None:
    """X-034: a job for an older revision supersedes nothing, whenever it is submitted."""
    settings(project, "[jobs]\nsupersede = true\n")
    submit(project, square(document_revision_id="b", document_revision_number=2))
    assert submit(project, square(document_revision_id="a", document_revision_number=1))["superseded"] == []
    assert len(submit(project, square(document_revision_id="c", document_revision_number=3))["superseded"]) == 2


@needs_sandbox
def test_jobs_of_a_higher_class_begin_first(project: Project) -> None:
    """JOB-035, X-010: previews before full exports, whatever was submitted first."""
    jobs = {name: submit(project, square(9, priority=name, workspace_id=name))["job_id"] for name in ("low", "high")}
    project.json("result", jobs["low"], "--wait")
    project.json("result", jobs["high"], "--wait")
    began = {
        name: next(record["position"] for record in project.json("show", job)["records"] if record.get("dispatch"))
        for name, job in jobs.items()
    }
    assert began["high"] < began["low"]


@needs_sandbox
def test_a_dataset_is_stored_with_the_job_that_names_it_by_digest(project: Project) -> None:
    """JOB-023, JOB-043, JOB-071, X-159"""
    project.write("points.csv", "1\n2\n3\n")
    read = "import json, pathlib\n\ndef main():\n    names = json.loads(pathlib.Path('/job/inputs/inputs.json').read_text())\n"
    read += "    (file,) = [one['file'] for one in names['datasets'].values()]\n"
    read += "    return sum(map(int, pathlib.Path('/job/inputs', file).read_text().split()))\n"
    document = draft(execute(read))
    unnamed = submit(project, document, "--file", "points.csv", code=2)["error"]
    digest = unnamed["details"]["digest"]
    assert digest in unnamed["hint"]
    document["inputs"]["object"]["dependencies"] = [{"kind": "dataset", "digest": digest, "name": "points.csv"}]
    told = submit(project, document, "--file", "points.csv", "--wait")
    assert told["result"]["outputs"]["result_json"] == 6
    assert project("gc").code == 0
    renamed = json.loads(json.dumps(document).replace("points.csv", "renamed.csv"))
    assert submit(project, renamed)["job_id"] == told["job_id"]


@needs_sandbox
def test_the_history_of_submitted_jobs_verifies_and_replays(project: Project) -> None:
    """JOB-018, JOB-083"""
    submit(project, draft(render("x^2", "svg")), "--wait", "--idempotency-key", "one")
    assert project.json("verify")["ok"]
    assert project("replay").code == 0


@needs_sandbox
def test_an_ended_job_is_retried_as_a_new_one_that_names_it(project: Project) -> None:
    """JOB-063, JOB-065, X-154: the dataset that was missing is there now; the earlier job stays failed."""
    project.write("points.csv", "4\n")
    source = "import pathlib\n\ndef main():\n    (file,) = pathlib.Path('/job/inputs').glob('sha256-*')\n    return file.read_text()\n"
    document = draft(execute(source), requested_by={"user_id": "ada"}, workspace_id="team-a")
    digest = digest_text(sha256(b"4\n"))
    document["inputs"]["object"]["dependencies"] = [{"kind": "dataset", "digest": digest}]
    failed = submit(project, document, "--wait", code=1)
    assert failed["result"]["error"]["category"] == "DEPENDENCY_ERROR"
    submit(project, {**document, "document_revision_id": "rev-2"}, "--file", "points.csv")
    again = project.json("retry", failed["job_id"])
    assert (again["retry_of"], again["workspace_id"], again["user_id"]) == (failed["job_id"], "team-a", "ada")
    assert again["result"]["outputs"]["result_json"] == "4\n"
    assert project.json("show", again["job_id"])["order"]["target"]["retry_of"] == failed["job_id"]
    assert project.json("show", failed["job_id"])["state"] == "failed"


def test_the_schemas_of_payloads_and_results_are_printed(project: Project) -> None:
    """JOB-034, JOB-049, JOB-075"""
    payload, result = project.json("schema", "payload"), project.json("schema", "result")
    Draft202012Validator(payload).validate(execute("def main(): pass"))
    assert not Draft202012Validator(payload).is_valid({**execute("def main(): pass"), "schema_version": 1})
    assert result["properties"].keys() >= {"schema_version", "artifacts", "environment", "error"}
