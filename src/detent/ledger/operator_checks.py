"""Records of what operators asked for, and of the keys of enrolled workers: what each of them must agree with.

The handlers are as those of `record_checks`: they take the walk, the record's fields and its evidence, say what does not hold, and
fold the record in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from detent.kernel.operators import operated_evidence_fault
from detent.ledger.items import SCOPE_LEDGER
from detent.ledger.loose import loose
from detent.ledger.trust_config import TrustFault
from detent.ledger.workers import enrolment_signatures, read_enrolment

if TYPE_CHECKING:
    from detent.ledger.book import WalkState


def operated(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:
    """An operator asked for something: the evidence is the one that the record binds, and is written as it must be.

    Where the operator signed the request, that signature must hold. Actions on keys must follow on one another; they are in the first
    partition, and a bundle of one run does not hold them all.
    """
    said: Any = {}
    if fields["evidence_digest"] is not None:
        yield from _bound(fields["evidence_digest"], evidence)
        if fault := operated_evidence_fault(evidence):
            yield TrustFault("EVIDENCE_INVALID", fault)
        else:
            said = loose(evidence)
    elif evidence:
        yield TrustFault("EVIDENCE_UNEXPECTED", "an operated record that binds no evidence has some beside it")
    if "signature" in said:
        yield from _operator_signature(walk, fields, said["signature"])
    is_key = fields["object_kind"] == "key" and fields["action"].startswith("key.")
    if is_key and fields["outcome_code"] == "OK" and walk.partition.number == 0:
        fault = walk.book.operators.change(fields["action"], fields["object_id"], said.get("parameters"))
        header = walk.book.header
        if fault and (header is None or header.scope == SCOPE_LEDGER):
            yield TrustFault("OPERATED_WRONG", fault)


def _operator_signature(
    walk: WalkState, fields: Mapping[str, Any], signature: Mapping[str, Any]
) -> Iterator[TrustFault]:
    """An operator's own signature: over a request to this ledger, the one that the record names, by a key of that credential."""
    base, signed = signature.get("base"), signature.get("sig")
    if signature.keys() != {"base", "sig"} or type(base) is not bytes or type(signed) is not bytes:
        yield TrustFault("OPERATOR_SIGNATURE_INVALID", "an operator's signature is a signature base and a sig")
        return
    if sha256(base).digest() != fields["request_digest"]:
        yield TrustFault("OPERATOR_SIGNATURE_INVALID", "the operator signed another request than the recorded one")
    if not base.endswith(f';tag="detent/{walk.partition.origin}"'.encode()):
        yield TrustFault("OPERATOR_SIGNATURE_INVALID", "the operator signed a request to another ledger")
    header = walk.book.header
    public_key = walk.book.operators.public_key(fields["credential_id"], ever=walk.partition.number != 0)
    if public_key is None and header is not None and header.scope != SCOPE_LEDGER:
        return  # The bundle of one run does not hold the keys: it counts as asserted by the server.
    if public_key is None:
        message = f"credential {fields['credential_id']!r} has no key in force that signs requests"
        yield TrustFault("OPERATOR_SIGNATURE_INVALID", message)
        return
    walk.book.counts["operated_signed"] += 1
    place = (walk.partition.number, walk.batch_no, walk.position, None, None)
    message = "the operator's signature of the request does not verify"
    walk.book.signature((public_key, base, signed), ("OPERATOR_SIGNATURE_INVALID", message, *place))


def worker_enrolled(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:
    """A worker's key may sign results from here on: certified by the server's key, held by the worker, and new."""
    partition, worker_id, key_id = walk.partition, fields["worker_id"], fields["key_id"]
    yield from _bound(fields["evidence_digest"], evidence)
    enrolment = read_enrolment(evidence, worker_id, key_id, fields["certificate_digest"])
    certificate = None if isinstance(enrolment, TrustFault) else enrolment.signed.certificate
    if not partition.workers.enrol(worker_id, key_id, certificate, walk.position):
        yield TrustFault("WORKER_WRONG", f"worker {worker_id!r} or its key was enrolled before")
    if isinstance(enrolment, TrustFault):
        yield enrolment
        return
    if partition.trust is None:
        return
    checks = enrolment_signatures(partition.trust, enrolment, walk.batch_no, partition.number)
    if isinstance(checks, TrustFault):
        yield checks
        return
    place = (partition.number, walk.batch_no, walk.position, None, None)
    certified, proved = checks
    walk.book.signature(certified, ("CERTIFICATE_INVALID", "the certificate's signature does not verify", *place))
    walk.book.signature(proved, ("CERTIFICATE_INVALID", "the worker's proof of its key does not verify", *place))


def worker_retired(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:  # noqa: ARG001 - has none
    """A worker's key signs nothing more; it was enrolled, with this key, and not retired before."""
    if not walk.partition.workers.retire(fields["worker_id"], fields["key_id"], walk.position):
        yield TrustFault("WORKER_WRONG", f"worker {fields['worker_id']!r} is not enrolled with this key")


def _bound(digest: bytes | None, evidence: bytes) -> Iterator[TrustFault]:
    if digest is None or not evidence:
        yield TrustFault("EVIDENCE_MISSING", "the record names no evidence, or has none beside it")
    elif sha256(evidence).digest() != digest:
        yield TrustFault("EVIDENCE_DIGEST_WRONG", "the evidence is not the one that the record names")
