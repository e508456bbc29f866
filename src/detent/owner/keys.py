"""The keys of a home: which are trusted, how one is rotated, and new ones for a copied home.

Key rotation: a new key takes over a role from the next batch on, and every batch before keeps the key it had.

The new version of the trust configuration is announced in one batch that the old key still signs; what comes after it is
signed by the new one. So the ranges are exact: with `size` batches on the ledger the announcement is batch `size`, the old
key ends and the new one begins at `size + 1`. With several partitions the shortest one gives the number: in each of them
the version before decides up to its own announcement, and the new version about everything later.

The order of steps is what makes a crash harmless: the new key's file is durable before the ledger names it, and a key that
was never named is an unused file.

Which keys a ledger trusts for what, and which private ones lie in this home.

Give a copied home an identity of its own: another name and other keys from the next batch on (X-200).

The announcement is a version of the trust configuration that names the original (``copy_of``). The original's root key, which
came along with the copy, signs it; its transition key signs the one batch that carries it, under the new name. After that nothing
of the original's signs here, and nothing here carries the original's name: two copies never meet. The root that others pin is
still the original's, so the common part verifies under the old keys and what follows under the new ones.

As in `rotate`, keys are durable before the ledger names them, and a change that was cut short between two partitions is carried
through by the next call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from detent.canon import digest_text
from detent.canon.late import dataclass
from detent.errors import HomeError, InvalidInput, TrustError
from detent.ledger import KeyEntry, SignedTrust, Trust, TrustConfig, sign_trust
from detent.ledger.trust_config import ENROLL, WITNESS
from detent.owner.enrolled import missed_versions
from detent.owner.home import ORIGIN_BYTES, Home
from detent.owner.home_permissions import ROLES
from detent.owner.joining import JoinRequest
from detent.owner.ledgers import held_ledger
from detent.owner.lock import held_alone
from detent.owner.state_directory import (
    KeptHeads,
    Place,
    PlaceKeeper,
    binding_heads,
    original_of,
    settle_in,
    state_directory,
)
from detent.owner.wiring import Parts, begin_owner, check_kept_head, load_trust, signing_key
from detent.store.api import Store, StoreReader

_T = TypeVar("_T")

NEVER = 2**62
"""Records between two checkpoints of an owner that must write its one batch and nothing else."""


@dataclass(frozen=True, slots=True)
class Rotated:
    """A rotation that is on the ledger."""

    role: str
    old_key_ids: tuple[bytes, ...]
    new_key_id: bytes
    version: int
    """The trust configuration's version that says so."""
    from_position: int
    """The first batch that the new key may sign."""


def rotate(
    home: Home,
    role: str,
    *,
    environment: Mapping[str, str],
    parts: Parts | None = None,
    random: Callable[[int], bytes] = os.urandom,
) -> Rotated:
    """Make a new key for a role and announce it. No other process may own the home meanwhile.

    Needs the private keys of root, of the owner and of the log as they stand. Refuses a home that another process owns,
    a role without keys of its own here, and a ledger that is older than a tree head kept outside it.
    """
    if role not in (*ROLES, ENROLL):
        raise InvalidInput(f"there is no role {role!r} here", hint=f"roles: {', '.join((*ROLES, ENROLL))}")
    # An owner that still holds the old keys may not write a second batch: it would be signed by a key whose time is over. So it
    # makes no checkpoint either.
    chosen = replace(parts or Parts(), checkpoint_records=NEVER)
    with (
        held_alone(home.lock, "no process may work on the home while keys are rotated: stop that one first"),
        held_ledger(home.ledger, home.socket),
        closing(chosen.open_store(home.ledger)) as store,
    ):

        def rotated(trust: Trust, position: int) -> tuple[TrustConfig, Rotated]:
            held = partial(home.keyring.holds, role)
            key = home.keyring.add(role, random(32))
            config, old_key_ids = rotated_config(
                trust, role, KeyEntry(key.public_key, role, from_position=position), held
            )
            return config, Rotated(role, old_key_ids, key.key_id, config.version, position)

        return _announce(home, store, chosen, environment, rotated)


