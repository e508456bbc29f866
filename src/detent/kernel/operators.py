"""How operators' actions and the keys of enrolled workers get on the ledger.

An ``operated`` record says who asked the server for what, and how that ended. It changes nothing by itself: its effect is in the
records before it, in the same commit. Which actions there are is not the kernel's to know; it bounds what they are written with.

A worker is enrolled once, with one key, and retired once; neither id nor key comes back. The signatures of certificate and proof
are checked at the border, before the command is made, and by the verifier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.canon import NotCanonical, decode, sha256
from detent.canon.late import pattern
from detent.canon.show import show
from detent.kernel import commands as cmd
from detent.kernel import records
from detent.kernel.evidence import reason_fault
from detent.kernel.history import WORKER_ENROLLED, WORKER_RETIRED, Record
from detent.kernel.manifest import digest_fault, id_fault
from detent.kernel.outcome import CONFLICT, DEDUPLICATED, Outcome
from detent.kernel.run_handlers import OPERATOR, emit

if TYPE_CHECKING:
    from detent.kernel.partition_state import PartitionState

OPERATED_EVIDENCE = frozenset({"request_id", "route", "parameters", "before", "after", "reason", "signature"})
"""What the evidence of an action may say; each is left out where there is nothing to say."""
OPERATED_EVIDENCE_BYTES_MAX = 16 * 1024
ENROLMENT_EVIDENCE = frozenset({"certificate", "proof"})
ENROLMENT_EVIDENCE_BYTES_MAX = 48 * 1024
REASON_BYTES_MAX = 1_000
"""The longest reason that an operator may give in words."""
ROUTE_BYTES_MAX = 200

_ACTION = pattern(r"[a-z]{1,20}(?:\.[a-z_]{1,40})?")
_OBJECT_KIND = pattern(r"[a-z_]{1,32}")


def operate(kernel: PartitionState, command: cmd.Operate, out: Outcome) -> None:
    """Record an operator's action; refuses what is not written as an action is."""
    if fault := operated_fault(command):
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    evidence = command.evidence
    fields: dict[str, object] = {
        "tenant_id": command.tenant_id,
        "principal_id": command.principal_id,
        "credential_id": command.credential_id,
        "action": command.action,
        "object_kind": command.object_kind,
        "object_id": command.object_id,
        "outcome_code": command.outcome_code,
        "request_digest": command.request_digest,
        "evidence_digest": None if evidence is None else sha256(evidence),
    }
    emit(kernel, out, records.OPERATED, fields, evidence=evidence)
    return None


def enroll_worker(kernel: PartitionState, command: cmd.EnrollWorker, out: Outcome) -> None:
    """Record a worker's certificate; the same again is the same answer, another one under its id or key a conflict."""
    fault = id_fault("worker_id", command.worker_id) or digest_fault("key_id", command.key_id)
    fault = fault or digest_fault("certificate_digest", command.certificate_digest)
    fault = fault or enrolment_fault(command.evidence, command.certificate_digest)
    if fault:
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    if known := kernel.history.worker(command.worker_id, command.key_id):
        return _repeat_enrolment(kernel, known, command, out)
    fields: dict[str, object] = {
        "worker_id": command.worker_id,
        "key_id": command.key_id,
        "certificate_digest": command.certificate_digest,
        "evidence_digest": sha256(command.evidence),
    }
    emit(kernel, out, WORKER_ENROLLED, fields, evidence=command.evidence)
    return None


def _repeat_enrolment(kernel: PartitionState, known: list[Record], command: cmd.EnrollWorker, out: Outcome) -> None:
    first, *later = known
    body = _body(first)
    said = (body["worker_id"], body["key_id"], body["evidence_digest"])
    if later or said != (command.worker_id, command.key_id, sha256(command.evidence)):
        message = f"worker {command.worker_id!r} or its key has been enrolled before"
        return kernel.refuse(out, "CONFLICT", message, OPERATOR, status=CONFLICT, worker_id=command.worker_id)
    out.status = DEDUPLICATED
    out.record = first
    return None


