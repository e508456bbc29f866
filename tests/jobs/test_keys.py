from __future__ import annotations

import hashlib
from typing import Any, get_type_hints

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import NotStrictJson
from detent.errors import InvalidInput
from detent.jobs import (
    ClientIdempotencyKey,
    DedupeRequest,
    ExecutionKey,
    IdempotencyScope,
    PriorJob,
    execution_key,
    ingredients,
    input_hash,
    key_of,
    read_payload,
    work_key,
)
from detent.kernel import transition_key
from tests.jobs.envelopes import DIGEST_A, DIGEST_B, ENV_VERSION, EXECUTE, EXPORT, RENDER, THUMBNAIL, changed, payload

ZEROS = "sha256:" + "0" * 64
VECTOR = "sha256:10635aa3f2d81c6828c9df11ebc9d02e785ebdb24fbfd2ace758ffcd2750c5ad"
IDS = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=3)


def key(**changes: Any) -> str:
    parts: dict[str, Any] = {
        "job_type": "object_execute",
        "document_revision_id": "rev-1",
        "target_object_ids": ["obj-a", "obj-b"],
        "input_hash": ZEROS,
        "env_version": ENV_VERSION,
    }
    return execution_key(**{**parts, **changes})


def test_the_execution_key_has_the_value_of_the_vector() -> None:
    """JOB-022, X-148"""
    assert key() == VECTOR


def test_order_and_repetition_of_targets_do_not_matter() -> None:
    """X-148"""
    assert key(target_object_ids=["obj-b", "obj-a", "obj-b"]) == VECTOR
    assert key(target_object_ids=iter(("obj-b", "obj-a"))) == VECTOR


@pytest.mark.parametrize(
    "change",
    [
        {"job_type": "object_render"},
        {"document_revision_id": "rev-2"},
        {"target_object_ids": ["obj-a"]},
        {"target_object_ids": []},
        {"input_hash": DIGEST_A},
        {"env_version": "py-executor@2026.01.11"},
    ],
)
def test_every_part_changes_the_key(change: dict[str, Any]) -> None:
    """JOB-022, JOB-024, JOB-078"""
    assert key(**change) != VECTOR


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "bc", ["d"]), ("ab", "c", ["d"])),
        (("a", "b", ["cd"]), ("a", "b", ["c", "d"])),
        (("a", "b", ["c"]), ("a", "bc", [])),
    ],
)
def test_parts_that_read_the_same_when_joined_have_different_keys(
    one: tuple[str, str, list[str]], other: tuple[str, str, list[str]]
) -> None:
    """X-148"""
    assert "".join([*one[:2], *one[2]]) == "".join([*other[:2], *other[2]])
    assert execution_key(*one, ZEROS, "e") != execution_key(*other, ZEROS, "e")


@given(IDS, IDS, st.lists(IDS, max_size=3), IDS)
def test_the_key_is_the_digest_an_independent_encoder_gives(
    job_type: str, revision: str, targets: list[str], env_version: str
) -> None:
    """X-148"""
    parts = ["execution_key/v1", job_type, revision, sorted(set(targets)), ZEROS, env_version]
    expected = "sha256:" + hashlib.sha256(cbor2.dumps(parts, canonical=True)).hexdigest()
    assert execution_key(job_type, revision, targets, ZEROS, env_version) == expected


def test_the_key_of_a_task_names_its_binding_instead_of_a_document() -> None:
    """X-186"""
    binding = bytes(range(32))
    parts = ["execution_key/v1", "python", binding, ZEROS, "cpython-3.11"]
    expected = "sha256:" + hashlib.sha256(cbor2.dumps(parts, canonical=True)).hexdigest()
    assert work_key("python", binding, ZEROS, "cpython-3.11") == expected
    assert work_key("python", bytes(32), ZEROS, "cpython-3.11") != expected


@pytest.mark.parametrize(
    "change",
    [
        {"job_type": ""},
        {"document_revision_id": None},
        {"target_object_ids": "obj-a"},
        {"target_object_ids": ["obj-a", ""]},
        {"input_hash": "0" * 64},
        {"input_hash": "sha256:" + "A" * 64},
        {"env_version": "a\nb"},
    ],
)
def test_a_part_that_is_no_id_or_digest_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        key(**change)
    assert [caught.value.details["path"]] == list(change)


def test_a_binding_is_named_by_its_digest() -> None:
    """X-186"""
    with pytest.raises(InvalidInput, match="binding_digest"):
        work_key("python", b"short", ZEROS, "e")


