"""What every job type has in common: who is answered how, with which times, and how a job is ended from outside."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from detent.canon import tick_to_iso
from detent.errors import Refused, StoreUnavailable
from detent.executor.runners import Attempt, Runners, env_version, missing_tools, model, tools
from detent.executor.runners.model import Outcome, RunnerFailure
from detent.executor.sandbox import Execution, Job, Limits, Profile, Sandbox
from detent.jobs import (
    ErrorCategory,
    JobPayload,
    JobResult,
    JobStatus,
    encode_result,
    read_payload,
    usage_of,
)
from detent.jobs.bounds import DEFAULT_BOUNDS
from detent.jobs.result import Artifact
from tests.executor.runners.rig import BASE_MS, Backend, backend, clock, error_of, execute, export, render, thumbnail
from tests.hostile.rig import CONTAINED
from tests.jobs.envelopes import NONCE, changed

DRAFTS: dict[str, dict[str, Any]] = {
    "object_execute": execute("def main(): return 1"),
    "object_render": render("x"),
    "document_export": export({"blocks": []}),
    "thumbnail_generate": thumbnail("sha256:" + "0" * 64),
}


def test_times_are_the_callers_and_the_nonce_is_too(here: Backend) -> None:
    """JOB-084, X-171"""
    payload = here.payload(DRAFTS["object_execute"])
    result = here.runners.run(payload, now=clock(77), nonce="cd" * 16)
    assert isinstance(result, JobResult)
    assert (result.started_at, result.finished_at) == (tick_to_iso(77, 1, BASE_MS), tick_to_iso(78, 1, BASE_MS))
    assert result.nonce == "cd" * 16
    assert b'"nonce":"' + b"cd" * 16 in encode_result(result)


def test_a_clock_that_goes_back_still_makes_a_result(here: Backend) -> None:
    """JOB-084"""
    moments = iter(["2026-01-10T10:00:05Z", "2026-01-10T10:00:01Z"])
    result = here.runners.run(here.payload(DRAFTS["object_execute"]), now=lambda: next(moments), nonce=NONCE)
    assert isinstance(result, JobResult)
    assert result.finished_at == result.started_at == "2026-01-10T10:00:05Z"


def test_usage_is_the_supervisors_and_enters_the_kernels_ledger(here: Backend) -> None:
    """JOB-049, JOB-080"""
    source = "def main():\n    keep = bytearray(b'x') * 40_000_000\n    return {'resource_usage': {'cpu_ms': 0}, 'n': len(keep)}"
    result = here.run(execute(source))
    assert result.resource_usage is not None
    assert 38 <= result.resource_usage.memory_mb_peak <= 512
    assert usage_of(result.resource_usage).peak_bytes == result.resource_usage.memory_mb_peak << 20
    assert result.status is JobStatus.SUCCEEDED


def test_a_draft_is_refused_and_another_major_version_too(here: Backend) -> None:
    """JOB-076, JOB-080, X-152"""
    draft = read_payload({**DRAFTS["object_execute"], "environment": {"env_version": "x@1"}})
    result = here.runners.run(draft, now=clock(), nonce=NONCE)
    assert isinstance(result, JobResult)
    assert result.error is not None
    assert result.error.message == "payload.created_at: is missing; an executor takes complete payloads only"
    payload = here.payload(DRAFTS["object_execute"])
    other = JobPayload.model_validate({**payload.document(), "schema_version": "2.0"})
    assert error_of(here.run_payload(other)) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")
    newer = JobPayload.model_validate({**payload.document(), "schema_version": "1.7"})
    assert here.run_payload(newer).status is JobStatus.SUCCEEDED


@pytest.mark.parametrize("job_type", DRAFTS)
def test_a_payload_for_another_environment_is_refused_with_both_names(here: Backend, job_type: str) -> None:
    """JOB-024, JOB-052, JOB-078, X-151"""
    result = here.run(DRAFTS[job_type], env_version="py-executor@2026.01.10")
    assert error_of(result) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")
    assert result.error is not None
    assert "'py-executor@2026.01.10'" in result.error.message
    assert f"'{here.runners.env_version(job_type)}'" in result.error.message


def test_network_access_is_refused_to_tools(here: Backend) -> None:
    """JOB-072"""
    draft = {**DRAFTS["object_render"], "environment": {"network_access": "enabled"}}
    result = here.run(draft)
    assert error_of(result) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")


def test_an_environment_names_every_tool_with_its_version() -> None:
    """JOB-024, JOB-039"""
    python = ".".join(str(part) for part in sys.version_info[:3])
    assert env_version("object_execute") == f"py-executor@1+py{python}"
    for job_type, names in tools.TOOLS.items():
        parts = env_version(job_type).split("+")
        assert parts[1] == f"py{python}"
        assert parts[2:] == [f"{name}-{tools.version_of(name)}" for name in names]
        payload = read_payload({**DRAFTS[job_type], "environment": {"env_version": env_version(job_type)}})
        assert payload.environment.env_version == env_version(job_type)


def test_packages_that_code_may_import_are_part_of_its_environment(tmp_path: Path) -> None:
    """JOB-024, JOB-078"""
    package = tmp_path / "thing-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
    one = env_version("object_execute", (tmp_path,))
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.1\n")
    assert env_version("object_execute") != one != env_version("object_execute", (tmp_path,))
    assert env_version("object_render", (tmp_path,)) == env_version("object_render")


def test_a_missing_tool_is_named_with_how_to_get_it(here: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """JOB-009, JOB-060"""
    payloads = [here.payload(DRAFTS[job_type]) for job_type in DRAFTS]
    monkeypatch.setattr(tools, "places_of", lambda name: ())
    monkeypatch.setattr(tools, "version_of", lambda name: None)
    assert missing_tools("thumbnail_generate") == ("pillow", "resvg_py")
    assert "pillow-none" in env_version("thumbnail_generate")
    for payload in payloads[1:]:
        result = here.run_payload(payload)
        assert error_of(result) == ("FAILED", "VALIDATION_ERROR", "VALIDATION_ERROR")
        assert result.error is not None
        assert "not supported here" in result.error.message
        assert "detent[render]" in result.error.message
    assert here.run_payload(payloads[0]).status is JobStatus.SUCCEEDED


def test_no_tool_is_loaded_outside_the_sandbox() -> None:
    """JOB-002: what reads untrusted input is imported where it runs."""
    script = (
        "import sys, detent.executor.runners as r\n"
        "[r.env_version(t) for t in ('object_render', 'document_export', 'thumbnail_generate')]\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('PIL', 'typst', 'ziamath', 'latex2mathml', 'resvg_py')])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert answer.stdout == "[]\n"


def test_where_untrusted_code_may_not_run_a_job_is_refused(tmp_path: Path) -> None:
    """JOB-002, JOB-080, X-160"""
    with Sandbox(profile=Profile.NONE) as supervisor:
        weak = backend(supervisor, tmp_path)
        drafts = [draft for name, draft in DRAFTS.items() if not missing_tools(name)]
        for draft in (*drafts[:3], *[thumbnail(weak.put(b"x")) for _ in drafts[3:]]):
            answer = weak.runners.run(weak.payload(draft), now=clock(), nonce=NONCE)
            assert isinstance(answer, Refused)
            assert answer.code == "SANDBOX_UNAVAILABLE"
        assert weak.runners._attempts == {}


def test_a_lowered_sandbox_stands_in_the_result(tmp_path: Path) -> None:
    """X-160"""
    with Sandbox(profile=Profile.NONE, required=Profile.NONE) as supervisor:
        result = backend(supervisor, tmp_path).run(DRAFTS["object_execute"])
    assert result.environment.sandbox == "none"
    assert [(entry.level, "lowered" in entry.message) for entry in result.logs] == [("warning", True)]


def test_cancel_ends_a_running_job_at_once_from_another_thread(here: Backend) -> None:
    """JOB-068"""
    source = "import os, time\nopen('/job/out/half.txt', 'w').write('x')\nos.write(1, b'.')\nwhile True: time.sleep(60)"
    payload = here.payload(execute(source))
    answers: list[JobResult | Refused] = []
    thread = threading.Thread(target=lambda: answers.append(here.runners.run(payload, now=clock(), nonce=NONCE)))
    thread.start()
    while not here.runners.cancel(payload.job_id):
        threading.Event().wait(0.001)
    thread.join(timeout=20)
    assert not thread.is_alive()
    (result,) = answers
    assert isinstance(result, JobResult)
    assert (result.status, result.error, result.artifacts) == (JobStatus.CANCELLED, None, ())
    assert here.runners.cancel(payload.job_id) is False


class CancelsWhileStoring:
    """A store that is slow enough for a cancellation to arrive in time."""

    def __init__(self, here: Backend) -> None:
        self.here = here
        self.runners = Runners(here.supervisor, self)

    def open(self, digest: bytes) -> Any:
        self.runners.cancel(self.here.payload(DRAFTS["object_execute"]).job_id)
        return self.here.store.open(digest)

    def put(self, source: Path, *, digest: bytes | None = None) -> Any:
        raise StoreUnavailable("the store is away")


def test_a_job_cancelled_before_it_starts_never_ran(here: Backend) -> None:
    """JOB-068"""
    draft = execute("open('/job/out/x', 'w').write('ran')\nwhile True: pass")
    digest = here.put(b"data")
    draft["inputs"]["object"]["dependencies"] = [{"kind": "dataset", "digest": digest}]
    result = CancelsWhileStoring(here).runners.run(here.payload(draft), now=clock(), nonce=NONCE)
    assert isinstance(result, JobResult)
    assert (result.status, result.resource_usage) == (JobStatus.CANCELLED, None)


def test_an_attempt_cancelled_before_it_was_known_never_ran(here: Backend) -> None:
    """JOB-068: the canceller need not know whether it has begun"""
    attempt = Attempt()
    attempt.cancel()
    payload = here.payload(execute("while True: pass"))
    result = here.runners.run(payload, now=clock(), nonce=NONCE, attempt=attempt)
    assert isinstance(result, JobResult)
    assert (result.status, result.resource_usage) == (JobStatus.CANCELLED, None)


def test_a_store_that_fails_is_the_callers_to_hear_of_and_nothing_is_left(here: Backend) -> None:
    """JOB-074"""
    with pytest.raises(StoreUnavailable):
        CancelsWhileStoring(here).runners.run(
            here.payload(execute("open('/job/out/x', 'w').write('ran')\ndef main(): pass")), now=clock(), nonce=NONCE
        )


def test_jobs_run_side_by_side(here: Backend) -> None:
    """JOB-002"""
    results: dict[int, Any] = {}

    def run(number: int) -> None:
        draft = changed(DRAFTS["object_execute"], "inputs.object.content.value", f"def main(): return {number}")
        results[number] = here.run({**draft, "job_id": f"0b5f7a52-6f0e-4c1d-9d6a-{number:012d}"}).outputs.result_json

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: number for number in range(4)}


def test_logs_are_bounded_in_number_and_size(here: Backend) -> None:
    """JOB-006, JOB-057, JOB-080, X-155"""
    source = """
