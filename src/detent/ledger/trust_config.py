"""One version of the trust configuration: public keys, each with one role, a scope and a range of positions.

One key has one role. Ed25519 is the only algorithm: a key has it fixed, so there is nothing to negotiate and nothing to
downgrade. Positions (batch numbers), never clocks, decide whether a key was valid. How versions follow one another is
`trust`'s business.
"""

from __future__ import annotations

from typing import Any, Final

from detent.canon import (
    RECORD_BYTES_MAX,
    NotCanonical,
    SigningKey,
    check_public_key,
    decode,
    encode,
    key_id_of,
    sha256,
)
from detent.canon.crypto import SIGNATURE_BYTES
from detent.canon.late import NamedTuple, dataclass
from detent.errors import TrustError

TRUST_LABEL: Final = b"detent/trust/v1\x00"
ALG: Final = "Ed25519"
KIND: Final = "trust"
FORMAT_VERSION: Final = 1

ROOT, MANIFEST, TRANSITION, RESULT, LOG, WITNESS = "root", "manifest", "transition", "result", "log", "witness"
ENROLL: Final = "enroll"
"""Signs the certificates of workers on other machines. Homes that never served have no such key."""
ROLES: Final = frozenset({ROOT, MANIFEST, TRANSITION, RESULT, LOG, WITNESS, ENROLL})
TENANT_ROLES: Final = frozenset({MANIFEST, RESULT})
"""Roles whose keys may be limited to tenants; keys of other roles sign for all of them."""

POSITION_MAX: Final = 2**63 - 1
KEYS_MAX: Final = 256
SCOPE_MAX: Final = 256
"""Tenants or partitions that one key may be limited to."""
SIGNATURES_MAX: Final = 8
VERSIONS_MAX: Final = 2**32
ORIGIN_BYTES_MAX: Final = 200

_CONFIG_FIELDS: Final = frozenset({"kind", "v", "origin", "version", "prev", "keys"})
_COPY_FIELDS: Final = _CONFIG_FIELDS | {"copy_of"}
"""Those of the version with which a copy of a ledger takes a name of its own."""
_KEY_FIELDS: Final = frozenset(
    {"key_id", "alg", "public_key", "roles", "tenants", "partitions", "from_position", "to_position"}
)
_SIGNATURE_FIELDS: Final = frozenset({"key_id", "alg", "sig"})


class TrustFault(NamedTuple):
    """Why something signed is not to be believed: a finding's code and a sentence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One public key with what it may be used for.

    ``from_position`` is the first batch it is valid for, ``to_position`` the first for which it no longer is. A scope of
    None means all tenants, all partitions. Refuses, with `TrustError`, keys and scopes that make no sense.
    """

    public_key: bytes
    role: str
    tenants: tuple[str, ...] | None = None
    partitions: tuple[int, ...] | None = None
    from_position: int = 0
    to_position: int | None = None

    def __post_init__(self) -> None:
        check_public_key(self.public_key)
        if self.role not in ROLES:
            raise TrustError(f"a key's role is one of {', '.join(sorted(ROLES))}, not {self.role!r}")
        if not _is_position(self.from_position):
            raise TrustError(f"from_position is a batch number, not {self.from_position!r}")
        if self.to_position is not None and not (
            _is_position(self.to_position) and self.to_position > self.from_position
        ):
            raise TrustError(f"to_position comes after from_position {self.from_position}, not {self.to_position!r}")
        if self.tenants is not None and (self.role not in TENANT_ROLES or not _is_scope(self.tenants, str)):
            raise TrustError("tenants is a sorted list of names, for manifest and result keys only")
        if self.partitions is not None and (self.role == ROOT or not _is_scope(self.partitions, int)):
            raise TrustError("partitions is a sorted list of partition numbers, and root keys have none")

    @property
    def key_id(self) -> bytes:
        """SHA-256 of the public key."""
        return key_id_of(self.public_key)

    def to_map(self) -> dict[str, object]:
        """The entry as written in a configuration's body."""
        return {
            "key_id": self.key_id,
            "alg": ALG,
            "public_key": self.public_key,
            "roles": [self.role],
            "tenants": None if self.tenants is None else list(self.tenants),
            "partitions": None if self.partitions is None else list(self.partitions),
            "from_position": self.from_position,
            "to_position": self.to_position,
        }

    @classmethod
    def from_map(cls, value: object) -> KeyEntry:
        """Read an entry; refuse other fields, another algorithm, several roles, and an id that is not the key's own."""
        fields = _exact(value, _KEY_FIELDS, "a key of the trust configuration")
        if fields["alg"] != ALG:
            raise TrustError(f"a key's algorithm is {ALG}, not {fields['alg']!r}")
        roles = fields["roles"]
        if not isinstance(roles, list) or len(roles) != 1 or not isinstance(roles[0], str):
            raise TrustError("a key has exactly one role: keys are never shared between roles")
        scopes: dict[str, tuple[Any, ...] | None] = {}
        for name in ("tenants", "partitions"):
            scope = fields[name]
            if scope is not None and not isinstance(scope, list):
                raise TrustError(f"a key's {name} are a list or null")
            scopes[name] = None if scope is None else tuple(scope)
        entry = cls(
            fields["public_key"],
            roles[0],
            scopes["tenants"],
            scopes["partitions"],
            fields["from_position"],
            fields["to_position"],
        )
        if fields["key_id"] != entry.key_id:
            raise TrustError("a key_id is not the SHA-256 of its public key")
        return entry

    def range_fault(self, position: int) -> TrustFault | None:
        """Say that the key was not valid at a position, or nothing."""
        if position < self.from_position:
            return TrustFault(
                "KEY_OUT_OF_RANGE",
                f"key {short_id(self.key_id)} is valid from position {self.from_position}, used at {position}",
            )
        if self.to_position is not None and position >= self.to_position:
            return TrustFault(
                "KEY_OUT_OF_RANGE",
                f"key {short_id(self.key_id)} is valid before position {self.to_position}, used at {position}",
            )
        return None

    def scope_fault(self, tenant: str | None, partition: int | None) -> TrustFault | None:
        """Say that the key may not sign for this tenant or partition, or nothing. Unknown is outside every scope."""
        if self.tenants is not None and tenant not in self.tenants:
            return TrustFault("KEY_OUT_OF_SCOPE", f"key {short_id(self.key_id)} may not sign for tenant {tenant!r}")
        if self.partitions is not None and partition not in self.partitions:
            return TrustFault("KEY_OUT_OF_SCOPE", f"key {short_id(self.key_id)} may not sign for partition {partition}")
        return None


