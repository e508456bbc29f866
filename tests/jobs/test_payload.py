from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from detent.canon import json_encode
from detent.canon.grammar import PRIORITY_NAMES
from detent.jobs import (
    DocumentExport,
    EnvelopeInvalid,
    JobPayload,
    JobType,
    ObjectExecute,
    ObjectRender,
    ThumbnailGenerate,
    payload_schema,
    read_payload,
)
from tests.jobs.envelopes import DIGEST_A, EXECUTE, EXPORT, RENDER, REST, SHORT, THUMBNAIL, changed, payload, without

CLASSES = {
    "object_execute": ObjectExecute,
    "object_render": ObjectRender,
    "document_export": DocumentExport,
    "thumbnail_generate": ThumbnailGenerate,
}
KEY = {"execution_key": DIGEST_A}


def path_of(document: Any) -> str:
    """The path under which a document is refused."""
    with pytest.raises(EnvelopeInvalid) as caught:
        read_payload(document)
    assert caught.value.code == "VALIDATION_ERROR"
    path = caught.value.details["path"]
    assert isinstance(path, str)
    assert path in str(caught.value)
    return path


@pytest.mark.parametrize("job_type", SHORT)
def test_the_shortened_form_of_every_type_is_read_as_its_class(job_type: str) -> None:
    """JOB-009, JOB-010, JOB-042, JOB-045..JOB-048"""
    read = read_payload(SHORT[job_type])
    assert type(read) is CLASSES[job_type]
    assert read.document() == SHORT[job_type]


@pytest.mark.parametrize("job_type", SHORT)
def test_the_whole_form_of_every_type_is_read(job_type: str) -> None:
    """JOB-034, JOB-048, X-152"""
    whole = {**SHORT[job_type], **REST, **KEY}
    assert read_payload(whole).document() == whole
    assert read_payload(json.dumps(whole).encode()) == read_payload(whole)


@pytest.mark.parametrize("job_type", SHORT)
def test_the_published_schema_agrees_about_both_forms(job_type: str) -> None:
    """JOB-034, JOB-042, JOB-045..JOB-048"""
    judge = Draft202012Validator(payload_schema())
    for document in (SHORT[job_type], {**SHORT[job_type], **REST, **KEY}):
        assert list(judge.iter_errors(document)) == []
        assert not judge.is_valid(without(document, "document_revision_id"))
        assert not judge.is_valid({**document, "priority": "urgent"})


def test_the_job_types_are_exactly_the_four_of_the_contract() -> None:
    """JOB-009, JOB-010"""
    assert [kind.value for kind in JobType] == list(SHORT)
    assert path_of({**EXECUTE, "job_type": "object_fetch"}) == "job_type"
    assert path_of({**EXECUTE, "job_type": ["object_execute"]}) == "job_type"


@pytest.mark.parametrize(
    "name",
    ["schema_version", "job_id", "job_type", "workspace_id", "project_id", "document_id", "document_revision_id"],
)
@pytest.mark.parametrize("job_type", SHORT)
def test_a_payload_without_one_of_its_ids_is_refused_by_name(job_type: str, name: str) -> None:
    """JOB-003, JOB-019, JOB-075, X-016"""
    assert path_of(without(SHORT[job_type], name)) == name
    assert path_of({**SHORT[job_type], name: None}) == name


@pytest.mark.parametrize("bad", ["uuid", "0B5F7A52-6F0E-4C1D-9D6A-2F6F5F6D7C01", "0b5f7a526f0e4c1d9d6a2f6f5f6d7c01", 7])
def test_a_job_id_is_a_uuid_in_its_one_spelling(bad: Any) -> None:
    """JOB-019"""
    assert path_of({**EXECUTE, "job_id": bad}) == "job_id"


@pytest.mark.parametrize("job_type", ["object_execute", "object_render"])
def test_a_job_about_objects_names_them_exactly_one_way(job_type: str) -> None:
    """JOB-020, X-156"""
    document = SHORT[job_type]
    many = read_payload({**document, "target": {"object_ids": ["b", "a"]}})
    assert (many.object_ids, read_payload(document).object_ids) == (("b", "a"), ("obj-a",))
    assert path_of(without(document, "target")) == "target"
    for target in ({}, {"object_id": "a", "object_ids": ["b"]}):
        assert path_of({**document, "target": target}) == "target.object_id"
    assert path_of({**document, "target": {"object_ids": []}}) == "target.object_ids"
    assert path_of({**document, "target": {"object_ids": ["a", "a"]}}) == "target.object_ids"


