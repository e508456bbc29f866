"""Credentials as text: ``dtk_<id>_<secret><checksum>``.

The id is public and names the credential in lists and logs. The secret has 256 random bits, so a plain digest of it is enough at
rest. The checksum lets a scanner, or a mistyped line, be told from a real credential without asking anyone. The pattern for scanners is
``dt[kel]_[a-z2-7]{12}_[0-9A-Za-z]{49}``.
"""

from __future__ import annotations

import hmac
import re
import string
from base64 import b32encode
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from detent.canon import digest
from detent.errors import InvariantBroken

API_KEY: Final = "dtk"
ENROLMENT: Final = "dte"
LOGIN: Final = "dtl"
KINDS: Final = frozenset({API_KEY, ENROLMENT, LOGIN})
"""API keys, enrolment tokens of workers, login tokens of browsers."""
ID_BYTES: Final = 8
SECRET_BYTES: Final = 32
_ID_CHARS: Final = 12
_SECRET_CHARS: Final = 43
_CHECKSUM_CHARS: Final = 6
_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_FORM: Final = re.compile(r"(dt[kel])_([a-z2-7]{12})_([0-9A-Za-z]{43})([0-9A-Za-z]{6})")
_LABEL: Final = b"detent/access-token/v1\0"


@dataclass(frozen=True, slots=True)
class Token:
    """A credential, whole. Its text is a secret: it is shown once and never printed by accident."""

    kind: str
    token_id: str
    text: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        """What is stored in its place."""
        return digest(_LABEL, self.text.encode())

    def fits(self, stored: bytes) -> bool:
        """Whether it is the one whose digest was stored; takes equally long for every answer."""
        return hmac.compare_digest(self.digest, stored)


def make_token(kind: str, random: bytes) -> Token:
    """A credential out of `ID_BYTES` + `SECRET_BYTES` random bytes."""
    if kind not in KINDS or len(random) != ID_BYTES + SECRET_BYTES:
        raise InvariantBroken(f"a token is made of a known kind and {ID_BYTES + SECRET_BYTES} random bytes")
    return make_secret(kind, new_id(random[:ID_BYTES]), random[ID_BYTES:])


def make_secret(kind: str, token_id: str, random: bytes) -> Token:
    """A credential under an id that there is already, out of `SECRET_BYTES` random bytes."""
    if len(random) != SECRET_BYTES:
        raise InvariantBroken(f"a secret is made of {SECRET_BYTES} random bytes")
    body = f"{kind}_{token_id}_{_base62(int.from_bytes(random, 'big'), _SECRET_CHARS)}"
    return Token(kind, token_id, body + _checksum(body))


def new_id(random: bytes) -> str:
    """An opaque id out of `ID_BYTES` random bytes: 12 characters of base32."""
    return b32encode(random).decode().lower()[:_ID_CHARS]


def read_token(text: str) -> Token | None:
    """The credential that a text is; None for a text that is none, also by its checksum."""
    found = _FORM.fullmatch(text)
    if found is None or _checksum(text[:-_CHECKSUM_CHARS]) != found[4]:
        return None
    return Token(found[1], found[2], text)


def bearer(header: str | None) -> Token | None:
    """The credential of an ``Authorization`` header; None where there is no usable one."""
    kind, _, text = (header or "").partition(" ")
    return read_token(text) if kind.lower() == "bearer" else None


def _checksum(body: str) -> str:
    return _base62(crc32(body.encode()), _CHECKSUM_CHARS)


def _base62(number: int, chars: int) -> str:
    digits = []
    for _ in range(chars):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
