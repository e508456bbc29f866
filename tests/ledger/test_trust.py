"""The trust configuration: what it refuses, how versions follow one another, whom it lets sign what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.canon import decode, encode, sha256
from detent.errors import TrustError
from detent.ledger import KeyEntry, SignedTrust, Trust, TrustConfig, TrustFault, sign_trust
from detent.ledger.trust_config import TRUST_LABEL
from tests.ledger.build import ORIGIN, ROLES, key

ROOT, OTHER_ROOT = key("root"), key("other root")


def entries(**changes: Any) -> tuple[KeyEntry, ...]:
    return tuple(KeyEntry(key(role).public_key, role, **(changes if role == "manifest" else {})) for role in ROLES)


def first() -> TrustConfig:
    return TrustConfig(ORIGIN, entries())


def start() -> Trust:
    return Trust.start(sign_trust(first(), ROOT).envelope())


def second(trust: Trust, *more: KeyEntry, **changes: Any) -> TrustConfig:
    config = TrustConfig(ORIGIN, (*trust.config.keys, *more), trust.config.version + 1, trust.versions[-1].digest)
    return replace(config, **changes)


def edited(signed: SignedTrust, **changes: Any) -> bytes:
    """An envelope whose body was changed and signed again by the root key: what remains is the configuration's own fault."""
    fields = decode(signed.body) | changes
    body = encode(fields)
    block = {"key_id": ROOT.key_id, "alg": "Ed25519", "sig": ROOT.sign(TRUST_LABEL + body)}
    return encode({"body": body, "sigs": [block]})


def test_the_root_to_pin_is_the_digest_of_the_first_body() -> None:
    """X-046, X-178"""
    signed = sign_trust(first(), ROOT)
    trust = Trust.start(signed.envelope())
    assert trust.root_digest == sha256(signed.body)
    assert trust.root_text == "sha256:" + sha256(signed.body).hex()


def test_signing_twice_gives_the_same_bytes() -> None:
    """X-046"""
    assert sign_trust(first(), ROOT).envelope() == sign_trust(first(), ROOT).envelope()


def test_a_configuration_reads_back_as_it_was_written_whatever_the_order_of_its_keys() -> None:
    config = TrustConfig(ORIGIN, tuple(reversed(entries(tenants=("acme", "other")))))
    assert TrustConfig.parse(config.body()) == config
    assert config.body() == TrustConfig(ORIGIN, entries(tenants=("acme", "other"))).body()


def test_keys_out_of_order_are_refused() -> None:
    signed = sign_trust(first(), ROOT)
    with pytest.raises(TrustError, match="order of their ids"):
        Trust.start(edited(signed, keys=list(reversed(decode(signed.body)["keys"]))))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "trusts"}, "not a trust configuration"),
        ({"v": 2}, "not a trust configuration"),
        ({"v": True}, "not a trust configuration"),
        ({"version": 0}, "version is an integer"),
        ({"version": 2}, "names the one before"),
        ({"prev": bytes(32)}, "names the one before"),
        ({"prev": b"short"}, "names the one before"),
        ({"origin": ""}, "an origin is"),
        ({"origin": "two words"}, "an origin is"),
        ({"origin": 7}, "an origin is"),
        ({"keys": []}, "has 1 to 256 keys"),
        ({"keys": {}}, "are a list"),
        ({"keys": [7]}, "a map of exactly"),
        ({"more": 1}, "a map of exactly"),
    ],
)
def test_a_malformed_configuration_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TrustError, match=message):
        Trust.start(edited(sign_trust(first(), ROOT), **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alg": "none"}, "algorithm is Ed25519"),
        ({"alg": "RSA"}, "algorithm is Ed25519"),
        ({"key_id": bytes(32)}, "not the SHA-256"),
        ({"roles": []}, "exactly one role"),
        ({"roles": ["manifest", "transition"]}, "exactly one role"),
        ({"roles": ["owner"]}, "role is one of"),
        ({"roles": [["root"]]}, "exactly one role"),
        ({"public_key": bytes(32)}, "canonical form"),
        ({"public_key": b"short"}, "32 bytes"),
        ({"public_key": bytes([1]) + bytes(31)}, "canonical form"),
        ({"from_position": -1}, "batch number"),
        ({"from_position": "0"}, "batch number"),
        ({"from_position": 2**63}, "batch number"),
        ({"from_position": 5, "to_position": 5}, "comes after"),
        ({"to_position": True}, "comes after"),
        ({"tenants": []}, "sorted list of names"),
        ({"tenants": ["b", "a"]}, "sorted list of names"),
        ({"tenants": ["a", "a"]}, "sorted list of names"),
        ({"tenants": [1]}, "sorted list of names"),
        ({"tenants": "acme"}, "list or null"),
        ({"partitions": [0, 0]}, "sorted list of partition"),
        ({"partitions": [-1]}, "sorted list of partition"),
        ({"partitions": [True]}, "sorted list of partition"),
        ({"critical": 1}, "a map of exactly"),
    ],
)
def test_a_malformed_key_is_refused(changes: dict[str, Any], message: str) -> None:
    """X-046: small-order and non-canonical points, other algorithms, unknown fields"""
    signed = sign_trust(first(), ROOT)
    keys = decode(signed.body)["keys"]
    for entry in keys:
        if entry["roles"] == ["manifest"]:
            entry.update(changes)
    with pytest.raises(TrustError, match=message):
        Trust.start(edited(signed, keys=keys))


