"""One signature for many messages: each is proved by its own bytes and path, and nothing else passes for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import SigningKey, verify
from detent.canon.crypto import (
    MESSAGES_MAX,
    ROOT_LABEL,
    SHARED_BYTES_MAX,
    is_signature,
    sign_together,
    signed_text,
    verify_signature,
)
from detent.canon.merkle import leaf_hash, root_of
from detent.errors import InvalidInput

KEY = SigningKey(bytes(range(32)))
MESSAGES = [b"label\x00" + bytes([number]) * number for number in range(1, 8)]
SIGNATURES = sign_together(KEY, MESSAGES)


def good(message: bytes, signature: bytes) -> bool:
    return verify_signature(KEY.public_key, message, signature)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=40))
def test_every_message_verifies_with_its_own_signature(messages: list[bytes]) -> None:
    signatures = sign_together(KEY, messages)
    assert all(good(message, one) and is_signature(one) for message, one in zip(messages, signatures, strict=True))


def test_a_single_message_gets_ed25519s_own_signature() -> None:
    assert sign_together(KEY, [b"one"]) == [KEY.sign(b"one")]
    assert sign_together(KEY, []) == []


def test_the_signed_text_is_the_labelled_size_and_root_of_rfc_6962() -> None:
    root = root_of(map(leaf_hash, MESSAGES))
    texts = {signed_text(message, one) for message, one in zip(MESSAGES, SIGNATURES, strict=True)}
    assert texts == {(ROOT_LABEL + (7).to_bytes(4, "big") + root, SIGNATURES[0][:64])}
    assert verify(KEY.public_key, *texts.pop())  # type: ignore[misc]


def test_a_leaf_does_not_verify_at_the_place_of_another() -> None:
    assert not any(good(first, other) for first, other in zip(MESSAGES, SIGNATURES[1:], strict=False))
    for left, right in pairwise(SIGNATURES):
        swapped = left[:68] + right[68:72] + left[72:]
        assert not any(good(message, swapped) for message in MESSAGES)


def test_a_path_of_another_tree_does_not_verify() -> None:
    foreign = sign_together(KEY, [*MESSAGES[:-1], b"another"])
    assert not good(MESSAGES[0], SIGNATURES[0][:64] + foreign[0][64:])
    other_key = sign_together(SigningKey(bytes(32)), MESSAGES)
    assert not good(MESSAGES[0], other_key[0])


@pytest.mark.parametrize("cut", [1, 31, 32, 64, 96, 104])
def test_a_truncated_signature_does_not_verify(cut: int) -> None:
    assert not good(MESSAGES[0], SIGNATURES[0][:-cut])


def test_a_longer_path_or_another_size_does_not_verify() -> None:
    assert not good(MESSAGES[0], SIGNATURES[0] + bytes(32))
    for size in (0, 1, 6, 8, MESSAGES_MAX + 1, 2**32 - 1):
        assert not good(MESSAGES[0], SIGNATURES[0][:64] + size.to_bytes(4, "big") + SIGNATURES[0][68:])


def test_a_tree_of_one_leaf_is_not_a_second_form_of_a_plain_signature() -> None:
    signed = KEY.sign(ROOT_LABEL + (1).to_bytes(4, "big") + leaf_hash(b"one"))
    alone = signed + (1).to_bytes(4, "big") + (0).to_bytes(4, "big")
    assert not is_signature(alone)
    assert not good(b"one", alone)


def test_a_signed_root_does_not_pass_for_a_message_and_an_interior_node_not_for_a_leaf() -> None:
    text = signed_text(MESSAGES[0], SIGNATURES[0])
    assert text is not None
    assert not any(good(text[0], one) for one in SIGNATURES)
    pair = leaf_hash(MESSAGES[0]) + leaf_hash(MESSAGES[1])
    shorter = SIGNATURES[0][:72] + SIGNATURES[0][104:]
    assert not good(pair, shorter)


@given(st.integers(0, 6), st.data())
def test_a_flipped_bit_anywhere_is_found(place: int, data: st.DataObject) -> None:
    changed = bytearray(SIGNATURES[place])
    at = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[at // 8] ^= 1 << at % 8
    assert not good(MESSAGES[place], bytes(changed))


@pytest.mark.parametrize(
    "value", [b"", bytes(63), bytes(65), bytes(72), bytes(73), bytes(SHARED_BYTES_MAX + 32), "x" * 64, None]
)
def test_other_bytes_do_not_have_the_form_of_a_signature(value: object) -> None:
    assert not is_signature(value)


def test_the_longest_signature_has_sixteen_hashes_and_more_messages_are_refused() -> None:
    signatures = sign_together(KEY, [number.to_bytes(4, "big") for number in range(MESSAGES_MAX)])
    assert {len(one) for one in signatures} == {SHARED_BYTES_MAX}
    assert good((7).to_bytes(4, "big"), signatures[7])
    with pytest.raises(InvalidInput, match="at most 65536 messages"):
        sign_together(KEY, [b""] * (MESSAGES_MAX + 1))
