"""Operators' actions and enrolled workers: what the kernel records of them, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.canon import encode, sha256
from detent.kernel import EnrollWorker, Operate, RetireWorker, checkpoint
from detent.kernel.operators import ENROLMENT_EVIDENCE_BYTES_MAX, OPERATED_EVIDENCE_BYTES_MAX
from tests.kernel.builders import OWNER_KEY_ID, TENANT, Scene, body_of, code_of

KEY = b"\x07" * 32
DIGEST = b"\x08" * 32
EVIDENCE = encode(
    {"request_id": "req-1", "route": "/v1/jobs/{id}/cancel", "reason": "too slow", "parameters": {"n": 1}}
)
ACTION = Operate(3, "p_ann", "dtk_7ab", "job.cancel", "job", "job-1", "OK", DIGEST, TENANT, EVIDENCE)
COMMON = {"partition_id": 0, "tick": 3, "signer_key_id": bytes(32)}


def enrolment(worker_id: str = "gpu-1", key_id: bytes = KEY, certificate: bytes = b"certificate") -> EnrollWorker:
    evidence = encode({"certificate": certificate, "proof": b"proof"})
    return EnrollWorker(3, worker_id, key_id, sha256(certificate), evidence)


def test_an_action_is_recorded_with_who_asked_for_what_and_how_it_ended() -> None:
    outcome = Scene().apply(ACTION)
    assert outcome.record is not None
    assert body_of(outcome.record) == {
        "kind": "operated",
        "tenant_id": TENANT,
        "principal_id": "p_ann",
        "credential_id": "dtk_7ab",
        "action": "job.cancel",
        "object_kind": "job",
        "object_id": "job-1",
        "outcome_code": "OK",
        "request_digest": DIGEST,
        "evidence_digest": sha256(EVIDENCE),
        **COMMON,
    }
    assert outcome.record.evidence == EVIDENCE


def test_an_action_about_the_whole_server_names_no_workspace_and_may_have_no_evidence() -> None:
    outcome = Scene().apply(replace(ACTION, tenant_id=None, evidence=None))
    assert outcome.record is not None
    body = body_of(outcome.record)
    assert (body["tenant_id"], body["evidence_digest"], outcome.record.evidence) == (None, None, None)


def test_actions_change_nothing_but_the_ledger_and_the_time() -> None:
    scene, still = Scene(), Scene()
    scene.apply(ACTION)
    still.at(3)
    assert checkpoint(scene.kernel) == checkpoint(still.kernel)


@pytest.mark.parametrize(
    "change",
    [
        {"principal_id": ""},
        {"credential_id": "x" * 201},
        {"action": "job cancel"},
        {"action": "JOB.cancel"},
        {"action": "a.b.c"},
        {"object_kind": "Job"},
        {"object_id": ""},
        {"object_id": "a\nb"},
        {"outcome_code": ""},
        {"outcome_code": "ok"},
        {"request_digest": b"short"},
        {"tenant_id": ""},
        {"evidence": b""},
        {"evidence": b"\xff"},
        {"evidence": "text"},
        {"evidence": encode([1])},
        {"evidence": encode({"secret": 1})},
        {"evidence": encode({"request_id": ""})},
        {"evidence": encode({"route": ""})},
        {"evidence": encode({"route": 7})},
        {"evidence": encode({"reason": "x" * 1_001})},
        {"evidence": encode({"parameters": []})},
        {"evidence": encode({"signature": b"sig"})},
        {"evidence": encode({"after": b"x" * OPERATED_EVIDENCE_BYTES_MAX})},
    ],
    ids=str,
)
def test_an_action_that_is_not_written_as_actions_are_is_refused(change: dict[str, Any]) -> None:
    outcome = Scene().apply(replace(ACTION, **change))
    assert (code_of(outcome), outcome.recorded) == ("INVALID_PARAMS", False)


def test_a_worker_is_enrolled_and_retired_once() -> None:
    scene = Scene()
    enrolled = scene.apply(enrolment())
    assert enrolled.record is not None
    assert body_of(enrolled.record) == {
        "kind": "worker_enrolled",
        "worker_id": "gpu-1",
        "key_id": KEY,
        "certificate_digest": sha256(b"certificate"),
        "evidence_digest": sha256(enrolment().evidence),
        **COMMON,
    }
    assert enrolled.record.evidence == enrolment().evidence
    again = scene.apply(enrolment())
    assert (again.status, again.record, again.recorded) == ("DEDUPLICATED", enrolled.record, False)
    retired = scene.apply(RetireWorker(3, "gpu-1", "KEY_LOST"))
    assert retired.record is not None
    assert body_of(retired.record) == {
        "kind": "worker_retired",
        "worker_id": "gpu-1",
        "key_id": KEY,
        "reason_code": "KEY_LOST",
        **COMMON,
    }
    again = scene.apply(RetireWorker(3, "gpu-1", "KEY_LOST"))
    assert (again.status, again.record, again.recorded) == ("DEDUPLICATED", retired.record, False)
    assert code_of(scene.apply(RetireWorker(3, "gpu-1", "RETIRED_BY_USER"))) == "CONFLICT"


def test_neither_the_id_nor_the_key_of_a_worker_comes_back() -> None:
    scene = Scene()
    assert scene.apply(enrolment()).ok
    other = b"\x01" * 32
    for command in (enrolment("gpu-2"), enrolment("gpu-1", other), enrolment(certificate=b"another")):
        assert code_of(scene.apply(command)) == "CONFLICT"
    assert scene.apply(enrolment("gpu-2", other)).ok
    scene.apply(RetireWorker(3, "gpu-1", "KEY_LOST"))
    for command in (enrolment(), enrolment("gpu-3"), enrolment("gpu-1", b"\x02" * 32)):
        assert code_of(scene.apply(command)) == "CONFLICT"


def test_a_worker_that_is_unknown_cannot_be_retired() -> None:
    assert code_of(Scene().apply(RetireWorker(3, "gpu-1", "KEY_LOST"))) == "UNKNOWN_WORKER"


@pytest.mark.parametrize(
    "command",
    [
        enrolment(""),
        enrolment(key_id=b"short"),
        replace(enrolment(), certificate_digest=DIGEST),
        replace(enrolment(), certificate_digest=b""),
        replace(enrolment(), evidence=b"\xa0"),
        replace(enrolment(), evidence=encode({"certificate": b"certificate", "proof": "text"})),
        replace(enrolment(), evidence=encode({"certificate": b"certificate", "proof": b"", "more": 1})),
        enrolment(certificate=b"x" * ENROLMENT_EVIDENCE_BYTES_MAX),
        RetireWorker(3, "", "KEY_LOST"),
        RetireWorker(3, "gpu-1", "because"),
    ],
    ids=str,
)
def test_an_enrolment_or_retirement_of_wrong_parts_is_refused(command: EnrollWorker | RetireWorker) -> None:
    scene = Scene()
    scene.apply(enrolment("other", OWNER_KEY_ID))
    assert code_of(scene.apply(command)) == "INVALID_PARAMS"