def test_the_three_keys_are_three_types() -> None:
    """X-015: one names a request about a job, one equal work, one an HTTP request; none can stand for another."""
    assert get_type_hints(transition_key)["return"] is bytes
    assert get_type_hints(DedupeRequest)["execution_key"] is ExecutionKey
    assert get_type_hints(PriorJob)["execution_key"] is ExecutionKey
    assert get_type_hints(IdempotencyScope)["key"] is ClientIdempotencyKey
    assert get_type_hints(execution_key)["return"] is get_type_hints(work_key)["return"] is ExecutionKey


def hash_of(document: dict[str, Any]) -> str:
    return input_hash(ingredients(read_payload(document)))


OBJECT = "inputs.object."


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (OBJECT + "type", "notebook"),
        (OBJECT + "content.format", "text"),
        (OBJECT + "content.value", {"blocks": [1]}),
        (OBJECT + "runtime.parameters", {"x": 11}),
        (OBJECT + "runtime.parameters", {"x": 10.0}),
        (OBJECT + "runtime.entrypoint", "other"),
        (OBJECT + "dependencies.1.digest", DIGEST_B),
        ("inputs.dependency_snapshots.0.content_digest", DIGEST_A),
        ("inputs.dependency_snapshots.0.resolved_runtime", {"language": "r"}),
        ("output_spec.formats", ["json"]),
        ("output_spec.return_stdout", False),
        ("environment", {"network_access": "enabled"}),
    ],
)
def test_every_ingredient_changes_the_input_hash(path: str, value: Any) -> None:
    """JOB-023"""
    assert hash_of(changed(EXECUTE, path, value)) != hash_of(EXECUTE)


def test_a_pinned_object_under_another_id_changes_the_input_hash() -> None:
    """JOB-023"""
    other = changed(EXECUTE, OBJECT + "dependencies.0.id", "obj-c")
    assert hash_of(changed(other, "inputs.dependency_snapshots.0.id", "obj-c")) != hash_of(EXECUTE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (OBJECT + "dependencies.1.name", "measurements.csv"),
        ("output_spec.formats", ["svg", "json", "png"]),
        ("limits", {"timeout_ms": 1}),
        ("priority", "high"),
        ("document_revision_id", "rev-2"),
        (OBJECT + "dependencies", list(reversed(EXECUTE["inputs"]["object"]["dependencies"]))),
    ],
)
def test_names_of_files_order_and_limits_do_not_change_the_input_hash(path: str, value: Any) -> None:
    """JOB-023"""
    assert hash_of(changed(EXECUTE, path, value)) == hash_of(EXECUTE)


def test_the_order_of_snapshots_does_not_change_the_input_hash() -> None:
    """JOB-023"""
    second = {"kind": "object", "id": "obj-a", "content_digest": DIGEST_A}
    both = [*EXECUTE["inputs"]["dependency_snapshots"], second]
    one, other = (changed(EXECUTE, "inputs.dependency_snapshots", order) for order in (both, both[::-1]))
    assert hash_of(one) == hash_of(other) != hash_of(EXECUTE)


def test_the_input_hash_is_the_same_for_a_draft_and_its_complete_form() -> None:
    """X-152"""
    for document in (EXECUTE, RENDER, EXPORT, THUMBNAIL):
        assert input_hash(ingredients(payload(document))) == hash_of(document)


def test_the_ingredients_say_what_a_result_is_attributed_to() -> None:
    """JOB-021"""
    made = payload()
    found = ingredients(made)
    assert found["inputs"]["object"]["runtime"]["parameters"] == {"x": 10}
    assert found["objects"] == [["obj-b", DIGEST_B, None]]
    assert found["datasets"] == [DIGEST_A]
    assert made.environment.env_version == ENV_VERSION
    assert made.execution_key == key_of(made)


def test_the_input_hash_of_users_values_is_stable_and_refuses_what_json_cannot_say() -> None:
    """X-170"""
    stable = input_hash({"arguments": {"lr": 0.001, "n": 2**70}})
    assert stable == "sha256:e91b8c719e595ed2cbbfd5b9f31ddb6b5bcdb174ee31b5ef40ec1d3843adc47c"
    assert stable == input_hash({"arguments": {"n": 2**70, "lr": 0.001}})
    assert input_hash({"x": 1}) != input_hash({"x": 1.0})
    with pytest.raises(NotStrictJson, match=r"arguments\.lr is nan"):
        input_hash({"lr": float("nan")}, name="arguments")
