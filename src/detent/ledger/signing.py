"""What submitters and executors sign: job manifests and results.

Signed reports: a result that a record names must be one that an executor was allowed to sign, for that very attempt.

Records come first and name a report by its digest; the report itself is content and comes later. So what a record says of
its attempt is kept until the report is there. A report that never comes was erased, which the ledger says, or is missing.
A home must have every report that it has not erased. A bundle has all of them or none: without any it cannot show who
signed the results, which the verification says; one that lacks only some of them was changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from detent.canon import NotCanonical, SigningKey, decode, encode, encode_trusted
from detent.canon.crypto import is_signature, sign_together, verify_signature
from detent.canon.late import NamedTuple
from detent.errors import InvalidInput, Refused
from detent.kernel import MANIFEST_LABEL, Manifest, VerifiedManifest, open_envelope
from detent.ledger.heads import Heads
from detent.ledger.loose import loose
from detent.ledger.schema import Grounds, parse_manifest, read_evidence
from detent.ledger.trust import Trust
from detent.ledger.trust_config import ALG, MANIFEST, RESULT, KeyEntry, TrustFault, manifest_origin_fault
from detent.ledger.workers import WorkerLease

RESULT_LABEL: Final = b"detent/result/v1\x00"


def sign_manifest(manifest: Manifest, key: SigningKey) -> VerifiedManifest:
    """Sign a manifest. What this process signed need not be verified again; what fits no schema is not signed."""
    body = manifest.body()
    parsed = Manifest.parse(body)
    if isinstance(parsed, Refused):
        raise InvalidInput(parsed.message, code=parsed.code)
    # The parsed one, which is what a replay will see: a caller's own object may hold a list where the bytes mean a tuple.
    return VerifiedManifest(parsed, body, key.key_id, key.sign(MANIFEST_LABEL + body))


def sign_own_manifests(manifests: Sequence[Manifest], key: SigningKey) -> list[VerifiedManifest]:
    """Sign manifests that this program put together out of checked parts, together: they are not read back to be checked again."""
    bodies = [manifest.body_trusted() for manifest in manifests]
    signatures = sign_together(key, [MANIFEST_LABEL + body for body in bodies])
    signed = zip(manifests, bodies, signatures, strict=True)
    return [VerifiedManifest(manifest, body, key.key_id, signature) for manifest, body, signature in signed]


def verify_manifest(
    trust: Trust, signed: bytes | tuple[bytes, bytes, bytes], position: int, *, partition: int | None = None
) -> VerifiedManifest | Refused:
    """Check a signed manifest: an envelope's bytes, or (body, key id, signature).

    The key must have the role ``manifest``, be valid at ``position`` (the batch that will hold the job) and may sign for
    the manifest's tenant, and the manifest must not name another ledger. The signature is checked before the body is read.
    """
    opened = open_envelope(signed) if isinstance(signed, bytes) else signed
    if isinstance(opened, Refused):
        return opened
    body, key_id, signature = opened
    entry = trust.entry(key_id, MANIFEST, position)
    if isinstance(entry, TrustFault):
        return _refused(entry)
    if not verify_signature(entry.public_key, MANIFEST_LABEL + body, signature):
        return Refused("MANIFEST_SIGNATURE_INVALID", "the manifest's signature does not verify")
    manifest = parse_manifest(body)
    if isinstance(manifest, Refused):
        return manifest
    verified = VerifiedManifest(manifest, body, key_id, signature)
    return _refusal(trust, entry, verified, position, partition) or verified


def signer_refusal(trust: Trust, verified: VerifiedManifest, position: int, partition: int) -> Refused | None:
    """Say why a manifest may not be submitted at a position, or nothing.

    For what this process signed itself: the signature is good, but the key's time may be over, it is another tenant's, or
    the manifest is for another ledger.
    """
    entry = trust.entry(verified.key_id, MANIFEST, position)
    return _refused(entry) if isinstance(entry, TrustFault) else _refusal(trust, entry, verified, position, partition)


class SignedResult(NamedTuple):
    """A result envelope's bytes with the signature of the executor that made it."""

    body: bytes
    key_id: bytes
    signature: bytes

    def envelope(self) -> bytes:
        """Canonical bytes of body and signature block."""
        return encode({"body": self.body, "sig": {"alg": ALG, "key_id": self.key_id, "sig": self.signature}})

    @classmethod
    def parse(cls, envelope: bytes) -> SignedResult:
        """Take an envelope apart without judging the signature; `InvalidInput` for what is none."""
        try:
            fields = decode(envelope)
        except NotCanonical as exc:
            raise InvalidInput(f"the signed result is not canonical CBOR: {exc}", code="NOT_CANONICAL") from exc
        block = fields.get("sig") if isinstance(fields, dict) and fields.keys() == {"body", "sig"} else None
        if not isinstance(block, dict) or block.keys() != {"alg", "key_id", "sig"} or block["alg"] != ALG:
            raise InvalidInput(f"a signed result is a map of body and sig, signed with {ALG}")
        body, key_id, signature = fields["body"], block["key_id"], block["sig"]
        if not isinstance(body, bytes) or not isinstance(key_id, bytes):
            raise InvalidInput("a signed result holds bytes")
        if len(key_id) != 32 or not is_signature(signature):
            raise InvalidInput(
                "a signature block holds a 32-byte key_id and a sig of 64 bytes, or of 64 bytes and a path"
            )
        return cls(body, key_id, signature)


