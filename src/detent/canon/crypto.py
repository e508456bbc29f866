"""SHA-256 digests and Ed25519 signatures.

SHA-256, with a label in front of everything that no contract fixes otherwise.

A labelled digest is ``SHA-256(label || data)``. A label ends with its only zero byte, so no label is the beginning of
another and bytes hashed for one purpose can never be passed off as bytes hashed for a second one.

Ed25519 through PyNaCl: deterministic signatures, strict verification, keys checked before they are trusted.

No randomness lives here: a key is made from a seed that the caller drew. libsodium refuses signatures whose scalar is
not reduced (S + L) and does its work without the interpreter's lock.

libsodium reads 32 bytes from wherever it is pointed at, so every length is checked on this side first.

One Ed25519 signature for many messages: the root of a Merkle tree over them is signed, and each message keeps its path.

A signature takes one of two forms. 64 bytes are Ed25519's own signature of the message. A longer one is *shared*: the 64
bytes sign the root of a tree of RFC 6962 whose leaves are the messages, and are followed by the number of leaves, the place
of this one (4 bytes each, big-endian) and the hashes from the leaf up to the root. Each message is proved by its own bytes
and its own signature; no other message of the tree has to be at hand.

A signed root begins with a label of its own, and a leaf is the whole message with its label. So a root cannot pass for a
message, and a message of one kind cannot pass for one of another. There is one shared form for a message in a tree: the
number of hashes follows from place and size, and a tree of one leaf is refused, because a plain signature says the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256 as _sha256
from typing import Final

from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from detent.canon.merkle import HASH_BYTES, leaf_hash, root_and_paths, root_on_path
from detent.canon.show import show
from detent.errors import InvalidInput, InvariantBroken, TrustError

DIGEST_BYTES: Final = 32
_TEXT_PREFIX: Final = "sha256:"
_TEXT = re.compile(r"sha256:[0-9a-f]{64}")


def sha256(data: bytes) -> bytes:
    """The 32 bytes of SHA-256 over ``data``."""
    return _sha256(data).digest()


def digest(label: bytes, data: bytes) -> bytes:
    """SHA-256 over ``label || data``. The label is ours, so a bad one is a broken invariant."""
    if not label or label.find(0) != len(label) - 1:
        raise InvariantBroken(f"a domain label ends with its only zero byte, {label!r} does not")
    return _sha256(label + data).digest()


def digest_text(value: bytes) -> str:
    """A digest as it is written in text: ``sha256:`` and 64 lower-case hex digits."""
    if type(value) is not bytes or len(value) != DIGEST_BYTES:
        raise InvalidInput(f"a SHA-256 digest has {DIGEST_BYTES} bytes, got {show(value)}")
    return _TEXT_PREFIX + value.hex()


def parse_digest(text: str) -> bytes:
    """The bytes of a written digest. Refuses other algorithms, upper case and anything around it."""
    if type(text) is not str or _TEXT.fullmatch(text) is None:
        raise InvalidInput(
            f"not a digest: {show(text)}", hint="write it as sha256: followed by 64 lower-case hex digits"
        )
    return bytes.fromhex(text[len(_TEXT_PREFIX) :])


SEED_BYTES: Final = 32
PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


class BadKey(TrustError):
    """Bytes that must not be trusted as an Ed25519 public key."""

    code = "KEY_INVALID"


class SigningKey:
    """A private key, made from its 32-byte seed. Neither its text form nor its pickle shows the secret."""

    __slots__ = ("_secret", "key_id", "public_key")

    public_key: bytes
    key_id: bytes

    def __init__(self, seed: bytes) -> None:
        if type(seed) is not bytes or len(seed) != SEED_BYTES:
            raise InvalidInput(f"an Ed25519 seed has {SEED_BYTES} bytes")  # and is not repeated in a message
        self.public_key, self._secret = crypto_sign_seed_keypair(seed)
        self.key_id = key_id_of(self.public_key)

    @property
    def seed(self) -> bytes:
        """The secret seed, for storing the key."""
        return self._secret[:SEED_BYTES]

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature of ``message``; the same message always gets the same one."""
        return crypto_sign(message, self._secret)[:SIGNATURE_BYTES]

    def __repr__(self) -> str:
        return f"SigningKey(key_id={self.key_id.hex()})"

    def __reduce__(self) -> str:
        raise TypeError("a signing key is not pickled; pass its seed where it is meant to go")


def key_id_of(public_key: bytes) -> bytes:
    """The id of a key: SHA-256 of the public key."""
    return sha256(public_key)


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether ``signature`` is the key's signature of ``message``. Bad bytes are an answer, not an error."""
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True


def check_public_key(public_key: bytes) -> bytes:
    """Return the key if it may be trusted.

    Refuses, with ``BadKey``: a wrong length, an encoding that is not the point's canonical one, points off the curve,
    and points outside the prime-order group, which no seed ever gives: small-order points "sign" anything.
    """
    if type(public_key) is not bytes or len(public_key) != PUBLIC_KEY_BYTES:
        raise BadKey(f"an Ed25519 public key has {PUBLIC_KEY_BYTES} bytes, got {show(public_key)}")
    if not crypto_core_ed25519_is_valid_point(public_key):
        raise BadKey(
            f"{public_key.hex()} is not the canonical form of a point of the prime-order group",
            hint="make a new key pair; this key was not made by an Ed25519 key generator",
        )
    return public_key


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
