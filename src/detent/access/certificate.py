"""Certificates of workers on other machines, and the proof that a worker holds the key it asks a certificate for.

The worker makes its key and keeps it. It proves that it has it by a signature over the ledger it wants to work for, the enrolment
token it was given, its key and a nonce. The server signs a certificate with its enrolment key: which worker, which key, for which
workspaces and pools. Both lie on the ledger beside ``worker_enrolled``, so every later result of the worker can be checked by
a reader who has only the ledger.

Signatures of different things begin with different labels, and both name the ledger: neither can be used for anything else.
"""

from __future__ import annotations

from typing import Any, Final

from detent.canon import NotCanonical, SigningKey, check_public_key, decode, encode, key_id_of, sha256
from detent.canon.crypto import SIGNATURE_BYTES
from detent.canon.late import NamedTuple, dataclass, pattern
from detent.canon.show import show
from detent.errors import InvalidInput, TrustError

CERTIFICATE_LABEL: Final = b"detent/worker-certificate/v1\x00"
PROOF_LABEL: Final = b"detent/worker-proof/v1\x00"
ALG: Final = "Ed25519"
KIND: Final = "worker_certificate"
FORMAT_VERSION: Final = 1
NAMES_MAX: Final = 256
"""Workspaces, pools or labels in one certificate."""
NAME_BYTES_MAX: Final = 100
CERTIFICATE_BYTES_MAX: Final = 40 * 1024
NONCE_BYTES: Final = 16
BOOT_SEPARATOR: Final = "/"
"""Between a worker's id and the name of one start of it, in the name that its leases are granted to."""

_WORKER_ID: Final = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_NAME: Final = pattern(r"[^\x00-\x20\x7f-\x9f]+")
_FIELDS: Final = frozenset(
    {"kind", "v", "origin", "worker_id", "public_key", "tenants", "pools", "labels", "issued_tick"}
)
_PROOF_FIELDS: Final = frozenset({"token_digest", "nonce", "sig"})


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the server says of a worker's key. Tenants or pools of None mean all of them."""

    origin: str
    worker_id: str
    public_key: bytes
    tenants: tuple[str, ...] | None
    pools: tuple[str, ...] | None
    labels: tuple[str, ...]
    issued_tick: int

    def __post_init__(self) -> None:
        if type(self.worker_id) is not str or not _WORKER_ID.fullmatch(self.worker_id):
            raise InvalidInput(
                f"a worker's id has 1 to 63 letters, digits, dots, dashes and underscores, not {show(self.worker_id)}"
            )
        if type(self.origin) is not str or not _is_name(self.origin, 200):
            raise InvalidInput(f"a certificate names its ledger, not {show(self.origin)}")
        try:
            check_public_key(self.public_key)
        except (TrustError, TypeError) as exc:
            raise InvalidInput(f"a certificate holds the worker's public key: {exc}") from exc
        for what, names in (("tenants", self.tenants), ("pools", self.pools)):
            if names is not None and not _are_names(names, 1):
                raise InvalidInput(f"a certificate's {what} are 1 to {NAMES_MAX} names in order, or null for all")
        if not _are_names(self.labels, 0):
            raise InvalidInput(f"a certificate's labels are up to {NAMES_MAX} names in order")
        if type(self.issued_tick) is not int or not 0 <= self.issued_tick < 2**64:
            raise InvalidInput("a certificate says at which tick it was issued")

    @property
    def key_id(self) -> bytes:
        """SHA-256 of the worker's public key."""
        return key_id_of(self.public_key)

    def covers(self, tenant: str) -> bool:
        """Whether the worker may work for a tenant."""
        return self.tenants is None or tenant in self.tenants

    def body(self) -> bytes:
        """Canonical bytes: what is signed."""
        return encode(
            {
                "kind": KIND,
                "v": FORMAT_VERSION,
                "origin": self.origin,
                "worker_id": self.worker_id,
                "public_key": self.public_key,
                "tenants": None if self.tenants is None else list(self.tenants),
                "pools": None if self.pools is None else list(self.pools),
                "labels": list(self.labels),
                "issued_tick": self.issued_tick,
            }
        )

    @classmethod
    def parse(cls, body: bytes) -> Certificate:
        """Read a body; `InvalidInput` for everything that `body` would not have written."""
        fields = _read(body, "a certificate", _FIELDS)
        if fields["kind"] != KIND or type(fields["v"]) is not int or fields["v"] != FORMAT_VERSION:
            raise InvalidInput(f"not a worker's certificate of format {FORMAT_VERSION}")
        names: dict[str, Any] = {}
        for name in ("tenants", "pools", "labels"):
            value = fields[name]
            if type(value) is not list and (value is not None or name == "labels"):
                raise InvalidInput(f"a certificate's {name} are a list")
            names[name] = None if value is None else tuple(value)
        return cls(
            fields["origin"], fields["worker_id"], fields["public_key"], **names, issued_tick=fields["issued_tick"]
        )


