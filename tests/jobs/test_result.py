from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from detent.canon import json_encode
from detent.jobs import (
    EnvelopeInvalid,
    JobStatus,
    ResourceUsage,
    answer_fault,
    public_result,
    read_result,
    result_schema,
    usage_of,
)
from detent.kernel import Usage
from tests.jobs.envelopes import (
    ENV_VERSION,
    FAILED,
    OTHER_JOB_ID,
    SUCCEEDED,
    changed,
    failure,
    payload,
    result,
    without,
)

TIMED_OUT = {
    **FAILED,
    "status": "TIMED_OUT",
    "error": {"category": "RESOURCE_LIMIT", "code": "LIMIT_WALL", "message": "30000 ms are over"},
}


def path_of(document: Any) -> str:
    with pytest.raises(EnvelopeInvalid) as caught:
        read_result(document)
    assert caught.value.code == "VALIDATION_ERROR"
    return str(caught.value.details["path"])


@pytest.mark.parametrize("document", [SUCCEEDED, FAILED, TIMED_OUT])
def test_results_as_the_contract_writes_them_are_read(document: dict[str, Any]) -> None:
    """JOB-049..JOB-051, JOB-058, JOB-059, X-153"""
    assert read_result(document).document() == document
    assert read_result(json_encode(document)) == read_result(document)


@pytest.mark.parametrize("document", [SUCCEEDED, FAILED, TIMED_OUT])
def test_the_published_schema_agrees_about_results(document: dict[str, Any]) -> None:
    """JOB-049, JOB-058"""
    judge = Draft202012Validator(result_schema())
    assert list(judge.iter_errors(document)) == []
    for name in ("outputs", "artifacts", "environment", "started_at"):
        assert not judge.is_valid(without(document, name))
    assert not judge.is_valid({**document, "status": "CANCELED"})


def test_the_published_schema_wants_an_error_in_a_failure_and_none_in_a_success() -> None:
    """JOB-058"""
    judge = Draft202012Validator(result_schema())
    assert not judge.is_valid(without(FAILED, "error"))
    assert not judge.is_valid({**SUCCEEDED, "error": FAILED["error"]})
    assert not judge.is_valid(without(SUCCEEDED, "logs"))


@pytest.mark.parametrize(
    "name",
    [
        *("schema_version", "job_id", "job_type", "status", "started_at", "finished_at", "duration_ms"),
        *("resource_usage", "outputs", "artifacts", "logs", "environment"),
    ],
)
def test_a_success_has_every_field_of_the_contract(name: str) -> None:
    """JOB-049, JOB-052, JOB-075, X-151"""
    assert path_of(without(SUCCEEDED, name)) == name


def test_the_environment_version_is_part_of_every_result() -> None:
    """JOB-021, JOB-052, X-151"""
    assert result().environment.env_version == ENV_VERSION
    for document in (SUCCEEDED, FAILED, TIMED_OUT):
        assert path_of({**document, "environment": {}}) == "environment.env_version"


@pytest.mark.parametrize("document", [FAILED, TIMED_OUT])
@pytest.mark.parametrize("name", ["started_at", "finished_at", "error", "outputs", "artifacts"])
def test_a_failure_has_its_error_and_may_leave_out_the_rest(document: dict[str, Any], name: str) -> None:
    """JOB-058, X-153"""
    assert path_of(without(document, name)) == name
    assert {"duration_ms", "resource_usage", "logs"} & document.keys() == set()


@pytest.mark.parametrize("name", ["artifact_id", "kind", "format", "digest", "size_bytes", "uri", "content_type"])
def test_an_artifact_has_every_field_of_the_contract(name: str) -> None:
    """JOB-050, JOB-055"""
    assert path_of(without(SUCCEEDED, f"artifacts.0.{name}")) == f"artifacts[0].{name}"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("digest", "sha256:short"),
        ("digest", None),
        ("size_bytes", -1),
        ("size_bytes", 1.5),
        ("content_type", "png"),
        ("content_type", "text/html\r\nx: y"),
        ("metadata", {"note": "x" * 5000}),
        ("metadata", []),
    ],
)
def test_an_artifact_that_does_not_fit_is_refused(path: str, value: Any) -> None:
    """JOB-050, JOB-055"""
    assert path_of(changed(SUCCEEDED, f"artifacts.0.{path}", value)) == f"artifacts[0].{path}"


def test_an_artifact_is_named_once() -> None:
    """JOB-050"""
    assert path_of({**SUCCEEDED, "artifacts": SUCCEEDED["artifacts"] * 2}) == "artifacts"


@pytest.mark.parametrize("name", ["level", "message", "timestamp"])
def test_a_log_entry_has_every_field_of_the_contract(name: str) -> None:
    """JOB-051"""
    assert path_of(without(SUCCEEDED, f"logs.0.{name}")) == f"logs[0].{name}"
    assert path_of(changed(SUCCEEDED, f"logs.0.{name}", 3)) == f"logs[0].{name}"