def test_only_keys_that_sign_for_tenants_may_be_limited_to_tenants_and_root_keys_to_nothing() -> None:
    with pytest.raises(TrustError, match="manifest and result"):
        KeyEntry(key("log").public_key, "log", tenants=("acme",))
    with pytest.raises(TrustError, match="root keys have none"):
        KeyEntry(ROOT.public_key, "root", partitions=(0,))


def test_a_key_stands_once_in_a_configuration() -> None:
    with pytest.raises(TrustError, match="stands twice"):
        TrustConfig(ORIGIN, (*entries(), KeyEntry(ROOT.public_key, "log")))


def test_a_configuration_without_a_root_key_is_refused() -> None:
    with pytest.raises(TrustError, match="never be changed"):
        TrustConfig(ORIGIN, tuple(entry for entry in entries() if entry.role != "root"))


def test_a_configuration_larger_than_a_record_is_refused() -> None:
    many = [
        KeyEntry(key(f"manifest {n}").public_key, "manifest", tuple(f"tenant-{k:0150d}" for k in range(4)))
        for n in range(200)
    ]
    with pytest.raises(Exception, match="are allowed"):
        TrustConfig(ORIGIN, (*entries(), *many)).body()


def test_the_first_version_is_signed_by_a_root_key_of_its_own() -> None:
    with pytest.raises(TrustError, match="is not a root key"):
        Trust.start(sign_trust(first(), OTHER_ROOT).envelope())
    with pytest.raises(TrustError, match="is not a root key"):
        Trust.start(sign_trust(first(), key("transition")).envelope())


def test_a_signature_of_other_bytes_is_refused() -> None:
    signed = sign_trust(first(), ROOT)
    forged = replace(signed, sigs=(signed.sigs[0]._replace(sig=ROOT.sign(signed.body)),))
    with pytest.raises(TrustError, match="does not verify"):
        Trust.start(forged.envelope())


def test_two_signatures_of_which_one_is_bad_spoil_the_whole() -> None:
    config = TrustConfig(ORIGIN, (*entries(), KeyEntry(OTHER_ROOT.public_key, "root")))
    both = sign_trust(config, ROOT, OTHER_ROOT)
    assert Trust.start(both.envelope()).config == config
    bad = replace(both, sigs=(both.sigs[0], both.sigs[1]._replace(sig=bytes(64))))
    with pytest.raises(TrustError, match="does not verify"):
        Trust.start(bad.envelope())
    twice = replace(both, sigs=(both.sigs[0], both.sigs[0]))
    with pytest.raises(TrustError, match="signs a trust configuration once"):
        Trust.start(twice.envelope())


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"alg": "none"}, "algorithm is"),
        ({"sig": b"short"}, "64-byte sig"),
        ({"key_id": b"short"}, "32-byte key_id"),
        ({"extra": 1}, "a map of exactly"),
    ],
)
def test_a_malformed_signature_block_is_refused(block: dict[str, Any], message: str) -> None:
    envelope = decode(sign_trust(first(), ROOT).envelope())
    envelope["sigs"][0].update(block)
    with pytest.raises(TrustError, match=message):
        Trust.start(encode(envelope))


@pytest.mark.parametrize(
    "data", [b"", b"\xa0", b"\x01", encode({"body": b"", "sigs": []}), encode({"body": 1, "sigs": [1]})]
)
def test_bytes_that_are_no_envelope_are_refused(data: bytes) -> None:
    with pytest.raises(TrustError):
        Trust.start(data)


def test_a_chain_starts_with_version_one_and_grows_by_one() -> None:
    trust = start()
    config = second(trust)
    with pytest.raises(TrustError, match="starts with version 1"):
        Trust.start(sign_trust(config, ROOT).envelope())
    longer = trust.extend(sign_trust(config, ROOT).envelope(), 3)
    assert [version.config.version for version in longer.versions] == [1, 2]
    assert trust.config.version == 1, "extending leaves the shorter chain as it was"
    with pytest.raises(TrustError, match="does not follow"):
        trust.extend(sign_trust(second(longer), ROOT).envelope(), 4)
    with pytest.raises(TrustError, match="does not follow"):
        longer.extend(sign_trust(config, ROOT).envelope(), 4)


