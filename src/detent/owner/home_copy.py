"""Give a copied home an identity of its own: another name and other keys from the next batch on (X-200).

The announcement is a version of the trust configuration that names the original (``copy_of``). The original's root key, which
came along with the copy, signs it; its transition key signs the one batch that carries it, under the new name. After that nothing
of the original's signs here, and nothing here carries the original's name: two copies never meet. The root that others pin is
still the original's, so the common part verifies under the old keys and what follows under the new ones.

As in `rotate`, keys are durable before the ledger names them, and a change that was cut short between two partitions is carried
through by the next call.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from detent.canon.late import dataclass
from detent.errors import InvalidInput
from detent.ledger import KeyEntry, SignedTrust, Trust, TrustConfig, sign_trust
from detent.ledger.trust_config import WITNESS
from detent.owner.home import ORIGIN_BYTES, Home
from detent.owner.home_locations import Place, PlaceKeeper, binding_heads, original_of
from detent.owner.kept_heads import KeptHeads, state_directory
from detent.owner.key_files import ROLES
from detent.owner.key_rotation import NEVER, missed_versions
from detent.owner.lock import held_alone
from detent.owner.wiring import Parts, begin_owner, check_kept_head, load_trust, signing_key
from detent.store.api import Store


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
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> Adopted:
    """Give a copy a name and keys of its own. No other process may own the home meanwhile.

    Refuses a home that is not known to be a copy, unless ``force`` says that it is one of a home on another machine or of
    another user; such a home must continue what is known of it here.
    """
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
    own = [KeyEntry(home.keyring.add(role, random(32)).public_key, role, from_position=begins) for role in ROLES]
    config = TrustConfig(
        f"detent/{random(ORIGIN_BYTES).hex()}",
        (*before, *own),
        version=last.config.version + 1,
        prev=last.digest,
        copy_of=trust.origin,
    )
    return sign_trust(config, root_key)
