"""Who may sign what: the verified chain of trust versions of one partition, and the questions it answers.

Version 1 is signed by a root key of its own; its digest is what a verifier pins. Every later version is signed by a root
key that the version before it knows, names that version by digest, and is announced by a ``trust_changed`` record. A
version announced in batch *n* decides about batches after *n*: the announcing batch is still signed under the version
before. So rotation never voids the past, and no key can announce itself.

A version may also say that the ledger is a copy of another one (``copy_of``) and goes by an origin and keys of its own from its
announcing batch on. That batch already carries the new origin, so a copy writes nothing in the name of its original.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from detent.canon import digest_text, verify
from detent.canon.late import NamedTuple, dataclass
from detent.canon.show import a_or_an
from detent.errors import TrustError
from detent.ledger.trust_config import (
    ROOT,
    TRUST_LABEL,
    WITNESS,
    KeyEntry,
    SignedTrust,
    TrustConfig,
    TrustFault,
    short_id,
)


class Version(NamedTuple):
    """A verified version and the batch that announced it."""

    position: int
    config: TrustConfig
    digest: bytes
    by_id: dict[bytes, KeyEntry]


@dataclass(frozen=True, slots=True)
class Trust:
    """A verified chain of versions in one partition. Immutable: `extend` gives a longer one."""

    versions: tuple[Version, ...]

    @classmethod
    def start(cls, envelope: bytes, position: int = 0) -> Trust:
        """Begin with version 1, which must be signed by a root key of its own. Pinning its digest is up to the caller."""
        signed = SignedTrust.parse(envelope)
        config = TrustConfig.parse(signed.body)
        if config.version != 1:
            raise TrustError(f"a chain of trust starts with version 1, not {config.version}")
        version = _version(position, config, signed)
        _check_signatures(signed, version, position)
        return cls((version,))

    @classmethod
    def build(cls, announced: Iterable[tuple[int, bytes]]) -> Trust:
        """The chain from (batch number, envelope) of all ``trust_changed`` records of a partition, oldest first."""
        trust: Trust | None = None
        for position, envelope in announced:
            trust = cls.start(envelope, position) if trust is None else trust.extend(envelope, position)
        if trust is None:
            raise TrustError("the ledger announces no trust configuration")
        return trust

    def extend(self, envelope: bytes, position: int) -> Trust:
        """The chain with the version that a ``trust_changed`` record in batch ``position`` announces.

        Refuses, with `TrustError`: a version that does not follow, another predecessor or origin, a key whose role has
        changed, and any signature that is not a good one of a root key of the version before.
        """
        last = self.versions[-1]
        signed = SignedTrust.parse(envelope)
        config = TrustConfig.parse(signed.body)
        if config.version != last.config.version + 1:
            raise TrustError(f"trust version {config.version} does not follow version {last.config.version}")
        if config.prev != last.digest:
            raise TrustError(f"trust version {config.version} names another version {last.config.version}")
        if config.copy_of is None and config.origin != last.config.origin:
            raise TrustError(f"trust version {config.version} is of {config.origin!r}, not of {last.config.origin!r}")
        if config.copy_of is not None:
            self._check_copy(config)
        if position < last.position:
            raise TrustError(f"trust version {config.version} is announced before version {last.config.version}")
        for entry in config.keys:
            if (before := self._known(entry.key_id)) is not None and before.role != entry.role:
                raise TrustError(f"key {short_id(entry.key_id)} changes its role from {before.role} to {entry.role}")
        _check_signatures(signed, last, position)
        return Trust((*self.versions, _version(position, config, signed)))

    @property
    def origin(self) -> str:
        """The ledger this trust is about, by the name that it goes by now."""
        return self.versions[-1].config.origin

    @property
    def copies(self) -> Iterator[Version]:
        """The versions with which it took a name of its own as a copy, oldest first."""
        return (version for version in self.versions if version.config.copy_of is not None)

    def origin_of_batch(self, batch_no: int) -> str:
        """The name that a batch carries: the one announced in it, or before it."""
        return self.at(batch_no + 1).config.origin

    def origin_of_head(self, size: int) -> str:
        """The name that a tree head over so many batches carries: that of the last of them."""
        return self.at(size).config.origin

    @property
    def root_digest(self) -> bytes:
        """Digest of version 1: the root to pin."""
        return self.versions[0].digest

    @property
    def root_text(self) -> str:
        """The root as it is written and passed on."""
        return digest_text(self.root_digest)

    @property
    def config(self) -> TrustConfig:
        """The newest version."""
        return self.versions[-1].config

    def at(self, position: int) -> Version:
        """The version that decides about a batch: the newest announced before it, or version 1."""
        for version in reversed(self.versions):
            if version.position < position:
                return version
        return self.versions[0]

    def entry(self, key_id: bytes, role: str, position: int) -> KeyEntry | TrustFault:
        """The key of this id if it has the role and was valid at the position, with any scope."""
        entry = self.at(position).by_id.get(key_id)
        if entry is None:
            return TrustFault("KEY_UNKNOWN", f"key {short_id(key_id)} is not in the trust configuration")
        if entry.role != role:
            return TrustFault(
                "KEY_WRONG_ROLE", f"key {short_id(key_id)} is {a_or_an(entry.role)} key, used as {a_or_an(role)} key"
            )
        return entry.range_fault(position) or entry

    def find(
        self, key_id: bytes, role: str, position: int, tenant: str | None = None, partition: int | None = None
    ) -> bytes | TrustFault:
        """The public key to check a signature with, or why this key may not sign that (role, range, scope)."""
        entry = self.entry(key_id, role, position)
        if isinstance(entry, TrustFault):
            return entry
        return entry.scope_fault(tenant, partition) or entry.public_key

    def keys(self, role: str, position: int, partition: int | None = None) -> Iterator[KeyEntry]:
        """All keys of a role that are valid at a position, in a partition."""
        for entry in self.at(position).config.keys:
            in_scope = entry.partitions is None or partition in entry.partitions
            if entry.role == role and in_scope and not entry.range_fault(position):
                yield entry

    def _check_copy(self, config: TrustConfig) -> None:
        """A copy has a name that nothing before had, and no key of the original's signs for it: only witnesses are shared."""
        last = self.versions[-1].config
        if config.copy_of != last.origin:
            raise TrustError(f"trust version {config.version} is a copy of {config.copy_of!r}, not of {last.origin!r}")
        if config.origin in {version.config.origin for version in self.versions}:
            raise TrustError(f"trust version {config.version} takes the name {config.origin!r} a second time")
        for entry in config.keys:
            if entry.role != WITNESS and entry.to_position is None and self._known(entry.key_id) is not None:
                raise TrustError(f"key {short_id(entry.key_id)} of the original is still valid in its copy")

    def _known(self, key_id: bytes) -> KeyEntry | None:
        for version in self.versions:
            if (entry := version.by_id.get(key_id)) is not None:
                return entry
        return None


def _version(position: int, config: TrustConfig, signed: SignedTrust) -> Version:
    return Version(position, config, signed.digest(), {entry.key_id: entry for entry in config.keys})


def _check_signatures(signed: SignedTrust, signer: Version, position: int) -> None:
    """Every signature must be a good one of a root key valid there: one that is not spoils the whole."""
    for block in signed.sigs:
        entry = signer.by_id.get(block.key_id)
        if entry is None or entry.role != ROOT:
            raise TrustError(f"key {short_id(block.key_id)} is not a root key of trust version {signer.config.version}")
        if fault := entry.range_fault(position):
            raise TrustError(f"the trust configuration's signature: {fault.message}")
        if not verify(entry.public_key, TRUST_LABEL + signed.body, block.sig):
            raise TrustError(f"the signature of root key {short_id(block.key_id)} does not verify")
    if len({block.key_id for block in signed.sigs}) != len(signed.sigs):
        raise TrustError("a root key signs a trust configuration once")