def test_a_document_export_has_no_target_and_a_thumbnail_may_have_one() -> None:
    """JOB-046, JOB-047"""
    assert path_of({**EXPORT, "target": {"object_id": "a"}}) == "target"
    assert read_payload(EXPORT).object_ids == read_payload(THUMBNAIL).object_ids == ()
    assert read_payload({**THUMBNAIL, "target": {"object_id": "a"}}).object_ids == ("a",)


@pytest.mark.parametrize(
    ("document", "path", "value", "named"),
    [
        (EXECUTE, "priority", "urgent", "priority"),
        (EXECUTE, "created_at", "2026-01-10", "created_at"),
        (EXECUTE, "created_at", "2026-02-30T00:00:00Z", "created_at"),
        (EXECUTE, "created_at", "2026-01-10T24:00:00Z", "created_at"),
        (EXECUTE, "created_at", "2026-01-10T10:00:00+02:00", "created_at"),
        (EXECUTE, "execution_key", "sha256:...", "execution_key"),
        (EXECUTE, "requested_by", {}, "requested_by.user_id"),
        (EXECUTE, "environment", {"network_access": "on"}, "environment.network_access"),
        (EXECUTE, "environment", {"language": "Python 3"}, "environment.language"),
        (EXECUTE, "inputs.object", {"type": "code"}, "inputs.object.content"),
        (EXECUTE, "inputs.object.content", {"format": "blockdoc"}, "inputs.object.content.value"),
        (EXECUTE, "inputs.object.runtime.parameters", [1], "inputs.object.runtime.parameters"),
        (EXECUTE, "output_spec.formats", ["json", "pdf"], "output_spec.formats[1]"),
        (EXECUTE, "output_spec.formats", ["json", "json"], "output_spec.formats"),
        (EXECUTE, "output_spec.return_stdout", 1, "output_spec.return_stdout"),
        (RENDER, "output_spec", {}, "output_spec.formats"),
        (RENDER, "output_spec.formats", [], "output_spec.formats"),
        (RENDER, "output_spec.formats", ["json"], "output_spec.formats[0]"),
        (EXPORT, "inputs.export_format", "docx", "inputs.export_format"),
        (EXPORT, "inputs.include_speaker_notes", "no", "inputs.include_speaker_notes"),
        (EXPORT, "output_spec.formats", ["html"], "output_spec.formats"),
        (THUMBNAIL, "inputs.width", 0, "inputs.width"),
        (THUMBNAIL, "inputs", {"width": 10}, "inputs.height"),
        (THUMBNAIL, "output_spec.formats", ["gif"], "output_spec.formats[0]"),
        (EXECUTE, "nonce", "abc", "nonce"),
        (EXECUTE, "workspace_id", "a\u202eb", "workspace_id"),
        (EXECUTE, "inputs", None, "inputs"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_its_path(
    document: dict[str, Any], path: str, value: Any, named: str
) -> None:
    """JOB-034, JOB-035, JOB-039, JOB-042, JOB-045..JOB-047"""
    assert path_of(changed(document, path, value)) == named


def test_every_object_dependency_is_pinned_by_a_snapshot_with_a_digest() -> None:
    """JOB-044"""
    assert path_of(changed(EXECUTE, "inputs.dependency_snapshots", [])) == "inputs.object.dependencies[0]"
    assert path_of(without(EXECUTE, "inputs.dependency_snapshots.0.content_digest")) == (
        "inputs.dependency_snapshots[0].content_digest"
    )
    twice = EXECUTE["inputs"]["dependency_snapshots"] * 2
    assert path_of(changed(EXECUTE, "inputs.dependency_snapshots", twice)) == "inputs.dependency_snapshots"


@pytest.mark.parametrize(
    "reference",
    [
        {"kind": "dataset", "path": "/data/measurements.csv"},
        {"kind": "dataset", "digest": "s3://bucket/measurements.csv"},
        {"kind": "dataset", "digest": "/data/measurements.csv"},
        {"kind": "dataset", "digest": "md5:" + "0" * 32},
        {"kind": "dataset", "uri": "https://example.org/x"},
    ],
)
def test_a_dataset_is_named_by_its_digest_and_by_nothing_else(reference: dict[str, str]) -> None:
    """JOB-071"""
    document = changed(EXECUTE, "inputs.object.dependencies.1", reference)
    assert path_of(document) == "inputs.object.dependencies[1].digest"


def test_a_dependency_of_another_kind_is_refused() -> None:
    """JOB-042"""
    document = changed(EXECUTE, "inputs.object.dependencies.1", {"kind": "url", "id": "x"})
    assert path_of(document) == "inputs.object.dependencies[1]"


def test_no_field_about_a_view_is_needed_outside_the_export() -> None:
    """JOB-001"""
    for document in (EXECUTE, RENDER, THUMBNAIL):
        assert "view_mode" not in json.dumps(document)
        assert "view_mode" not in json.dumps(payload(document).document())
    short = without(without(EXPORT, "inputs.view_mode"), "inputs.include_speaker_notes")
    made = payload(short)
    assert (made.inputs.view_mode, made.inputs.include_speaker_notes) == ("slide", False)


def test_priority_is_one_of_three_words_and_normal_by_default() -> None:
    """JOB-035"""
    assert read_payload(EXECUTE).priority == "normal"
    assert PRIORITY_NAMES == {"low": 1, "normal": 5, "high": 10}
    assert [read_payload({**EXECUTE, "priority": word}).priority for word in PRIORITY_NAMES] == [*PRIORITY_NAMES]


def test_the_network_is_off_unless_the_payload_says_otherwise() -> None:
    """JOB-039, JOB-040"""
    assert read_payload(EXECUTE).environment.network_access == "disabled"
    asked = read_payload({**EXECUTE, "environment": {"network_access": "enabled"}})
    assert (asked.environment.network_access, asked.environment.language) == ("enabled", "python")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[]", "payload must be a JSON object"),
        (b"{", "payload is not JSON"),
        (b'{"job_id":1,"job_id":2}', "payload has the key 'job_id' twice"),
        (b'{"x":NaN}', "payload has NaN"),
        (b"\xff", "payload is not UTF-8"),
        ("text", "payload must be a JSON object"),
        ({**EXECUTE, "x": {1, 2}}, "payload.x is a set"),
        (changed(EXECUTE, "inputs.object.runtime.parameters", {"lr": float("nan")}), "parameters.lr is nan"),
        (changed(EXECUTE, "inputs.object.content.value", (1, 2)), "content.value is a tuple"),
    ],
)
def test_what_is_not_strict_json_is_refused_as_a_validation_error(data: Any, message: str) -> None:
    """X-170"""
    with pytest.raises(EnvelopeInvalid, match=message.replace(".", r"\.")) as caught:
        read_payload(data)
    assert caught.value.code == "VALIDATION_ERROR"


def test_a_value_that_is_not_strict_json_is_refused_also_when_models_are_built_directly() -> None:
    """X-170"""
    for path in ("unknown", "inputs.object.runtime.unknown"):
        with pytest.raises(ValidationError, match="nan"):
            JobPayload.model_validate(changed(EXECUTE, path, float("nan")))
    with pytest.raises(ValidationError, match="nan"):
        JobPayload.model_validate(changed(EXECUTE, "inputs.object.content.value", [float("nan")]))


def test_all_faults_of_a_document_are_listed() -> None:
    bad = {**EXECUTE, "priority": 1, "limits": {"cpu_ms": 0}}
    with pytest.raises(EnvelopeInvalid, match=r"and 1 more") as caught:
        read_payload(bad)
    errors = caught.value.details["errors"]
    assert isinstance(errors, list)
    assert [error["path"] for error in errors] == ["priority", "limits.cpu_ms"]


def test_a_payload_cannot_be_changed_once_it_is_read() -> None:
    read = read_payload(EXECUTE)
    with pytest.raises(ValidationError):
        read.priority = "high"


def test_unknown_fields_survive_at_every_depth() -> None:
    """X-161"""
    document = changed(EXECUTE, "inputs.object.runtime.seed", 7)
    document = changed(document, "inputs.object.dependencies.1.name", "a.csv")
    document = {**document, "hints": {"gpu": [1.5, None]}}
    assert read_payload(document).document() == document
    assert read_payload(json_encode(document)).document() == document