def retire_worker(kernel: PartitionState, command: cmd.RetireWorker, out: Outcome) -> None:
    """Record that a worker's key ends here; the same again is the same answer."""
    if fault := id_fault("worker_id", command.worker_id) or reason_fault(command.reason_code):
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    known = kernel.history.worker(command.worker_id)
    if not known:
        message = f"there is no worker {command.worker_id!r}"
        return kernel.refuse(out, "UNKNOWN_WORKER", message, OPERATOR, worker_id=command.worker_id)
    if (last := known[-1]).kind == WORKER_RETIRED:
        if _body(last)["reason_code"] != command.reason_code:
            message = f"worker {command.worker_id!r} has been retired for another reason"
            return kernel.refuse(out, "CONFLICT", message, OPERATOR, status=CONFLICT, worker_id=command.worker_id)
        out.status = DEDUPLICATED
        out.record = last
        return None
    fields = {"worker_id": command.worker_id, "key_id": _body(last)["key_id"], "reason_code": command.reason_code}
    emit(kernel, out, WORKER_RETIRED, fields)
    return None


def _body(record: Record) -> dict[str, Any]:
    body = decode(record.body)
    return body if isinstance(body, dict) else {}


# -- what they are written with, for the kernel and for the verifier --------------------------------------------------


def operated_fault(command: cmd.Operate) -> str | None:
    """Say what is wrong with the words of an action, or nothing."""
    fault = id_fault("principal_id", command.principal_id) or id_fault("credential_id", command.credential_id)
    fault = fault or id_fault("object_id", command.object_id) or digest_fault("request_digest", command.request_digest)
    if command.tenant_id is not None:
        fault = fault or id_fault("tenant_id", command.tenant_id)
    if not is_action(command.action):
        fault = fault or f"action must be words such as job.cancel, not {show(command.action)}"
    if not is_object_kind(command.object_kind):
        fault = fault or f"object_kind must be a word such as job, not {show(command.object_kind)}"
    if fault is None and reason_fault(command.outcome_code):
        fault = f"outcome_code must be OK or the code of a refusal, not {show(command.outcome_code)}"
    if command.evidence is not None:
        fault = fault or operated_evidence_fault(command.evidence)
    return fault


def is_action(value: object) -> bool:
    """Whether a value is written as an action is; whether there is such an action is not asked here."""
    return type(value) is str and _ACTION.fullmatch(value) is not None


def is_object_kind(value: object) -> bool:
    """Whether a value may say what kind of thing an action was about."""
    return type(value) is str and _OBJECT_KIND.fullmatch(value) is not None


def operated_evidence_fault(evidence: object) -> str | None:
    """Say what is wrong with the evidence of an action, or nothing."""
    said = _map(evidence, "an action", OPERATED_EVIDENCE_BYTES_MAX)
    if isinstance(said, str):
        return said
    if unknown := said.keys() - OPERATED_EVIDENCE:
        return f"the evidence of an action says nothing of {', '.join(sorted(map(show, unknown)))}"
    if "request_id" in said and (fault := id_fault("request_id", said["request_id"])):
        return f"evidence {fault}"
    for name, bytes_max in (("route", ROUTE_BYTES_MAX), ("reason", REASON_BYTES_MAX)):
        text = said.get(name, "x")
        if type(text) is not str or not 1 <= len(text.encode()) <= bytes_max:
            return f"evidence {name} must be a text of 1 to {bytes_max} bytes"
    for name in ("parameters", "signature"):
        if not isinstance(said.get(name, {}), dict):
            return f"evidence {name} must be a map"
    return None


def enrolment_fault(evidence: object, certificate_digest: bytes) -> str | None:
    """Say what is wrong with the shape of a worker's certificate and proof, or nothing; their signatures are not looked at."""
    said = _map(evidence, "an enrolment", ENROLMENT_EVIDENCE_BYTES_MAX)
    if isinstance(said, str):
        return said
    if said.keys() != ENROLMENT_EVIDENCE or not all(type(part) is bytes for part in said.values()):
        return "the evidence of an enrolment is a certificate and a proof, as bytes"
    if sha256(said["certificate"]) != certificate_digest:
        return "certificate_digest is not the digest of the certificate"
    return None


def _map(evidence: object, whose: str, bytes_max: int) -> dict[str, Any] | str:
    if type(evidence) is not bytes or len(evidence) > bytes_max:
        return f"the evidence of {whose} has at most {bytes_max} bytes"
    try:
        said = decode(evidence)
    except NotCanonical as exc:
        return f"the evidence of {whose} is not canonical CBOR: {exc}"
    if not isinstance(said, dict) or not all(type(name) is str for name in said):
        return f"the evidence of {whose} is a map"
    return said
