"""One Ed25519 signature for many messages: the root of a Merkle tree over them is signed, and each message keeps its path.

A signature takes one of two forms. 64 bytes are Ed25519's own signature of the message. A longer one is *shared*: the 64
bytes sign the root of a tree of RFC 6962 whose leaves are the messages, and are followed by the number of leaves, the place
of this one (4 bytes each, big-endian) and the hashes from the leaf up to the root. Each message is proved by its own bytes
and its own signature; no other message of the tree has to be at hand.

A signed root begins with a label of its own, and a leaf is the whole message with its label. So a root cannot pass for a
message, and a message of one kind cannot pass for one of another. There is one shared form for a message in a tree: the
number of hashes follows from place and size, and a tree of one leaf is refused, because a plain signature says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from detent.canon.ed25519 import SIGNATURE_BYTES, SigningKey, verify
from detent.canon.merkle import HASH_BYTES, leaf_hash, root_and_paths, root_on_path
from detent.errors import InvalidInput

ROOT_LABEL: Final = b"detent/signed_together/v1\x00"
MESSAGES_MAX: Final = 1 << 16
"""Messages that one signature may cover; it keeps every path below 17 hashes."""
_HEAD_BYTES: Final = SIGNATURE_BYTES + 8
SHARED_BYTES_MAX: Final = _HEAD_BYTES + 16 * HASH_BYTES


def sign_together(key: SigningKey, messages: Sequence[bytes]) -> list[bytes]:
    """The signatures of some messages, in their order, for the price of one. A single message gets a plain one."""
    if len(messages) < 2:
        return [key.sign(message) for message in messages]
    if len(messages) > MESSAGES_MAX:
        raise InvalidInput(f"one signature covers at most {MESSAGES_MAX} messages, not {len(messages)}")
    root, paths = root_and_paths(map(leaf_hash, messages))
    size = len(messages).to_bytes(4, "big")
    head = key.sign(ROOT_LABEL + size + root) + size
    return [head + place.to_bytes(4, "big") + path for place, path in enumerate(paths)]


def is_signature(value: object) -> bool:
    """Whether these bytes have the form of a signature, plain or shared; whether it is good is `verify_signature`'s to say."""
    if type(value) is not bytes:
        return False
    size = len(value)
    return size == SIGNATURE_BYTES or (
        _HEAD_BYTES < size <= SHARED_BYTES_MAX and (size - _HEAD_BYTES) % HASH_BYTES == 0
    )


def signed_text(message: bytes, signature: bytes) -> tuple[bytes, bytes] | None:
    """What Ed25519 has to check for a message: the text that was signed and its 64 bytes; None if the path leads nowhere.

    All messages that were signed together have the same answer, so a reader of many checks it once.
    """
    if len(signature) == SIGNATURE_BYTES:
        return message, signature
    if not is_signature(signature):
        return None
    size = int.from_bytes(signature[SIGNATURE_BYTES : SIGNATURE_BYTES + 4], "big")
    place = int.from_bytes(signature[SIGNATURE_BYTES + 4 : _HEAD_BYTES], "big")
    if not 2 <= size <= MESSAGES_MAX:
        return None
    path = [signature[at : at + HASH_BYTES] for at in range(_HEAD_BYTES, len(signature), HASH_BYTES)]
    root = root_on_path(leaf_hash(message), place, size, path)
    return None if root is None else (ROOT_LABEL + size.to_bytes(4, "big") + root, signature[:SIGNATURE_BYTES])


def verify_signature(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature of either form is the key's signature of ``message``. Bad bytes are an answer, not an error."""
    signed = signed_text(message, signature)
    if signed is None or len(signature) == SIGNATURE_BYTES:
        return signed is not None and verify(public_key, *signed)
    return _verify_root(public_key, *signed)


@lru_cache(maxsize=64)
def _verify_root(public_key: bytes, text: bytes, signature: bytes) -> bool:
    """The answer for a root is the same for every message under it, and they come one after the other."""
    return verify(public_key, text, signature)
