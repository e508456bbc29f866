from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import json_encode
from detent.errors import InvalidInput
from detent.jobs import Bounds, JobResult, Limits, bound_error, bound_logs, bound_result, bound_text, limit_code
from detent.jobs.result import JobError, LogEntry
from tests.jobs.envelopes import DIGEST_A, FAILED, SUCCEEDED, changed, result

LIMITS = Limits(max_output_kb=1, max_artifacts=2)
KB = 1024


def entry(message: str = "m") -> LogEntry:
    return LogEntry(level="info", message=message, timestamp="2026-01-10T10:00:12Z")


def error(**details: Any) -> JobError:
    return JobError.model_validate({**FAILED["error"], "details": details})


@pytest.mark.parametrize("size", [0, 1, KB - 1, KB])
def test_a_text_within_its_bound_is_left_whole(size: int) -> None:
    """JOB-056, X-147"""
    assert bound_text("x" * size, KB) == ("x" * size, False)
    assert bound_text(b"x" * size, KB) == ("x" * size, False)


@pytest.mark.parametrize(
    ("text", "kept"),
    [("x" * (KB + 1), KB), ("x" * (KB - 1) + "é", KB - 1), ("x" * (KB - 3) + "\N{GRINNING FACE}", KB - 3)],
)
def test_a_text_is_cut_at_its_bound_and_never_inside_a_character(text: str, kept: int) -> None:
    """JOB-056, X-147"""
    assert bound_text(text, KB) == ("x" * kept, True)
    assert bound_text(text.encode(), KB) == ("x" * kept, True)


def test_bytes_that_are_not_text_are_replaced_before_they_are_counted() -> None:
    """X-147"""
    assert bound_text(b"a\xff\xfe", 7) == ("a\ufffd\ufffd", False)
    assert bound_text(b"a\xff\xfe", 6) == ("a\ufffd", True)
    assert bound_text("a\ud800", 9) == ("a?", False)


@given(st.one_of(st.binary(max_size=40), st.text(max_size=20)), st.integers(0, 30), st.booleans())
def test_a_bounded_text_fits_and_is_an_end_of_the_whole(data: bytes | str, bytes_max: int, keep_end: bool) -> None:
    """JOB-006, JOB-056, X-147"""
    whole, cut = bound_text(data, 10_000)
    assert not cut
    text, truncated = bound_text(data, bytes_max, keep_end=keep_end)
    assert len(text.encode()) <= bytes_max
    assert whole.endswith(text) if keep_end else whole.startswith(text)
    assert truncated == (text != whole)
    # No more than one character is lost to the boundary.
    assert not truncated or len(text.encode()) > bytes_max - 4


