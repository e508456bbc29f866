"""From a draft to what is signed: what the platform fills in, what it insists on, and what it derives."""

from __future__ import annotations

from typing import Any

import pytest

from detent.canon import json_digest, json_encode
from detent.jobs import (
    EnvelopeInvalid,
    Limits,
    encode_result,
    key_of,
    read_complete_payload,
    read_payload,
)
from tests.jobs.envelopes import (
    CREATED_AT,
    DIGEST_A,
    ENV_VERSION,
    EXECUTE,
    NONCE,
    REST,
    SHORT,
    payload,
    result,
    without,
)
from tests.kernel.builders import Scene

LATER = "2026-01-11T10:00:00Z"


@pytest.mark.parametrize("job_type", SHORT)
def test_a_short_payload_is_filled_in_with_the_contracts_defaults(job_type: str) -> None:
    """JOB-036, JOB-048, X-152"""
    made = payload(SHORT[job_type])
    document = made.document()
    assert {name: document[name] for name in REST} == REST
    assert document["execution_key"] == key_of(made)
    assert read_complete_payload(json_encode(made.document())) == made
    assert "null" not in json_encode(made.document()).decode().replace('"resolved_runtime":null', "")


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
    assert json_encode(payload(made.document()).document()) == json_encode(made.document())


def test_the_digest_of_an_envelope_cannot_be_matched_against_its_bare_value() -> None:
    """X-171"""
    made, other = payload(), payload(nonce="ab" * 16)
    assert made.execution_key == other.execution_key
    bare = json_encode({name: value for name, value in made.document().items() if name != "nonce"})
    digests = {json_digest(data) for data in (json_encode(made.document()), json_encode(other.document()), bare)}
    assert len(digests) == 3
    assert len({encode_result(result()), encode_result(result(nonce="ab" * 16))}) == 2
    with pytest.raises(EnvelopeInvalid, match="nonce"):
        encode_result(result(nonce=None))


def test_equal_payloads_have_equal_bytes() -> None:
    """X-170"""
    shuffled = dict(reversed(list(EXECUTE.items())))
    assert json_encode(payload(shuffled).document()) == json_encode(payload().document())


def test_a_job_without_a_document_needs_none_of_the_platforms_ids() -> None:
    """X-016"""
    scene = Scene()
    for job_kind in ("task", "action", "seq", "inference"):
        assert scene.submit(f"job-{job_kind}", job_kind=job_kind).ok


def test_an_environment_of_another_version_is_other_work() -> None:
    """JOB-024, JOB-078"""
    assert payload(env_version="py-executor@2026.01.11").execution_key != payload(env_version=ENV_VERSION).execution_key
