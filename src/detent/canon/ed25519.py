"""Ed25519 through PyNaCl: deterministic signatures, strict verification, keys checked before they are trusted.

No randomness lives here: a key is made from a seed that the caller drew. libsodium refuses signatures whose scalar is
not reduced (S + L) and does its work without the interpreter's lock.

libsodium reads 32 bytes from wherever it is pointed at, so every length is checked on this side first.
"""

from __future__ import annotations

from typing import Final

from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from detent.canon.digest import sha256
from detent.canon.show import show
from detent.errors import InvalidInput, TrustError

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
