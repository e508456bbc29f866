"""Orders and reports: what is asked of a worker and its answer, as bytes that fit nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, encode, json_digest, json_encode, sha256
from detent.errors import InvalidInput
from detent.jobs.order import Call, JobLimits, Order, Origin, read_order
from detent.jobs.status import ErrorCategory
from detent.jobs.work import (
    FILES_MAX,
    REPORT_BYTES_MAX,
    Failure,
    WorkFile,
    WorkReport,
    WorkStream,
)
from tests.flat_reports import changed_report, flat_report

DIGEST = sha256(b"content")
ORDER = Order(
    Call(
        kind="python",
        target="steps:load",
        arguments=(1, {"$result": "sha256:a"}),
        keywords={"file": {"$file": "sha256:f"}, "rows": {"$result": "sha256:b"}},
        base="/project",
        cwd="data",
        env={"TOTAL": {"$result": "sha256:c"}},
        outputs={"page": "out/*.html"},
    ),
    "etl/load",
    JobLimits(wall_ms=1000, wall_by="timeout of the step", resources={"gpu": 1}),
    Origin(run_id="run-1", step="load", index=3, ingredients={"code": "sha256:0"}),
)
PLAIN = Order(Call(kind="shell", target="true"), "l")
REPORT = flat_report(
    job_id="job-1",
    attempt_id=2,
    lease_id=sha256(b"lease"),
    manifest_hash=sha256(b"manifest"),
    status="SUCCEEDED",
    nonce=bytes(16),
    value=b"[1]",
    value_digest=json_digest(b"[1]"),
    stdout=WorkStream(b"out", None, False),
    stderr=WorkStream(b"", DIGEST, True),
    files=(WorkFile("a.txt", DIGEST, 3, "text/plain", "page"), WorkFile("b", DIGEST, 0)),
    env_version="py",
    worker="w",
    started_ms=1,
    finished_ms=2,
    cpu_ms=3,
    memory_bytes_peak=4,
    io_bytes_read=5,
    io_bytes_written=6,
)
FAILURE = changed_report(
    REPORT,
    status="FAILED",
    value=None,
    value_digest=None,
    error=Failure("USER_CODE_ERROR", "PYTHON_EXCEPTION", "boom", "ValueError", "Traceback...", 3, 4),
)


def test_an_order_is_read_back_as_it_was() -> None:
    """WF-284: it contains everything that a worker needs."""
    assert read_order(ORDER.document()) == ORDER
    assert read_order(ORDER.document()).limits.wall_by == "timeout of the step"
    assert read_order(PLAIN.document()) == PLAIN


def test_an_order_says_only_what_is_not_the_default() -> None:
    assert PLAIN.document() == {
        "version": 1,
        "kind": "shell",
        "target": "true",
        "label": "l",
    }


def test_an_order_names_the_results_and_files_it_is_given() -> None:
    """X-167: by digest, wherever they stand."""
    assert list(ORDER.call.results()) == ["sha256:a", "sha256:b", "sha256:c"]
    assert list(ORDER.call.files()) == ["sha256:f"]
    payload = Call(kind="job", target={"inputs": {"x": {"$result": "sha256:j"}}})
    assert list(payload.results()) == ["sha256:j"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "a mapping of version 1"),
        ([], "a mapping of version 1"),
        ({"version": 2}, "a mapping of version 1"),
        ({"version": 1, "kind": "python"}, "lacks label"),
        ({"version": 1, "kind": "python", "target": "t", "label": "l", "evil": 1}, "has no 'evil'"),
        ({"version": 1, "kind": "rust", "target": "t", "label": "l"}, "kind 'rust' is unknown"),
    ],
)
def test_what_is_no_order_is_refused(document: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_order(document)


@pytest.mark.parametrize(
    "report", [REPORT, FAILURE, changed_report(REPORT, status="CANCELLED", value=None, value_digest=None)]
)
def test_a_report_is_read_back_as_it_was(report: WorkReport) -> None:
    """JOB-083: it names job, attempt, lease and manifest."""
    assert WorkReport.parse(report.body()) == report


def test_a_report_says_how_the_attempt_ends() -> None:
    assert (REPORT.ok, REPORT.reason_code) == (True, "COMPLETED")
    assert (FAILURE.ok, FAILURE.reason_code) == (False, "PYTHON_EXCEPTION")


def test_a_report_names_everything_that_belongs_to_it() -> None:
    """X-171: what must be kept with it, and found to erase it: files that stand in its value among them."""
    inside = sha256(b"inside")
    value = json_encode([{"$file": "sha256:" + inside.hex()}], name="value")
    report = changed_report(REPORT, value=value, value_digest=json_digest(value))
    assert list(report.contents()) == [DIGEST, DIGEST, DIGEST, inside]
    large = changed_report(REPORT, value=None, value_content=sha256(b"large"), stderr=WorkStream(), files=())
    assert list(large.contents()) == [sha256(b"large")]


def changed(**fields: Any) -> bytes:
    said = decode(REPORT.body())
    assert isinstance(said, dict)
    return encode({key: value for key, value in {**said, **fields}.items() if value is not ...})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\xff", "not canonical"),
        (encode([1]), "a map of version 1"),
        (changed(version=2), "a map of version 1"),
        (changed(evil=1), "no field 'evil'"),
        (changed(job_id=...), "lacks job_id"),
        (changed(job_id=""), "job_id"),
        (changed(lease_id=b"short"), "lease_id"),
        (changed(manifest_hash=1), "manifest_hash"),
        (changed(attempt_id=-1), "attempt_id"),
        (changed(attempt_id=True), "attempt_id"),
        (changed(cpu_ms="1"), "cpu_ms"),
        (changed(nonce=b"1"), "nonce"),
        (changed(status="DONE"), "status"),
        (changed(status="FAILED"), "error does not fit"),
        (changed(error={"category": "USER_CODE_ERROR", "code": "X"}), "error does not fit"),
        (changed(value=b"[2]"), "value_digest is not that of the value"),
        (changed(value=...), "value_digest must stand beside"),
        (changed(value_digest=...), "value_digest must stand beside"),
        (changed(stdout=[b"", None]), "does not fit"),
        (changed(stdout=["text", None, False]), "does not fit"),
        (changed(files=[["a"]]), "does not fit"),
        (changed(files=[[1, DIGEST, 1, "t", None]]), "files have a name"),
        (changed(files=[["a", b"1", 1, "t", None]]), "files have a name"),
        (changed(files=[["a", DIGEST, 1, "t", None]] * (FILES_MAX + 1)), "more than"),
        (changed(worker=1), "worker must be text"),
        (b"\x00" * (REPORT_BYTES_MAX + 1), "at most"),
    ],
)
def test_what_is_no_report_is_refused_by_field(body: bytes, message: str) -> None:
    """Nothing is believed that does not fit."""
    with pytest.raises(InvalidInput, match=message):
        WorkReport.parse(body)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (Failure("NO_SUCH", "X"), "FAILED", "category"),
        (Failure("RESOURCE_LIMIT", "LIMIT_WALL"), "FAILED", "does not fit the code"),
        (Failure("RESOURCE_LIMIT", "LIMIT_MEMORY"), "TIMED_OUT", "does not fit the code"),
        (Failure("USER_CODE_ERROR", "X", message=3), "FAILED", "error.message must be text"),  # type: ignore[arg-type]
    ],
)
def test_an_error_fits_its_status(error: Failure, status: str, message: str) -> None:
    """X-146: a deadline is TIMED_OUT, everything else FAILED."""
    report = changed_report(FAILURE, error=error, status=status)
    assert message in (report.fault() or "")


def test_a_deadline_is_timed_out_with_resource_limit() -> None:
    """X-146."""
    late = changed_report(FAILURE, error=Failure("RESOURCE_LIMIT", "LIMIT_WALL"), status="TIMED_OUT")
    assert WorkReport.parse(late.body()) == late


@given(
    st.text(max_size=20).filter(lambda text: text.isprintable()),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=40),
    st.sampled_from([category.value for category in ErrorCategory]),
)
def test_any_report_that_holds_is_read_back(message: str, count: int, data: bytes, category: str) -> None:
    report = changed_report(FAILURE, error=Failure(category, "CODE", message), cpu_ms=count, stdout=WorkStream(data))
    assert WorkReport.parse(report.body()) == report


def test_the_largest_report_can_be_written_and_read() -> None:
    """Every part at its limit still makes a report."""
    files = tuple(
        WorkFile("n" * 200 + str(n), DIGEST, 2**40, "application/octet-stream", "out") for n in range(FILES_MAX)
    )
    error = Failure("USER_CODE_ERROR", "CODE", "m" * 4096, "T", "t" * 65_536)
    report = changed_report(FAILURE, files=files, error=error)
    assert WorkReport.parse(report.body()) == report
