"""Key rotation: a new key takes over a role from the next batch on, and every batch before keeps the key it had.

The new version of the trust configuration is announced in one batch that the old key still signs; what comes after it is
signed by the new one. So the ranges are exact: with `size` batches on the ledger the announcement is batch `size`, the old
key ends and the new one begins at `size + 1`. With several partitions the shortest one gives the number: in each of them
the version before decides up to its own announcement, and the new version about everything later.

The order of steps is what makes a crash harmless: the new key's file is durable before the ledger names it, and a key that
was never named is an unused file.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

from detent.canon.late import dataclass
from detent.errors import InvalidInput, TrustError
from detent.ledger import KeyEntry, SignedTrust, Trust, TrustConfig, sign_trust
from detent.owner.home import Home
from detent.owner.home_locations import binding_heads, settle_in
from detent.owner.kept_heads import KeptHeads, state_directory
from detent.owner.key_files import ROLES
from detent.owner.lock import held_alone
from detent.owner.wiring import Parts, begin_owner, check_kept_head, load_trust, signing_key
from detent.store.api import Store

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
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> Rotated:
    """Make a new key for a role and announce it. No other process may own the home meanwhile.

    Needs the private keys of root, of the owner and of the log as they stand. Refuses a home that another process owns,
    a role without keys of its own here, and a ledger that is older than a tree head kept outside it.
    """
    if role not in ROLES:
        raise InvalidInput(f"there is no role {role!r} here", hint=f"roles: {', '.join(ROLES)}")
    # An owner that still holds the old keys may not write a second batch: it would be signed by a key whose time is over. So it
    # makes no checkpoint either.
    chosen = replace(parts or Parts(), checkpoint_records=NEVER)
    with (
        held_alone(home.lock, "no process may work on the home while keys are rotated: stop that one first"),
        closing(chosen.open_store(home.ledger)) as store,
    ):
        return _rotate(home, store, role, chosen, environment, random)


def rotated_config(trust: Trust, role: str, new: KeyEntry) -> tuple[TrustConfig, tuple[bytes, ...]]:
    """The next version of a trust configuration, in which a new key follows on the role's present ones.

    Also says which keys it follows. A witness or an entry whose time is over already stays as it is.
    """
    ended = tuple(entry for entry in trust.config.keys if entry.role == role and entry.to_position is None)
    if not ended:
        raise TrustError(f"the trust configuration has no {role} key to rotate")
    kept = [entry for entry in trust.config.keys if entry not in ended]
    closed = [replace(entry, to_position=new.from_position) for entry in ended]
    last = trust.versions[-1]
    config = TrustConfig(trust.origin, (*kept, *closed, new), version=last.config.version + 1, prev=last.digest)
    return config, tuple(entry.key_id for entry in ended)


def _rotate(
    home: Home,
    store: Store,
    role: str,
    parts: Parts,
    environment: Mapping[str, str],
    random: Callable[[int], bytes],
) -> Rotated:
    settings = home.settings()
    trusts = [load_trust(store, settings, partition) for partition in range(store.partitions)]
    newest = max(trusts, key=lambda trust: trust.config.version)
    sizes = [store.head(partition).size for partition in range(store.partitions)]
    settle_in(home, newest.origin, environment)
    keeper = KeptHeads(state_directory(environment), newest.origin)
    for partition, kept in binding_heads(home, newest, environment):
        check_kept_head(store, kept, partition)  # Before a key is made that would never be used.
    root_key = signing_key(home, newest, "root", max(sizes))
    key = home.keyring.add(role, random(32))
    entry = KeyEntry(key.public_key, role, from_position=min(sizes) + 1)
    config, old_key_ids = rotated_config(newest, role, entry)
    signed = sign_trust(config, root_key)
    for partition, trust in enumerate(trusts):
        announce = [*missed_versions(store, newest, trust), signed]
        owner = begin_owner(home, store, settings, trust, keeper, parts, partition, announce=announce)
        owner.close()
        if owner.failure is not None:
            raise owner.failure
    return Rotated(role, old_key_ids, key.key_id, config.version, entry.from_position)


def missed_versions(store: Store, newest: Trust, trust: Trust) -> list[SignedTrust]:
    """Versions that other partitions have announced and this one has not: a rotation was cut short between them."""
    known = trust.config.version
    if known == newest.config.version:
        return []
    envelopes: dict[int, SignedTrust] = {}
    for partition in range(store.partitions):
        for row in store.records_of_kind(partition, "trust_changed"):
            signed = SignedTrust.parse(row.evidence or b"")
            envelopes[TrustConfig.parse(signed.body).version] = signed
    return [envelopes[version] for version in range(known + 1, newest.config.version + 1)]