def test_a_version_names_its_predecessor_its_origin_and_comes_after_it() -> None:
    trust = start()
    with pytest.raises(TrustError, match="names another"):
        trust.extend(sign_trust(second(trust, prev=bytes(32)), ROOT).envelope(), 3)
    with pytest.raises(TrustError, match="is of 'detent/x'"):
        trust.extend(sign_trust(second(trust, origin="detent/x"), ROOT).envelope(), 3)
    longer = trust.extend(sign_trust(second(trust), ROOT).envelope(), 3)
    with pytest.raises(TrustError, match="announced before"):
        longer.extend(sign_trust(second(longer), ROOT).envelope(), 2)


def test_a_version_is_signed_by_a_root_key_of_the_version_before() -> None:
    trust = start()
    config = second(trust, KeyEntry(OTHER_ROOT.public_key, "root"))
    with pytest.raises(TrustError, match="is not a root key of trust version 1"):
        trust.extend(sign_trust(config, OTHER_ROOT).envelope(), 3)
    longer = trust.extend(sign_trust(config, ROOT).envelope(), 3)
    assert longer.extend(sign_trust(second(longer), OTHER_ROOT).envelope(), 4).config.version == 3


def test_a_root_key_whose_time_is_over_signs_nothing() -> None:
    limited = tuple(replace(entry, to_position=5) if entry.role == "root" else entry for entry in entries())
    trust = Trust.start(sign_trust(TrustConfig(ORIGIN, limited), ROOT).envelope())
    assert trust.extend(sign_trust(second(trust), ROOT).envelope(), 4).config.version == 2
    with pytest.raises(TrustError, match="valid before position 5"):
        trust.extend(sign_trust(second(trust), ROOT).envelope(), 5)


def test_a_key_keeps_its_role_in_all_versions() -> None:
    trust = start()
    without = tuple(entry for entry in trust.config.keys if entry.role != "witness")
    gone = trust.extend(sign_trust(second(trust, keys=without), ROOT).envelope(), 1)
    back = second(gone, KeyEntry(key("witness").public_key, "log"))
    with pytest.raises(TrustError, match="changes its role from witness to log"):
        gone.extend(sign_trust(back, ROOT).envelope(), 2)


def test_build_follows_the_announcements_of_a_ledger() -> None:
    trust = start()
    envelopes = [sign_trust(first(), ROOT).envelope(), sign_trust(second(trust), ROOT).envelope()]
    assert Trust.build([(0, envelopes[0]), (3, envelopes[1])]).config.version == 2
    with pytest.raises(TrustError, match="announces no trust"):
        Trust.build([])


def test_a_version_decides_about_batches_after_the_one_that_announces_it() -> None:
    trust = start()
    new = key("new owner")
    config = second(trust, KeyEntry(new.public_key, "transition"))
    longer = trust.extend(sign_trust(config, ROOT).envelope(), 7)
    assert isinstance(longer.find(new.key_id, "transition", 7), TrustFault)
    assert longer.find(new.key_id, "transition", 8) == new.public_key
    assert longer.at(0).config.version == 1


def test_find_refuses_strangers_other_roles_other_times_and_other_scopes() -> None:
    """X-046: role misuse refused"""
    limited = tuple(
        replace(entry, tenants=("acme",), partitions=(0, 2), from_position=3, to_position=9)
        if entry.role == "manifest"
        else entry
        for entry in entries()
    )
    trust = Trust.start(sign_trust(TrustConfig(ORIGIN, limited), ROOT).envelope())
    manifest = key("manifest")

    def code(key_id: bytes, role: str, position: int, tenant: str | None = "acme", partition: int | None = 0) -> str:
        found = trust.find(key_id, role, position, tenant, partition)
        return found.code if isinstance(found, TrustFault) else "found"

    assert code(manifest.key_id, "manifest", 3) == "found"
    assert code(manifest.key_id, "manifest", 8) == "found"
    assert code(manifest.key_id, "manifest", 2) == "KEY_OUT_OF_RANGE"
    assert code(manifest.key_id, "manifest", 9) == "KEY_OUT_OF_RANGE"
    assert code(manifest.key_id, "transition", 3) == "KEY_WRONG_ROLE"
    assert code(key("stranger").key_id, "manifest", 3) == "KEY_UNKNOWN"
    assert code(manifest.key_id, "manifest", 3, "other") == "KEY_OUT_OF_SCOPE"
    assert code(manifest.key_id, "manifest", 3, None) == "KEY_OUT_OF_SCOPE"
    assert code(manifest.key_id, "manifest", 3, "acme", 1) == "KEY_OUT_OF_SCOPE"
    assert code(manifest.key_id, "manifest", 3, "acme", None) == "KEY_OUT_OF_SCOPE"