def rotated_config(
    trust: Trust, role: str, new: KeyEntry, is_here: Callable[[bytes], bool] = lambda _: True
) -> tuple[TrustConfig, tuple[bytes, ...]]:
    """The next version of a trust configuration, in which a new key follows on the role's present ones of this home.

    Also says which keys it follows. A witness, a key of another server of the ledger, or an entry whose time is over already stays as it is;
    if none of the role's keys is here, it follows on all of them. A home that never served has no key that certifies workers: its first one
    follows on none.
    """
    present = tuple(entry for entry in trust.config.keys if entry.role == role and entry.to_position is None)
    ended = tuple(entry for entry in present if is_here(entry.key_id)) or present
    if not ended and role != ENROLL:
        raise TrustError(f"the trust configuration has no {role} key to rotate")
    kept = [entry for entry in trust.config.keys if entry not in ended]
    closed = [replace(entry, to_position=new.from_position) for entry in ended]
    last = trust.versions[-1]
    config = TrustConfig(trust.origin, (*kept, *closed, new), version=last.config.version + 1, prev=last.digest)
    return config, tuple(entry.key_id for entry in ended)


@dataclass(frozen=True, slots=True)
class Admitted:
    """Keys of another server that are on the ledger."""

    host: str
    key_ids: tuple[bytes, ...]
    version: int
    from_position: int


def admit(home: Home, request: JoinRequest, *, environment: Mapping[str, str], parts: Parts | None = None) -> Admitted:
    """Have the ledger trust the keys of another server, which made them itself. No process may own the ledger meanwhile.

    Needs the root key. Refuses the request of a server of another ledger, and keys that the ledger knows already.
    """
    chosen = replace(parts or Parts(), checkpoint_records=NEVER)

    def admitted(trust: Trust, position: int) -> tuple[TrustConfig, Admitted]:
        if request.origin != trust.origin:
            raise InvalidInput(f"the request is for the ledger {request.origin}, and this one is {trust.origin}")
        entries = tuple(KeyEntry(public, role, from_position=position) for role, public in request.keys.items())
        known = [entry for entry in entries if versions_of(trust, entry.key_id)]
        if known:
            raise InvalidInput(
                f"the {known[0].role} key {known[0].key_id.hex()[:16]} of {request.host} is known to the ledger already",
                hint="a server is admitted once; `detent keys` lists its keys",
            )
        last = trust.versions[-1]
        keys, version = (*last.config.keys, *entries), last.config.version + 1
        config = TrustConfig(trust.origin, keys, version=version, prev=last.digest)
        return config, Admitted(request.host, tuple(entry.key_id for entry in entries), version, position)

    with (
        held_alone(home.lock, "no process may work on the home while a server is admitted: stop that one first"),
        held_ledger(home.ledger, home.socket),
        closing(chosen.open_store(home.ledger)) as store,
    ):
        return _announce(home, store, chosen, environment, admitted)


def _announce(
    home: Home,
    store: Store,
    parts: Parts,
    environment: Mapping[str, str],
    change: Callable[[Trust, int], tuple[TrustConfig, _T]],
) -> _T:
    """Announce a new version of the trust configuration in every partition: what ``change`` makes of the newest, from a position on."""
    settings = home.settings()
    trusts = [load_trust(store, settings, partition) for partition in range(store.partitions)]
    newest = max(trusts, key=lambda trust: trust.config.version)
    sizes = [store.head(partition).size for partition in range(store.partitions)]
    settle_in(home, newest.origin, environment)
    keeper = KeptHeads(state_directory(environment), newest.origin)
    for partition, kept in binding_heads(home, newest, environment):
        check_kept_head(store, kept, partition)  # Before a key is made that would never be used.
    root_key = signing_key(home, newest, "root", max(sizes))
    config, changed = change(newest, min(sizes) + 1)
    signed = sign_trust(config, root_key)
    for partition, trust in enumerate(trusts):
        announce = [*missed_versions(store, newest, trust), signed]
        owner = begin_owner(home, store, settings, trust, keeper, parts, partition, announce=announce)
        owner.close()
        if owner.failure is not None:
            raise owner.failure
    return changed


