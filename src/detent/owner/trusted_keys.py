"""Which keys a ledger trusts for what, and which private ones lie in this home."""

from __future__ import annotations

from collections.abc import Sequence

from detent.canon import digest_text
from detent.canon.late import dataclass
from detent.errors import HomeError
from detent.ledger import KeyEntry, Trust
from detent.owner.home import Home
from detent.owner.wiring import load_trust
from detent.store.api import StoreReader

ACTIVE, ENDED, LATER = "active", "ended", "later"
HERE, MISSING, UNUSABLE = "here", "missing", "unusable"
ROLE_WORDS = {
    "root": "signs who may sign",
    "manifest": "signs what is submitted",
    "transition": "signs what the owner decides",
    "result": "signs what an executor reports",
    "log": "signs tree heads",
    "witness": "cosigns tree heads",
}


@dataclass(frozen=True, slots=True)
class KeyView:
    """One key of the trust configuration, and its private half if it is here."""

    entry: KeyEntry
    state: str
    private: str
    why: str | None
    """What is wrong with a private key that cannot be used."""

    def to_map(self) -> dict[str, object]:
        """One object of `detent keys -o json`."""
        return {
            "key_id": self.entry.key_id.hex(),
            "role": self.entry.role,
            "state": self.state,
            "from_position": self.entry.from_position,
            "to_position": self.entry.to_position,
            "tenants": None if self.entry.tenants is None else list(self.entry.tenants),
            "partitions": None if self.entry.partitions is None else list(self.entry.partitions),
            "public_key": self.entry.public_key.hex(),
            "private_key": self.private,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class KeysView:
    """The keys of a home."""

    origin: str
    root: bytes
    version: int
    size: int
    """Batches on the ledger: the position at which keys are active or not."""
    keys: Sequence[KeyView]
    unused: Sequence[tuple[str, str]]
    """(role, beginning of the key id) of key files that the trust configuration does not know."""

    def to_map(self) -> dict[str, object]:
        """The document of `detent keys -o json`."""
        return {
            "origin": self.origin,
            "root": digest_text(self.root),
            "trust_version": self.version,
            "size": self.size,
            "keys": [key.to_map() for key in self.keys],
            "unused_files": [{"role": role, "key_id_begins": short} for role, short in self.unused],
        }


def keys_view(home: Home, reader: StoreReader) -> KeysView:
    """All keys of the newest trust version, those in force first within each role."""
    trust = load_trust(reader, home.settings())
    size = max(reader.head(partition).size for partition in range(reader.partitions))
    views = sorted(
        (_view(home, entry, size) for entry in trust.config.keys),
        key=lambda view: (list(ROLE_WORDS).index(view.entry.role), -view.entry.from_position),
    )
    known = {(view.entry.role, view.entry.key_id.hex()[:16]) for view in views}
    unused = [file for file in home.keyring.stored() if file not in known]
    return KeysView(trust.origin, trust.root_digest, trust.config.version, size, views, unused)


def versions_of(trust: Trust, key_id: bytes) -> list[int]:
    """The trust versions that know a key."""
    return [version.config.version for version in trust.versions if key_id in version.by_id]


def _view(home: Home, entry: KeyEntry, size: int) -> KeyView:
    state = ACTIVE
    if size < entry.from_position:
        state = LATER
    elif entry.to_position is not None and size >= entry.to_position:
        state = ENDED
    try:
        home.keyring.find(entry.role, entry.key_id)
    except HomeError as exc:
        if home.keyring.holds(entry.role, entry.key_id):
            return KeyView(entry, state, UNUSABLE, str(exc))
        return KeyView(entry, state, MISSING, None)
    return KeyView(entry, state, HERE, None)