def test_keys_lists_those_valid_at_a_position() -> None:
    trust = start()
    old, new = key("log"), key("new log")
    rotated = [replace(entry, to_position=5) if entry.role == "log" else entry for entry in trust.config.keys]
    config = second(trust, keys=(*rotated, KeyEntry(new.public_key, "log", from_position=5, partitions=(1,))))
    longer = trust.extend(sign_trust(config, ROOT).envelope(), 4)
    assert [entry.public_key for entry in longer.keys("log", 4)] == [old.public_key]
    assert [entry.public_key for entry in longer.keys("log", 5, 1)] == [new.public_key]
    assert list(longer.keys("log", 5, 0)) == []


# -- copies ------------------------------------------------------------------------------------------------------------

COPY = "detent/copy"


def copied(trust: Trust, position: int = 7, **changes: Any) -> TrustConfig:
    """The version with which a copy of the ledger takes a name and keys of its own."""
    ended = tuple(replace(entry, to_position=position + 1) for entry in trust.config.keys)
    own = tuple(KeyEntry(key(f"own {role}").public_key, role, from_position=position + 1) for role in ROLES)
    config = TrustConfig(COPY, (*ended, *own), trust.config.version + 1, trust.versions[-1].digest, copy_of=ORIGIN)
    return replace(config, **changes)


def test_a_copy_takes_its_name_in_the_batch_that_says_so() -> None:
    """X-200: the batch before it and the tree head over it are still the original's"""
    trust = start()
    longer = trust.extend(sign_trust(copied(trust), ROOT).envelope(), 7)
    assert [longer.origin_of_batch(number) for number in (0, 6, 7, 8)] == [ORIGIN, ORIGIN, COPY, COPY]
    assert [longer.origin_of_head(size) for size in (0, 7, 8)] == [ORIGIN, ORIGIN, COPY]
    assert (longer.origin, longer.root_digest) == (COPY, trust.root_digest)
    assert longer.find(key("transition").key_id, "transition", 7) == key("transition").public_key
    assert isinstance(longer.find(key("transition").key_id, "transition", 8), TrustFault)
    assert longer.find(key("own transition").key_id, "transition", 8) == key("own transition").public_key


def test_a_configuration_of_a_copy_reads_back_and_others_keep_their_bytes() -> None:
    """X-200"""
    config = copied(start())
    assert TrustConfig.parse(config.body()) == config
    assert "copy_of" not in decode(first().body())
    with pytest.raises(TrustError, match="has no copy_of"):
        TrustConfig.parse(encode(decode(first().body()) | {"copy_of": None}))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"copy_of": "detent/another"}, "is a copy of 'detent/another', not of"),
        ({"copy_of": None}, f"is of '{COPY}', not of"),
        ({"origin": ORIGIN}, "which is another one"),
        ({"prev": bytes(32)}, "names another version"),
    ],
)
def test_a_copy_that_does_not_follow_on_its_original_is_refused(changes: dict[str, Any], why: str) -> None:
    """X-200"""
    trust = start()
    with pytest.raises(TrustError, match=why):
        trust.extend(sign_trust(copied(trust, **changes), ROOT).envelope(), 7)


def test_no_key_of_the_original_signs_for_its_copy() -> None:
    """X-200"""
    trust = start()
    config = copied(trust)
    open_ended = tuple(replace(entry, to_position=None) for entry in config.keys)
    with pytest.raises(TrustError, match="of the original is still valid in its copy"):
        trust.extend(sign_trust(replace(config, keys=open_ended), ROOT).envelope(), 7)


def test_a_copy_of_a_copy_takes_no_name_that_was_there_before() -> None:
    """X-200"""
    trust = start()
    trust = trust.extend(sign_trust(copied(trust), ROOT).envelope(), 7)
    again = TrustConfig(ORIGIN, (KeyEntry(OTHER_ROOT.public_key, "root"),), 3, trust.versions[-1].digest, copy_of=COPY)
    with pytest.raises(TrustError, match="a second time"):
        trust.extend(sign_trust(again, key("own root")).envelope(), 9)


def test_only_the_original_s_root_key_announces_a_copy() -> None:
    """X-200"""
    trust = start()
    with pytest.raises(TrustError, match="not a root key"):
        trust.extend(sign_trust(copied(trust), key("own root")).envelope(), 7)