class SignedCertificate(NamedTuple):
    """A certificate with the signature of the enrolment key that issued it; the signature has not been judged."""

    certificate: Certificate
    body: bytes
    key_id: bytes
    signature: bytes

    def envelope(self) -> bytes:
        """Canonical bytes of body and signature block: what the worker is handed."""
        return encode({"body": self.body, "sig": {"alg": ALG, "key_id": self.key_id, "sig": self.signature}})

    def signed(self, public_key: bytes) -> tuple[bytes, bytes, bytes]:
        """What has to verify: public key, message, signature."""
        return public_key, CERTIFICATE_LABEL + self.body, self.signature

    @classmethod
    def parse(cls, envelope: bytes) -> SignedCertificate:
        """Take an envelope apart; `InvalidInput` for anything but one."""
        fields = _read(envelope, "a signed certificate", frozenset({"body", "sig"}))
        block = fields["sig"]
        if not isinstance(block, dict) or block.keys() != {"alg", "key_id", "sig"} or block["alg"] != ALG:
            raise InvalidInput(f"a certificate is signed with {ALG}")
        body, key_id, signature = fields["body"], block["key_id"], block["sig"]
        if type(body) is not bytes or not _is_bytes(key_id, 32) or not _is_bytes(signature, SIGNATURE_BYTES):
            raise InvalidInput("a signed certificate holds a body, a 32-byte key_id and a 64-byte sig")
        return cls(Certificate.parse(body), body, key_id, signature)


class Proof(NamedTuple):
    """A worker's signature with its own key over where it enrols, with which token."""

    token_digest: bytes
    nonce: bytes
    signature: bytes

    def encode(self) -> bytes:
        """Canonical bytes: what the worker sends."""
        return encode({"token_digest": self.token_digest, "nonce": self.nonce, "sig": self.signature})

    def signed(self, origin: str, public_key: bytes) -> tuple[bytes, bytes, bytes]:
        """What has to verify for the worker to hold the key: public key, message, signature."""
        return public_key, _proof_message(origin, public_key, self.token_digest, self.nonce), self.signature

    @classmethod
    def parse(cls, data: bytes) -> Proof:
        """Read what `encode` wrote; `InvalidInput` for anything else."""
        fields = _read(data, "a proof of possession", _PROOF_FIELDS)
        sizes = {"token_digest": 32, "nonce": NONCE_BYTES, "sig": SIGNATURE_BYTES}
        if not all(_is_bytes(fields[name], size) for name, size in sizes.items()):
            raise InvalidInput(
                f"a proof of possession holds a token_digest of 32, a nonce of {NONCE_BYTES} and a sig of 64 bytes"
            )
        return cls(fields["token_digest"], fields["nonce"], fields["sig"])


def issue(certificate: Certificate, enroll_key: SigningKey) -> SignedCertificate:
    """Sign a certificate as the server."""
    body = certificate.body()
    if len(body) > CERTIFICATE_BYTES_MAX:
        raise InvalidInput(f"a certificate has at most {CERTIFICATE_BYTES_MAX} bytes", hint="name fewer tenants")
    return SignedCertificate(certificate, body, enroll_key.key_id, enroll_key.sign(CERTIFICATE_LABEL + body))


def prove(origin: str, token_digest: bytes, nonce: bytes, worker_key: SigningKey) -> Proof:
    """Prove as the worker that it holds its key."""
    return Proof(
        token_digest, nonce, worker_key.sign(_proof_message(origin, worker_key.public_key, token_digest, nonce))
    )


class Enrolment(NamedTuple):
    """A certificate and a proof, as they lie beside ``worker_enrolled``."""

    signed: SignedCertificate
    proof: Proof

    def evidence(self) -> bytes:
        """Canonical bytes of both."""
        return encode({"certificate": self.signed.envelope(), "proof": self.proof.encode()})

    @property
    def certificate_digest(self) -> bytes:
        """By which the record names the certificate."""
        return sha256(self.signed.envelope())

    @classmethod
    def parse(cls, evidence: bytes) -> Enrolment:
        """Read both; `InvalidInput` for anything else."""
        fields = _read(evidence, "an enrolment", frozenset({"certificate", "proof"}))
        if type(fields["certificate"]) is not bytes or type(fields["proof"]) is not bytes:
            raise InvalidInput("an enrolment is the bytes of a certificate and of a proof")
        return cls(SignedCertificate.parse(fields["certificate"]), Proof.parse(fields["proof"]))


def replica_of(worker_id: str, boot: str) -> str:
    """The name under which one start of a worker takes leases."""
    return f"{worker_id}{BOOT_SEPARATOR}{boot}"


def worker_of(replica_id: str) -> str:
    """The worker whose start a lease was granted to."""
    return replica_id.partition(BOOT_SEPARATOR)[0]


def _proof_message(origin: str, public_key: bytes, token_digest: bytes, nonce: bytes) -> bytes:
    return PROOF_LABEL + encode(
        {"origin": origin, "public_key": public_key, "token_digest": token_digest, "nonce": nonce}
    )


def _read(data: bytes, what: str, names: frozenset[str]) -> dict[str, Any]:
    try:
        fields = decode(data, bytes_max=2 * CERTIFICATE_BYTES_MAX)
    except NotCanonical as exc:
        raise InvalidInput(f"{what} is not canonical CBOR: {exc}") from exc
    if not isinstance(fields, dict) or fields.keys() != names:
        raise InvalidInput(f"{what} is a map of exactly {', '.join(sorted(names))}")
    return fields


def _is_bytes(value: object, size: int) -> bool:
    return type(value) is bytes and len(value) == size


def _is_name(value: object, bytes_max: int = NAME_BYTES_MAX) -> bool:
    if type(value) is not str or not _NAME.fullmatch(value):
        return False
    return len(value.encode("utf-8", "replace")) <= bytes_max


def _are_names(names: object, least: int) -> bool:
    if type(names) is not tuple or not least <= len(names) <= NAMES_MAX or not all(map(_is_name, names)):
        return False
    return list(names) == sorted(set(names))
