"""Enrolled workers: whose keys may sign results beside those of the trust configuration, and for which records.

A certificate counts for results that are recorded behind ``worker_enrolled`` and before ``worker_retired``, in the same partition;
for the workspaces it names; for the ledger it names; and for leases of that very worker. Positions of records decide, never clocks.
"""

from __future__ import annotations

from detent.access.certificate import Certificate, Enrolment, worker_of
from detent.canon.crypto import verify_signature
from detent.canon.late import NamedTuple, dataclass
from detent.errors import InvalidInput
from detent.ledger.trust import Trust
from detent.ledger.trust_config import ENROLL, TrustFault, short_id


@dataclass(slots=True)
class Enrolled:
    """One worker, and the positions of the records that began and ended it."""

    worker_id: str
    certificate: Certificate | None
    """None where the ledger holds one that cannot be read."""
    position: int
    retired: int | None = None


class EnrolledWorkers:
    """The workers of one partition, as far as its records have been read. Neither an id nor a key comes back."""

    def __init__(self) -> None:
        self._by_worker: dict[str, bytes] = {}
        self._by_key: dict[bytes, Enrolled] = {}

    def enrol(self, worker_id: str, key_id: bytes, certificate: Certificate | None, position: int) -> bool:
        """Take in a new worker; False when its id or its key was there before."""
        if worker_id in self._by_worker or key_id in self._by_key:
            return False
        self._by_worker[worker_id] = key_id
        self._by_key[key_id] = Enrolled(worker_id, certificate, position)
        return True

    def retire(self, worker_id: str, key_id: bytes, position: int) -> bool:
        """End a worker's key; False when it is not in force."""
        enrolled = self._by_key.get(key_id)
        if enrolled is None or enrolled.worker_id != worker_id or enrolled.retired is not None:
            return False
        enrolled.retired = position
        return True

    def worker(self, key_id: bytes) -> Enrolled | None:
        """The worker whose key it is; None for a key that no worker was enrolled with."""
        return self._by_key.get(key_id)


class WorkerLease(NamedTuple):
    """A worker whose key signed a result, the position of the record that names the result, and to whom its lease was granted."""

    enrolled: Enrolled
    record: int
    holder: str | None

    def public_key(self, *, origin: str, tenant: str) -> bytes | TrustFault:
        """The worker's public key, or why it may not sign that result."""
        enrolled, record = self.enrolled, self.record
        certificate, name = enrolled.certificate, f"worker {enrolled.worker_id!r}"
        if certificate is None:
            return TrustFault("CERTIFICATE_INVALID", f"the certificate of {name} cannot be read")
        if record <= enrolled.position:
            return TrustFault(
                "KEY_OUT_OF_RANGE", f"{name} was enrolled at record {enrolled.position}, used at {record}"
            )
        if enrolled.retired is not None and record >= enrolled.retired:
            return TrustFault("KEY_OUT_OF_RANGE", f"{name} was retired at record {enrolled.retired}, used at {record}")
        if certificate.origin != origin:
            return TrustFault("KEY_OUT_OF_SCOPE", f"{name} is enrolled in the ledger {certificate.origin!r}, not here")
        if not certificate.covers(tenant):
            return TrustFault("KEY_OUT_OF_SCOPE", f"{name} may not sign for tenant {tenant!r}")
        if self.holder is None or worker_of(self.holder) != enrolled.worker_id:
            return TrustFault("KEY_OUT_OF_SCOPE", f"{name} signed a result of a lease that is not its own")
        return certificate.public_key


def read_enrolment(evidence: bytes, worker_id: str, key_id: bytes, certificate_digest: bytes) -> Enrolment | TrustFault:
    """The certificate and proof beside an enrolment, if they are about that worker and key; no signature is checked."""
    try:
        enrolment = Enrolment.parse(evidence)
    except InvalidInput as exc:
        return TrustFault("CERTIFICATE_INVALID", str(exc))
    certificate = enrolment.signed.certificate
    if enrolment.certificate_digest != certificate_digest:
        return TrustFault("CERTIFICATE_INVALID", "the certificate is not the one that the record names")
    if (certificate.worker_id, certificate.key_id) != (worker_id, key_id):
        return TrustFault("CERTIFICATE_INVALID", "the certificate is of another worker or key than the record")
    return enrolment


def enrolment_signatures(
    trust: Trust, enrolment: Enrolment, batch_no: int, partition: int
) -> tuple[tuple[bytes, bytes, bytes], tuple[bytes, bytes, bytes]] | TrustFault:
    """What has to verify for an enrolment in a batch to hold, certificate first; or why it never will.

    The certificate is of this ledger, and its issuer's key has the role ``enroll`` there.
    """
    certificate = enrolment.signed.certificate
    origin = trust.origin_of_batch(batch_no)
    if certificate.origin != origin:
        return TrustFault(
            "CERTIFICATE_INVALID", f"a certificate of the ledger {certificate.origin!r}, not of {origin!r}"
        )
    issuer = trust.find(enrolment.signed.key_id, ENROLL, batch_no, None, partition)
    if isinstance(issuer, TrustFault):
        return TrustFault(issuer.code, f"the issuer of the certificate: {issuer.message}")
    return enrolment.signed.signed(issuer), enrolment.proof.signed(certificate.origin, certificate.public_key)


def enrolment_fault(trust: Trust, enrolment: Enrolment, batch_no: int, partition: int) -> TrustFault | None:
    """Say why an enrolment does not hold in a batch, or nothing. Both signatures are checked."""
    checks = enrolment_signatures(trust, enrolment, batch_no, partition)
    if isinstance(checks, TrustFault):
        return checks
    for check, what in zip(checks, ("certificate's signature", "worker's proof of its key"), strict=True):
        if not verify_signature(*check):
            key = short_id(enrolment.signed.certificate.key_id)
            return TrustFault("CERTIFICATE_INVALID", f"the {what} does not verify (worker key {key})")
    return None