@dataclass(frozen=True, slots=True)
class TrustConfig:
    """One version of the trust configuration; its keys are kept in the order of their ids."""

    origin: str
    keys: tuple[KeyEntry, ...]
    version: int = 1
    prev: bytes | None = None
    """Digest of the version before; None for version 1."""
    copy_of: str | None = None
    """The origin of the ledger that this one is a copy of, up to the batch that announces this version (X-200)."""

    def __post_init__(self) -> None:
        if not _is_origin(self.origin):
            raise TrustError(
                f"an origin is one line of 1 to {ORIGIN_BYTES_MAX} bytes without blanks, not {self.origin!r}"
            )
        if type(self.version) is not int or not 1 <= self.version <= VERSIONS_MAX:
            raise TrustError(f"a trust version is an integer from 1 on, not {self.version!r}")
        if (self.prev is None) != (self.version == 1) or not (self.prev is None or _is_digest(self.prev)):
            raise TrustError("every version but the first names the one before by digest")
        if self.copy_of is not None and (
            self.version == 1 or not _is_origin(self.copy_of) or self.copy_of == self.origin
        ):
            raise TrustError("copy_of names the origin of the versions before, which is another one")
        if not 1 <= len(self.keys) <= KEYS_MAX:
            raise TrustError(f"a trust configuration has 1 to {KEYS_MAX} keys, not {len(self.keys)}")
        object.__setattr__(self, "keys", tuple(sorted(self.keys, key=lambda entry: entry.key_id)))
        ids = {entry.key_id for entry in self.keys}
        if len(ids) != len(self.keys):
            raise TrustError("a key stands twice in the trust configuration: one key has one role and one range")
        if not any(entry.role == ROOT for entry in self.keys):
            raise TrustError("a trust configuration without a root key could never be changed again")

    def body(self) -> bytes:
        """Canonical bytes: what is signed, hashed, pinned."""
        fields: dict[str, object] = {
            "kind": KIND,
            "v": FORMAT_VERSION,
            "origin": self.origin,
            "version": self.version,
            "prev": self.prev,
            "keys": [entry.to_map() for entry in self.keys],
        }
        if self.copy_of is not None:
            fields["copy_of"] = self.copy_of
        return encode(fields, bytes_max=RECORD_BYTES_MAX)

    def digest(self) -> bytes:
        """SHA-256 of the body."""
        return sha256(self.body())

    @classmethod
    def parse(cls, body: bytes) -> TrustConfig:
        """Read a body; refuse, with `TrustError`, everything that `body` would not have written."""
        try:
            decoded = decode(body, bytes_max=RECORD_BYTES_MAX)
            names = _COPY_FIELDS if isinstance(decoded, dict) and "copy_of" in decoded else _CONFIG_FIELDS
            fields = _exact(decoded, names, "a trust configuration")
        except NotCanonical as exc:
            raise TrustError(f"the trust configuration is not canonical CBOR: {exc}") from exc
        if fields["kind"] != KIND or type(fields["v"]) is not int or fields["v"] != FORMAT_VERSION:
            raise TrustError(f"not a trust configuration of format {FORMAT_VERSION}")
        if not isinstance(fields["keys"], list):
            raise TrustError("the keys of a trust configuration are a list")
        if "copy_of" in fields and fields["copy_of"] is None:
            raise TrustError("a trust configuration that is not of a copy has no copy_of")
        keys = tuple(map(KeyEntry.from_map, fields["keys"]))
        config = cls(fields["origin"], keys, fields["version"], fields["prev"], fields.get("copy_of"))
        if config.body() != body:
            raise TrustError("the keys of a trust configuration must be in the order of their ids")
        return config


