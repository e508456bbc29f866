from __future__ import annotations

import pickle
from typing import Any

import nacl.bindings
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import BadKey, SigningKey, check_public_key, key_id_of, sha256, verify
from detent.errors import InvalidInput, TrustError

GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
KEY = SigningKey(b"\x07" * 32)
IDENTITY = "0100000000000000000000000000000000000000000000000000000000000000"
ORDER_2 = "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"
SMALL_ORDER = [
    IDENTITY,
    ORDER_2,
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
NOT_CANONICAL = [
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # p, for 0
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # p + 1, for the identity
    "0100000000000000000000000000000000000000000000000000000000000080",  # the identity with a sign
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
]


@pytest.mark.parametrize(
    ("seed", "public_key", "message", "signature"),
    [
        # RFC 8032, section 7.1, tests 1 to 3.
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ],
)
def test_the_published_answers_of_rfc_8032(seed: str, public_key: str, message: str, signature: str) -> None:
    """X-046"""
    key = SigningKey(bytes.fromhex(seed))
    assert key.public_key.hex() == public_key
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert verify(key.public_key, bytes.fromhex(message), bytes.fromhex(signature))


def test_signing_twice_gives_equal_bytes() -> None:
    """X-046: deterministic, so that a replay gives the same records"""
    assert KEY.sign(b"message") == SigningKey(b"\x07" * 32).sign(b"message")
    assert len(KEY.sign(b"message")) == 64


def test_a_key_is_named_by_the_digest_of_its_public_part() -> None:
    """X-046"""
    assert KEY.key_id == key_id_of(KEY.public_key) == sha256(KEY.public_key)
    assert SigningKey(KEY.seed).public_key == KEY.public_key


@given(st.binary(max_size=80), st.data())
def test_a_changed_bit_anywhere_spoils_the_signature(message: bytes, data: st.DataObject) -> None:
    """X-046"""
    parts = [bytearray(KEY.public_key), bytearray(message), bytearray(KEY.sign(message))]
    part = data.draw(st.sampled_from([part for part in parts if part]))
    place = data.draw(st.integers(0, len(part) * 8 - 1))
    part[place // 8] ^= 1 << place % 8
    public_key, changed, signature = map(bytes, parts)
    assert not verify(public_key, changed, signature)


def test_a_malleated_signature_is_refused() -> None:
    """X-046: S + L satisfies the equation, but is not the signature that was made"""
    signature = KEY.sign(b"message")
    scalar = int.from_bytes(signature[32:], "little")
    malleated = signature[:32] + (scalar + GROUP_ORDER).to_bytes(32, "little")
    assert malleated != signature
    assert verify(KEY.public_key, b"message", signature)
    assert not verify(KEY.public_key, b"message", malleated)


@pytest.mark.parametrize("public_key", SMALL_ORDER)
def test_a_small_order_key_is_refused_and_verifies_nothing(public_key: str) -> None:
    """X-046: under such a key the signature (R, 0) would fit many messages at once"""
    key = bytes.fromhex(public_key)
    with pytest.raises(BadKey):
        check_public_key(key)
    for commitment in SMALL_ORDER:
        forged = bytes.fromhex(commitment) + bytes(32)
        assert not any(verify(key, bytes((attempt,)), forged) for attempt in range(8))


@pytest.mark.parametrize("public_key", NOT_CANONICAL)
def test_a_second_spelling_of_a_point_is_refused(public_key: str) -> None:
    """X-046"""
    with pytest.raises(BadKey, match="canonical"):
        check_public_key(bytes.fromhex(public_key))


def test_points_off_the_curve_are_refused_and_real_keys_are_not() -> None:
    """X-046"""
    with pytest.raises(BadKey):
        check_public_key(bytes((2,)) + bytes(31))
    assert check_public_key(KEY.public_key) == KEY.public_key


def test_a_key_with_a_small_order_part_is_refused() -> None:
    """X-046: verifiers disagree about such keys, so none is trusted"""
    mixed = nacl.bindings.crypto_core_ed25519_add(KEY.public_key, bytes.fromhex(ORDER_2))
    assert mixed != KEY.public_key
    with pytest.raises(BadKey):
        check_public_key(mixed)


@pytest.mark.parametrize("public_key", [b"", b"\1" * 31, b"\1" * 33, "a" * 32, None, bytearray(32)])
def test_a_key_of_wrong_length_or_type_is_refused(public_key: Any) -> None:
    """X-046"""
    with pytest.raises(BadKey, match="32 bytes") as caught:
        check_public_key(public_key)
    assert isinstance(caught.value, TrustError)
    assert caught.value.code == "KEY_INVALID"


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64])
def test_verify_answers_no_to_a_key_of_wrong_length(size: int) -> None:
    """X-046: libsodium would read past the end of a short one"""
    assert not verify(KEY.public_key.ljust(size, b"\0")[:size], b"message", KEY.sign(b"message"))


@pytest.mark.parametrize("size", [0, 1, 63, 65, 128])
def test_verify_answers_no_to_a_signature_of_wrong_length(size: int) -> None:
    """X-046: a byte must not move from the message to the signature or back"""
    signed = KEY.sign(b"message") + b"message" + bytes(64)
    assert not verify(KEY.public_key, signed[size : 64 + 7], signed[:size])


@pytest.mark.parametrize("seed", [b"", b"\1" * 31, b"\1" * 33, "a" * 32, None])
def test_a_seed_of_wrong_length_is_refused_without_being_repeated(seed: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        SigningKey(seed)
    assert str(caught.value) == "an Ed25519 seed has 32 bytes"


def test_the_secret_shows_neither_in_text_nor_in_a_pickle() -> None:
    assert KEY.seed.hex() not in repr(KEY)
    assert repr(KEY) == f"SigningKey(key_id={KEY.key_id.hex()})"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(KEY)
