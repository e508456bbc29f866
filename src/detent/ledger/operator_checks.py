"""Records of what operators asked for, and of the keys of enrolled workers: what each of them must agree with.

The handlers are as those of `record_checks`: they take the walk, the record's fields and its evidence, say what does not hold, and
fold the record in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from detent.kernel.operators import operated_evidence_fault
from detent.ledger.trust_config import TrustFault
from detent.ledger.workers import enrolment_signatures, read_enrolment

if TYPE_CHECKING:
    from detent.ledger.book import WalkState


def operated(walk: WalkState, fields: Mapping[str, Any], evidence: bytes) -> Iterator[TrustFault]:  # noqa: ARG001 - changes nothing
    """An operator asked for something: the evidence is the one that the record binds, and is written as it must be."""
    digest = fields["evidence_digest"]
    if digest is None:
        if evidence:
            yield TrustFault("EVIDENCE_UNEXPECTED", "an operated record that binds no evidence has some beside it")
        return
    yield from _bound(digest, evidence)
    if fault := operated_evidence_fault(evidence):
        yield TrustFault("EVIDENCE_INVALID", fault)


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