class TrustSignature(NamedTuple):
    """One root key's signature of a configuration."""

    key_id: bytes
    sig: bytes


@dataclass(frozen=True, slots=True)
class SignedTrust:
    """A configuration's bytes with the signatures of root keys; its envelope is the evidence of ``trust_changed``."""

    body: bytes
    sigs: tuple[TrustSignature, ...]

    def envelope(self) -> bytes:
        """Canonical bytes of body and signatures."""
        blocks = [{"key_id": block.key_id, "alg": ALG, "sig": block.sig} for block in self.sigs]
        return encode({"body": self.body, "sigs": blocks}, bytes_max=2 * RECORD_BYTES_MAX)

    def digest(self) -> bytes:
        """Digest of the configuration: what ``trust_changed`` names and, for version 1, what is pinned."""
        return sha256(self.body)

    @classmethod
    def parse(cls, envelope: bytes) -> SignedTrust:
        """Take an envelope apart without judging the signatures."""
        try:
            fields = _exact(
                decode(envelope, bytes_max=2 * RECORD_BYTES_MAX), frozenset({"body", "sigs"}), "signed trust"
            )
        except NotCanonical as exc:
            raise TrustError(f"the signed trust configuration is not canonical CBOR: {exc}") from exc
        blocks = fields["sigs"]
        if not isinstance(fields["body"], bytes) or not isinstance(blocks, list):
            raise TrustError("a signed trust configuration is a body and a list of signatures")
        if not 1 <= len(blocks) <= SIGNATURES_MAX:
            raise TrustError(f"a trust configuration carries 1 to {SIGNATURES_MAX} signatures, not {len(blocks)}")
        return cls(fields["body"], tuple(map(_signature_of, blocks)))


def sign_trust(config: TrustConfig, *root_keys: SigningKey) -> SignedTrust:
    """Sign a version with one root key or several; whether they may is decided by its readers."""
    body = config.body()
    keys = sorted(root_keys, key=lambda key: key.key_id)
    return SignedTrust(body, tuple(TrustSignature(key.key_id, key.sign(TRUST_LABEL + body)) for key in keys))


def _signature_of(value: object) -> TrustSignature:
    fields = _exact(value, _SIGNATURE_FIELDS, "a signature block")
    if fields["alg"] != ALG:
        raise TrustError(f"a signature's algorithm is {ALG}, not {fields['alg']!r}")
    key_id, sig = fields["key_id"], fields["sig"]
    if not _is_digest(key_id) or not isinstance(sig, bytes) or len(sig) != SIGNATURE_BYTES:
        raise TrustError("a signature block holds a 32-byte key_id and a 64-byte sig")
    return TrustSignature(key_id, sig)


def _exact(value: object, names: frozenset[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != names:
        raise TrustError(f"{what} is a map of exactly {', '.join(sorted(names))}")
    return value


def _is_position(value: object) -> bool:
    return type(value) is int and 0 <= value <= POSITION_MAX


def _is_digest(value: object) -> bool:
    return type(value) is bytes and len(value) == 32


def _is_origin(value: object) -> bool:
    if type(value) is not str or not value.isprintable() or any(character.isspace() for character in value):
        return False
    return 1 <= len(value.encode("utf-8", "replace")) <= ORIGIN_BYTES_MAX and "+" not in value


def _is_scope(values: tuple[Any, ...], kind: type) -> bool:
    """A scope is a sorted list without repeats: one meaning, one spelling."""
    if not 1 <= len(values) <= SCOPE_MAX or any(type(value) is not kind for value in values):
        return False
    if kind is int and not all(0 <= value <= POSITION_MAX for value in values):
        return False
    return list(values) == sorted(set(values))


def manifest_origin_fault(named: str | None, origin: str) -> TrustFault | None:
    """Say that a manifest was signed for another ledger than this one, or nothing. One that names none may be of any."""
    if named is None or named == origin:
        return None
    return TrustFault(
        "MANIFEST_ORIGIN_WRONG", f"the manifest was signed for the ledger {named!r}, and this is {origin!r}"
    )


def short_id(key_id: bytes) -> str:
    """A key id as messages show it."""
    return key_id.hex()[:16]
