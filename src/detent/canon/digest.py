"""SHA-256, with a label in front of everything that no contract fixes otherwise.

A labelled digest is ``SHA-256(label || data)``. A label ends with its only zero byte, so no label is the beginning of
another and bytes hashed for one purpose can never be passed off as bytes hashed for a second one.
"""

from __future__ import annotations

import re
from hashlib import sha256 as _sha256
from typing import Final

from detent.canon.show import show
from detent.errors import InvalidInput, InvariantBroken

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