@pytest.mark.parametrize("streams", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_both_streams_are_cut_on_their_own_and_marked_and_the_job_has_not_failed(streams: tuple[str, ...]) -> None:
    """JOB-006, JOB-056, X-147"""
    outputs = {"stdout": "x" * KB, "stderr": "y" * KB} | dict.fromkeys(streams, "é" * KB)
    bounded = bound_result(result(outputs=outputs), LIMITS)
    for name in ("stdout", "stderr"):
        expected = "é" * (KB // 2) if name in streams else outputs[name]
        assert getattr(bounded.outputs, name) == expected
    assert bounded.outputs.truncated == streams
    assert (bounded.status, limit_code(bounded, LIMITS)) == ("SUCCEEDED", None)


def test_an_oversized_result_breaks_a_limit_instead_of_being_cut() -> None:
    """X-147"""
    fitting = "x" * (KB - 2)
    for value, code in ((fitting, None), (fitting + "x", "LIMIT_OUTPUT"), ([0] * KB, "LIMIT_OUTPUT")):
        assert limit_code(result(outputs={"result_json": value}), LIMITS) == code


def test_one_artifact_too_many_breaks_a_limit() -> None:
    """JOB-006, X-147"""
    artifact = {**SUCCEEDED["artifacts"][0], "digest": DIGEST_A}

    def made(count: int) -> JobResult:
        return result(artifacts=[{**artifact, "artifact_id": f"artifact-{number}"} for number in range(count)])

    assert limit_code(made(50), Limits()) is None
    assert limit_code(made(51), Limits()) == "LIMIT_ARTIFACTS"


def test_logs_are_bounded_in_count_and_size() -> None:
    """JOB-006, JOB-057, X-155"""
    entries, truncated = bound_logs([entry(str(number)) for number in range(201)])
    assert (len(entries), entries[-1].message, truncated) == (200, "199", True)
    entries, truncated = bound_logs([entry("m" * 5000)])
    assert (len(entries[0].message), truncated) == (4096, True)
    assert bound_logs([entry("m" * 4096)] * 200) == ((entry("m" * 4096),) * 200, False)
    assert len(bound_logs([entry()] * 9, Bounds(max_log_entries=3)).entries) == 3


def test_a_long_traceback_is_cut_and_keeps_its_end() -> None:
    """JOB-006, JOB-059, X-155"""
    bounded = bound_error(error(traceback="frame\n" * 20_000 + "ZeroDivisionError", line=12, column=3))
    size = len(json_encode(bounded.details.document()))
    assert 65_536 - 12 <= size <= 65_536
    assert bounded.details.traceback is not None
    assert bounded.details.traceback.endswith("frame\nZeroDivisionError")
    assert (bounded.details.line, bounded.details.column) == (12, 3)
    assert bounded.details.document()["truncated"] is True


def test_details_that_are_too_long_in_other_ways_are_reduced_to_the_place() -> None:
    """JOB-059, X-155"""
    bounded = bound_error(error(traceback="short", line=12, locals={"x": "y" * 70_000}))
    assert bounded.details.document() == {"traceback": "short", "line": 12, "truncated": True}


@given(st.text(max_size=600), st.integers(256, 300))
def test_bounded_details_fit_however_much_of_them_is_escaped(traceback: str, bytes_max: int) -> None:
    """JOB-059, X-155"""
    bounded = bound_error(error(traceback=traceback, line=1), Bounds(max_error_details_bytes=bytes_max))
    assert len(json_encode(bounded.details.document())) <= bytes_max
    assert traceback.endswith(bounded.details.traceback or "")


def test_text_of_any_length_is_bounded_in_one_go() -> None:
    """JOB-006, JOB-059: more than any envelope could hold, and all of it escaped."""
    bounded = bound_error(error(traceback="\x00" * 17 * KB * KB))
    assert 65_536 - 6 <= len(json_encode(bounded.details.document())) <= 65_536


def test_unknown_fields_of_a_log_entry_survive_unless_they_are_long() -> None:
    """JOB-057, X-161"""
    small = LogEntry.model_validate({**entry("m" * 5000).document(), "trace_id": "t"})
    large = LogEntry.model_validate({**entry().document(), "blob": "b" * 5000})
    assert bound_logs([small]).entries[0].document() == {**entry("m" * 4096).document(), "trace_id": "t"}
    assert bound_logs([large]) == ((entry(),), True)


@pytest.mark.parametrize("name", ["max_log_entries", "max_log_message_bytes", "max_error_details_bytes"])
def test_a_bound_that_leaves_no_room_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        Bounds(**{name: -1})


def test_an_error_message_is_bounded() -> None:
    """JOB-006, JOB-059"""
    long = JobError.model_validate({**FAILED["error"], "message": "é" * 5000})
    assert len(bound_error(long).message.encode()) == 4096


def test_bounding_a_bounded_result_changes_nothing() -> None:
    """JOB-006"""
    flooded = changed(SUCCEEDED, "outputs.stdout", "\x00é" * 5000)
    flooded["logs"] = [entry("m" * 9000).document()] * 300
    once = bound_result(JobResult.model_validate(flooded), LIMITS)
    assert bound_result(once, LIMITS) is once
    assert (len(once.logs), once.logs_truncated, once.outputs.truncated) == (200, True, ("stdout",))
    fine = result()
    assert bound_result(fine, LIMITS) is fine


def test_a_bounded_result_is_written_with_its_marks() -> None:
    """X-147, X-155"""
    flooded = {**FAILED, "error": {**FAILED["error"], "message": "m" * 9000}}
    flooded["outputs"] = {"stdout": "x" * 2000, "stderr": ""}
    bounded = bound_result(JobResult.model_validate(flooded), LIMITS)
    document = bounded.document()
    assert (document["outputs"]["truncated"], len(document["outputs"]["stdout"])) == (["stdout"], KB)
    assert len(document["error"]["message"]) == 4096
    assert JobResult.model_validate(document) == bounded