ACTIVE, ENDED, LATER = "active", "ended", "later"
HERE, MISSING, UNUSABLE = "here", "missing", "unusable"
ROLE_WORDS = {
    "root": "signs who may sign",
    "manifest": "signs what is submitted",
    "transition": "signs what the owner decides",
    "result": "signs what an executor reports",
    "log": "signs tree heads",
    "witness": "cosigns tree heads",
    ENROLL: "certifies workers on other machines",
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


@dataclass(frozen=True, slots=True)
class Adopted:
    """A copy that has an identity of its own."""

    origin: str
    copy_of: str
    original: Path | None
    """Where the original is; None when it is not known here."""
    batches: int
    """Batches that it shares with the original, in its first partition."""
    version: int


def adopt(
    home: Home,
    *,
    environment: Mapping[str, str],
    force: bool = False,
    parts: Parts | None = None,
    random: Callable[[int], bytes] = os.urandom,
) -> Adopted:
    """Give a copy a name and keys of its own. No other process may own the home meanwhile.

    Refuses a home that is not known to be a copy, unless ``force`` says that it is one of a home on another machine or of
    another user; such a home must continue what is known of it here.
    """
    if not isinstance(home.ledger, Path):
        raise InvalidInput(
            f"the ledger of {home.path} is in {home.ledger}: a copy of the directory is another way to the same ledger",
            hint="`detent copy FROM TO` copies the ledger itself",
        )
    # As in a rotation, an owner that still holds the old keys writes its one batch and nothing else.
    chosen = replace(parts or Parts(), checkpoint_records=NEVER)
    with (
        held_alone(home.lock, "no process may work on the copy while it gets its identity: stop that one first"),
        closing(chosen.open_store(home.ledger)) as store,
    ):
        return _adopt(home, store, chosen, environment, force=force, random=random)


def _adopt(
    home: Home,
    store: Store,
    parts: Parts,
    environment: Mapping[str, str],
    *,
    force: bool,
    random: Callable[[int], bytes],
) -> Adopted:
    settings = home.settings()
    trusts = [load_trust(store, settings, partition) for partition in range(store.partitions)]
    newest = max(trusts, key=lambda trust: trust.config.version)
    original = original_of(home, newest.origin, environment)
    signed: list[SignedTrust] = []
    if all(trust.config.version == newest.config.version for trust in trusts):
        if original is None:
            _insist(home, store, newest, environment, force=force)
        signed = [_new_identity(home, store, newest, random)]
    config = TrustConfig.parse(signed[0].body) if signed else newest.config
    keeper = KeptHeads(state_directory(environment), config.origin)
    for partition, trust in enumerate(trusts):
        announce = [*missed_versions(store, newest, trust), *signed]
        if announce:
            owner = begin_owner(home, store, settings, trust, keeper, parts, partition, announce=announce)
            owner.close()
            if owner.failure is not None:
                raise owner.failure
    PlaceKeeper(environment, config.origin).write(Place.of(home))
    shared = load_trust(store, settings).versions[-1].position
    return Adopted(config.origin, config.copy_of or "", original, shared, config.version)


def _insist(home: Home, store: Store, trust: Trust, environment: Mapping[str, str], *, force: bool) -> None:
    """Refuse a home that is not known to be a copy; one that is said to be must continue what is known of it."""
    if not force:
        raise InvalidInput(
            f"the home {home.path} is not known to be a copy of another one",
            hint="if it was copied from another machine or another user, `detent copy --force`",
        )
    for partition, kept in binding_heads(home, trust, environment):
        check_kept_head(store, kept, partition)


def _new_identity(home: Home, store: Store, trust: Trust, random: Callable[[int], bytes]) -> SignedTrust:
    """The version of the trust configuration with which a copy takes another name and other keys."""
    sizes = [store.head(partition).size for partition in range(store.partitions)]
    root_key = signing_key(home, trust, "root", max(sizes))
    begins, last = min(sizes) + 1, trust.versions[-1]
    before = [
        entry if entry.role == WITNESS or entry.to_position is not None else replace(entry, to_position=begins)
        for entry in trust.config.keys
    ]
    serves = any(entry.role == ENROLL and entry.to_position is None for entry in trust.config.keys)
    roles = (*ROLES, ENROLL) if serves else ROLES
    own = [KeyEntry(home.keyring.add(role, random(32)).public_key, role, from_position=begins) for role in roles]
    config = TrustConfig(
        f"detent/{random(ORIGIN_BYTES).hex()}",
        (*before, *own),
        version=last.config.version + 1,
        prev=last.digest,
        copy_of=trust.origin,
    )
    return sign_trust(config, root_key)