def main():
    for i in range(250):
        open(f'/job/out/{i:03d}{"n" * 150}.svg', 'w').write('<svg onload="x()"></svg>')
"""
    result = here.run(execute(source, limits={"max_artifacts": 300}))
    assert result.status is JobStatus.SUCCEEDED, result.error
    assert (len(result.logs), result.logs_truncated) == (DEFAULT_BOUNDS.max_log_entries, True)
    assert all(len(entry.message.encode()) <= DEFAULT_BOUNDS.max_log_message_bytes for entry in result.logs)
    assert {one.content_type for one in result.artifacts} == {"text/plain; charset=utf-8"}


def test_error_texts_are_bounded(here: Backend) -> None:
    """JOB-006, JOB-059, JOB-080, X-155"""
    source = "def f(n):\n    if n: f(n - 1)\n    raise ValueError('m' * 10**6)\ndef main(): f(900)"
    result = here.run(execute(source))
    assert result.error is not None
    assert len(result.error.message.encode()) <= DEFAULT_BOUNDS.max_log_message_bytes
    assert len(result.error.details.model_dump_json().encode()) <= DEFAULT_BOUNDS.max_error_details_bytes


def test_a_code_that_means_something_else_does_not_make_a_result_unreadable(here: Backend) -> None:
    """JOB-058, JOB-060"""
    payload = here.payload(DRAFTS["object_execute"])
    outcome = Outcome(RunnerFailure(ErrorCategory.USER_CODE_ERROR, "LIMIT_MEMORY", "said a tool"))
    times = model.Times("2026-01-10T10:00:00Z", "2026-01-10T10:00:01Z")
    result = model.envelope(payload, outcome, None, (), times=times, nonce=NONCE)
    assert error_of(result) == ("FAILED", "USER_CODE_ERROR", "USER_CODE_ERROR")


def test_outputs_that_fit_no_result_are_the_jobs_failure(here: Backend) -> None:
    """JOB-060, JOB-080"""
    payload = here.payload(DRAFTS["object_execute"])
    times = model.Times("2026-01-10T10:00:00Z", "2026-01-10T10:00:01Z")
    execution = here.supervisor.run(Job(source="x = 1"))
    assert isinstance(execution, Execution)
    unfit = model.envelope(payload, Outcome(result_json=float("nan")), execution, (), times=times, nonce=NONCE)
    assert error_of(unfit) == ("FAILED", "VALIDATION_ERROR", "OUTPUT_INVALID")
    long = model.envelope(payload, Outcome(result_json="x" * 300_000), execution, (), times=times, nonce=NONCE)
    assert error_of(long) == ("FAILED", "RESOURCE_LIMIT", "LIMIT_OUTPUT")


def test_a_supervisor_that_is_gone_is_our_failure_and_may_be_tried_again(tmp_path: Path) -> None:
    """JOB-060"""
    with Sandbox(profile=Profile.NONE, required=Profile.NONE) as supervisor:
        at = backend(supervisor, tmp_path)
    result = at.run(DRAFTS["object_execute"])
    assert error_of(result) == ("FAILED", "INTERNAL_ERROR", "SANDBOX_FAILED")
    assert result.outputs.stdout == ""


def test_artifact_ids_are_the_jobs_own_and_differ(here: Backend) -> None:
    """JOB-050"""
    source = "def main():\n    for n in 'ab': open(f'/job/out/{n}', 'w').write('same')"
    result = here.run(execute(source))
    assert [one.artifact_id for one in result.artifacts] == [f"{result.job_id}.1", f"{result.job_id}.2"]
    assert len({one.digest for one in result.artifacts}) == 1
    assert all(isinstance(one, Artifact) for one in result.artifacts)


def test_a_job_may_have_more_memory_than_the_jails_built_ahead(tmp_path: Path) -> None:
    """JOB-037"""
    if not CONTAINED:
        pytest.skip("no profile here contains untrusted code")
    small = Limits(memory_bytes=64 << 20, processes=8)
    with Sandbox(profile=CONTAINED[0], warm=2, warm_limits=small) as supervisor:
        supervisor.await_warm()
        at = backend(supervisor, tmp_path)
        source = "def main(): return len(bytearray(b'x') * (150 << 20))"
        assert at.run(execute(source, limits={"memory_mb": 256})).outputs.result_json == 150 << 20
        assert error_of(at.run(execute(source, limits={"memory_mb": 32})))[2] == "LIMIT_MEMORY"


def test_a_waiting_jail_fits_a_job_without_inputs(here: Backend) -> None:
    """The space of a jail is fixed when it is built, so the runner asks for what those built ahead have."""
    here.supervisor.await_warm()
    waiting = here.supervisor._ready[0]
    assert (
        here.runners._limits(here.payload(DRAFTS["object_execute"])).disk_bytes
        == here.supervisor.warm_limits.disk_bytes
    )
    here.run(DRAFTS["object_execute"])
    assert waiting not in here.supervisor._ready