@pytest.mark.parametrize("status", ["PENDING", "QUEUED", "RUNNING"])
def test_a_result_is_about_a_job_that_has_ended(status: str) -> None:
    """JOB-049"""
    assert path_of({**SUCCEEDED, "status": status}) == "status"


def test_a_success_carries_no_error() -> None:
    """JOB-049"""
    assert path_of({**SUCCEEDED, "error": FAILED["error"]}) == "error"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("LIMIT_WALL", "TIMED_OUT"),
        ("LIMIT_CPU", "TIMED_OUT"),
        ("WATCHDOG_WALL", "TIMED_OUT"),
        ("WATCHDOG_IDLE", "TIMED_OUT"),
        ("LIMIT_MEMORY", "FAILED"),
        ("LIMIT_OUTPUT", "FAILED"),
        ("LIMIT_ARTIFACTS", "FAILED"),
    ],
)
def test_deadlines_time_out_and_other_limits_fail_all_as_resource_limits(code: str, status: str) -> None:
    """JOB-060, X-146"""
    assert failure("RESOURCE_LIMIT", code, status).status == status
    other = "FAILED" if status == "TIMED_OUT" else "TIMED_OUT"
    with pytest.raises(EnvelopeInvalid) as caught:
        failure("RESOURCE_LIMIT", code, other)
    assert caught.value.details["path"] == "status"
    with pytest.raises(EnvelopeInvalid) as caught:
        failure("USER_CODE_ERROR", code, status)
    assert caught.value.details["path"] == "error.code"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("error.category", "OTHER"),
        ("error.category", None),
        ("error.code", "python exception"),
        ("error.message", None),
        ("error.details.line", 0),
        ("error.details.column", -1),
        ("error.details.traceback", 7),
    ],
)
def test_an_error_that_does_not_fit_is_refused(path: str, value: Any) -> None:
    """JOB-058..JOB-060"""
    assert path_of(changed(FAILED, path, value)) == path


def test_an_attempt_does_not_end_before_it_begins() -> None:
    """JOB-049"""
    assert path_of({**SUCCEEDED, "finished_at": "2026-01-10T10:00:09.999Z"}) == "finished_at"
    halves = {"started_at": "2026-01-10T10:00:10.5Z", "finished_at": "2026-01-10T10:00:10.45Z"}
    assert path_of({**SUCCEEDED, **halves}) == "finished_at"
    same = {**SUCCEEDED, "finished_at": "2026-01-10T10:00:10.000+00:00"}
    assert read_result(same).finished_at == "2026-01-10T10:00:10.000+00:00"
    assert read_result({**SUCCEEDED, "finished_at": "+10000-02-29T00:00:00Z"}).status == "SUCCEEDED"


def test_a_worker_may_say_cancelled_without_an_error() -> None:
    """X-158"""
    assert read_result({**without(without(FAILED, "error"), "outputs"), "status": "CANCELLED"}).status == "CANCELLED"


def test_a_result_is_refused_when_its_value_is_not_strict_json() -> None:
    """X-170"""
    assert path_of(changed(SUCCEEDED, "outputs.result_json", {"y": float("inf")})) == "outputs.result_json.y"
    with pytest.raises(EnvelopeInvalid, match="twice"):
        read_result(b'{"status":"FAILED","status":"SUCCEEDED"}')


def test_a_result_answers_exactly_one_payload() -> None:
    """JOB-021"""
    asked = payload()
    assert answer_fault(asked, result()) is None
    for name, value in (("job_id", OTHER_JOB_ID), ("job_type", "object_render")):
        assert name in str(answer_fault(asked, result(**{name: value})))
    assert "r@4" in str(answer_fault(asked, result(environment={"env_version": "r@4"})))


def test_a_client_sees_neither_storage_addresses_nor_the_nonce() -> None:
    """JOB-053, X-171"""
    shown = public_result(result())
    assert "s3://" not in str(shown)
    assert "nonce" not in shown
    assert shown["artifacts"][0]["digest"] == SUCCEEDED["artifacts"][0]["digest"]
    assert public_result(read_result(FAILED)) == FAILED


def test_a_result_cannot_be_changed_once_it_is_read() -> None:
    with pytest.raises(ValidationError):
        result().status = JobStatus.FAILED


def test_unknown_fields_of_a_result_survive() -> None:
    """X-161"""
    document = changed(SUCCEEDED, "resource_usage.energy_mj", 12)
    document = changed(document, "error", None)
    assert read_result({**document, "notes": ["x"]}).document() == {**document, "notes": ["x"]}


def test_usage_is_turned_into_the_units_of_the_ledger() -> None:
    """X-025"""
    usage = ResourceUsage(cpu_ms=1800, memory_mb_peak=210, gpu_ms=7, io_bytes_read=11, io_bytes_written=13)
    assert usage_of(usage) == Usage(0, 210 * 2**20, 11, 13, 7, 1800)
    assert usage_of(ResourceUsage(cpu_ms=1)) == Usage(0, 0, 0, 0, 0, 1)
