"""From a draft to what is signed: what the platform fills in, what it insists on, and what it derives."""

from __future__ import annotations

from typing import Any

import pytest

from detent.canon import json_decode, json_digest, json_encode
from detent.jobs import (
    EnvelopeInvalid,
    Limits,
    encode_payload,
    encode_result,
    key_of,
    manifest_for,
    read_complete_payload,
    read_payload,
    resubmit,
)
from detent.kernel import Manifest, Submit
from detent.kernel.policy import UNLIMITED_QUOTA
from tests.jobs.envelopes import (
    CREATED_AT,
    DIGEST_A,
    ENV_VERSION,
    EXECUTE,
    JOB_ID,
    NONCE,
    OTHER_JOB_ID,
    REST,
    SHORT,
    WORKSPACE,
    payload,
    result,
    without,
)
from tests.kernel.builders import Scene, code_of, signed

LATER = "2026-01-11T10:00:00Z"


@pytest.mark.parametrize("job_type", SHORT)
def test_a_short_payload_is_filled_in_with_the_contracts_defaults(job_type: str) -> None:
    """JOB-036, JOB-048, X-152"""
    made = payload(SHORT[job_type])
    document = made.document()
    assert {name: document[name] for name in REST} == REST
    assert document["execution_key"] == key_of(made)
    assert read_complete_payload(encode_payload(made)) == made
    assert "null" not in encode_payload(made).decode().replace('"resolved_runtime":null', "")


@pytest.mark.parametrize(
    "path",
    [
        *("created_at", "execution_key", "priority", "requested_by", "nonce", "output_spec.return_stdout"),
        *("limits", "limits.cpu_ms", "environment", "environment.env_version", "environment.network_access"),
        *("inputs.object.runtime.entrypoint", "inputs.object.dependencies"),
    ],
)
def test_an_executor_refuses_a_payload_that_leaves_something_open(path: str) -> None:
    """X-152"""
    document = without(payload().document(), path)
    read_payload(document)
    with pytest.raises(EnvelopeInvalid) as caught:
        read_complete_payload(document)
    assert str(caught.value.details["path"]).startswith(path)
    with pytest.raises(EnvelopeInvalid):
        encode_payload(read_payload(document))


def test_completing_keeps_what_the_draft_chose() -> None:
    """X-152"""
    chosen: dict[str, Any] = {"priority": "high", "limits": {"memory_mb": 1024}, "environment": {"env_version": "r@4"}}
    made = payload({**EXECUTE, **chosen, "hint": 1})
    assert (made.priority, made.limits, made.environment.env_version) == ("high", Limits(memory_mb=1024), "r@4")
    assert made.document()["hint"] == 1
    assert payload({**EXECUTE, **chosen}).execution_key != payload().execution_key


def test_a_key_sent_by_a_client_must_be_the_one_the_platform_computes() -> None:
    """JOB-025"""
    true_key = payload().execution_key
    assert payload({**EXECUTE, "execution_key": true_key}).execution_key == true_key
    with pytest.raises(EnvelopeInvalid) as caught:
        payload({**EXECUTE, "execution_key": DIGEST_A})
    assert caught.value.details["path"] == "execution_key"


def test_time_nonce_and_requester_are_the_platforms() -> None:
    """X-152"""
    made = payload({**EXECUTE, "created_at": LATER, "nonce": "ff" * 16})
    assert (made.created_at, made.nonce) == (CREATED_AT, NONCE)
    with pytest.raises(EnvelopeInvalid) as caught:
        payload({**EXECUTE, "requested_by": {"user_id": "somebody-else"}})
    assert caught.value.details["path"] == "requested_by.user_id"


def test_completing_twice_changes_nothing() -> None:
    made = payload()
    assert payload(made.document()) == made
    assert encode_payload(payload(made.document())) == encode_payload(made)


def test_the_digest_of_an_envelope_cannot_be_matched_against_its_bare_value() -> None:
    """X-171"""
    made, other = payload(), payload(nonce="ab" * 16)
    assert made.execution_key == other.execution_key
    bare = json_encode({name: value for name, value in made.document().items() if name != "nonce"})
    digests = {json_digest(data) for data in (encode_payload(made), encode_payload(other), bare)}
    assert len(digests) == 3
    assert len({encode_result(result()), encode_result(result(nonce="ab" * 16))}) == 2
    with pytest.raises(EnvelopeInvalid, match="nonce"):
        encode_result(result(nonce=None))


def test_equal_payloads_have_equal_bytes() -> None:
    """X-170"""
    shuffled = dict(reversed(list(EXECUTE.items())))
    assert encode_payload(payload(shuffled)) == encode_payload(payload())
    assert json_decode(encode_payload(payload())) == payload().document()


def test_a_repeated_job_is_a_new_job_that_names_the_old_one() -> None:
    """JOB-063, JOB-065, X-154"""
    old = payload()
    again = resubmit(old, job_id=OTHER_JOB_ID, created_at=LATER, nonce="ab" * 16)
    assert (again.job_id, again.retry_of, again.created_at) == (OTHER_JOB_ID, JOB_ID, LATER)
    assert again.execution_key == old.execution_key == key_of(again)
    wider = resubmit(old, job_id=OTHER_JOB_ID, created_at=LATER, nonce="ab" * 16, limits=Limits(memory_mb=4096))
    assert (wider.limits.memory_mb, old.limits.memory_mb) == (4096, 512)
    assert read_complete_payload(encode_payload(wider)) == wider
    with pytest.raises(EnvelopeInvalid) as caught:
        resubmit(old, job_id=JOB_ID, created_at=LATER, nonce="ab" * 16)
    assert caught.value.details["path"] == "retry_of"


def manifest(**changes: Any) -> Manifest:
    return manifest_for(
        payload({**EXECUTE, **changes}),
        payload_digest=bytes(32),
        quota_policy_hash=UNLIMITED_QUOTA.hash(),
        created_tick=0,
    )


@pytest.mark.parametrize(("word", "number"), [("low", 1), ("normal", 5), ("high", 10)])
def test_a_platform_job_enters_the_kernel_under_its_workspace_and_class(word: str, number: int) -> None:
    """JOB-035, JOB-085, X-016, X-017, X-026"""
    made = manifest(priority=word)
    assert (made.tenant_id, made.job_id, made.job_kind) == (WORKSPACE, JOB_ID, "platform")
    assert (made.priority, made.retry_categories) == (number, ("INTERNAL_ERROR",))
    scene = Scene()
    assert scene.apply(Submit(0, signed(made))).ok


def test_a_job_id_is_taken_once_whatever_the_workspace() -> None:
    """X-017"""
    scene = Scene()
    assert scene.apply(Submit(0, signed(manifest()))).ok
    assert code_of(scene.apply(Submit(0, signed(manifest(workspace_id="workspace-2"))))) == "CONFLICT"


def test_a_job_without_a_document_needs_none_of_the_platforms_ids() -> None:
    """X-016"""
    scene = Scene()
    for job_kind in ("task", "action", "seq", "inference"):
        assert scene.submit(f"job-{job_kind}", job_kind=job_kind).ok


def test_an_environment_of_another_version_is_other_work() -> None:
    """JOB-024, JOB-078"""
    assert payload(env_version="py-executor@2026.01.11").execution_key != payload(env_version=ENV_VERSION).execution_key