def sign_result(body: bytes, key: SigningKey) -> SignedResult:
    """Sign one result as its executor."""
    return sign_results([body], key)[0]


def sign_results(bodies: Sequence[bytes], key: SigningKey) -> list[SignedResult]:
    """Sign results as their executor, together."""
    signatures = sign_together(key, [RESULT_LABEL + body for body in bodies])
    return [SignedResult(body, key.key_id, signature) for body, signature in zip(bodies, signatures, strict=True)]


def result_signature(
    trust: Trust,
    signed: SignedResult,
    position: int,
    *,
    tenant: str,
    partition: int | None = None,
    worker: WorkerLease | None = None,
) -> tuple[bytes, bytes, bytes] | TrustFault:
    """What has to verify for a result's signature to be believed (public key, message, signature), or why it never will be.

    The key must have the role ``result``, be valid at ``position`` and may sign for the tenant; or it is that of an enrolled
    ``worker`` whose certificate counts for the record. A good signature says who reported, not whether it is true.
    """
    if worker is None:
        public_key = trust.find(signed.key_id, RESULT, position, tenant, partition)
    else:
        public_key = worker.public_key(origin=trust.origin_of_batch(position), tenant=tenant)
    if isinstance(public_key, TrustFault):
        return public_key
    return public_key, RESULT_LABEL + signed.body, signed.signature


def _refusal(
    trust: Trust, entry: KeyEntry, verified: VerifiedManifest, position: int, partition: int | None
) -> Refused | None:
    """Say what a manifest's own words forbid: a tenant that its key may not sign for, or another ledger."""
    manifest = verified.manifest
    if fault := entry.scope_fault(manifest.tenant_id, partition):
        return _refused(fault)
    origin = trust.origin_of_batch(position)
    if fault := manifest_origin_fault(manifest.origin, origin):
        message = f"job {manifest.job_id!r}: {fault.message}; sign it for this ledger, or submit it to the one it names"
        return Refused(fault.code, message, {"origin": manifest.origin, "ledger": origin})
    return None


def _refused(fault: TrustFault) -> Refused:
    return Refused("MANIFEST_SIGNATURE_INVALID", fault.message, {"fault": fault.code})


_NAMED: Final = b"n"


class NamedResult(NamedTuple):
    """What a record says of the attempt that a report ended."""

    partition: int
    batch_no: int
    position: int
    tenant_id: str
    succeeded: bool
    job_id: str
    attempt_id: int
    lease_id: bytes | None
    manifest_hash: bytes
    holder: str | None = None
    """To which worker's start the attempt's lease was granted."""


class ResultTable:
    """The reports that records have named and that have not come yet."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self.named = 0
        self.unnamed = 0
        """Results whose records name no report."""

    def name(self, digest: bytes, result: NamedResult) -> bool:
        """A record names a report; says whether it is the first to do so."""
        key = _NAMED + digest
        if self._heads.get(key) is not None:
            return False
        self.named += 1
        self._heads.put(key, encode_trusted(list(result)))
        return True

    def take(self, digest: bytes) -> NamedResult | None:
        """What is named by a digest; None when nothing is, or it was taken before."""
        key = _NAMED + digest
        data = self._heads.get(key)
        if data is None:
            return None
        self._heads.delete(key)
        return NamedResult(*loose(data))

    def left(self) -> Iterator[tuple[bytes, NamedResult]]:
        """Every report that was named and never taken."""
        for key, data in self._heads.items(_NAMED):
            yield key[len(_NAMED) :], NamedResult(*loose(data))


def report_named(evidence: bytes) -> bytes | None:
    """The digest of the signed report that a transition's evidence names; None for evidence of any other kind."""
    grounds = read_evidence(evidence)
    return grounds.detail_digest if isinstance(grounds, Grounds) and grounds.names_report else None
