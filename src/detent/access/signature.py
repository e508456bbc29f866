"""Signed requests: a profile of HTTP Message Signatures (RFC 9421) with Ed25519 and Content-Digest (RFC 9530).

A worker signs what it sends: the method, the path, the query and the digest of the body, with the id of its key, the time, a nonce
and a tag that names the ledger. A request is worth nothing at another address, with another body or for another ledger. There is one way to
write each part, so a header is compared with what would have been written and never interpreted further:

    content-digest:  sha-256=:<base64>:
    signature-input: detent=("@method" "@path" "@query" "content-digest");created=<seconds>;keyid="<64 hex digits>";
                     nonce="<32 hex digits>";alg="ed25519";tag="detent/<origin>"      (in one line, without blanks at ";")
    signature:       detent=:<base64 of 64 bytes>:

Whether ``created`` is close enough to now, and whether a request comes for the second time, is for the caller to judge.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from detent.canon import SigningKey
from detent.canon.crypto import SIGNATURE_BYTES, verify_signature
from detent.errors import InvalidInput

CONTENT_DIGEST: Final = "content-digest"
SIGNATURE_INPUT: Final = "signature-input"
SIGNATURE: Final = "signature"
NONCE_BYTES: Final = 16
HEADER_CHARS_MAX: Final = 2_048
CREATED_MAX: Final = 10**11
_COVERED: Final = '("@method" "@path" "@query" "content-digest")'
_DIGEST: Final = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_INPUT: Final = re.compile(
    r'detent=(\("@method" "@path" "@query" "content-digest"\);created=([0-9]{1,11});keyid="([0-9a-f]{64})"'
    r';nonce="([0-9a-f]{32})";alg="ed25519";tag="detent/([\x21\x23-\x5b\x5d-\x7e]{1,200})")'
)
_SIGNATURE: Final = re.compile(r"detent=:([A-Za-z0-9+/]{86}==):")


@dataclass(frozen=True, slots=True)
class Said:
    """What a signature is about: the parts of a request that it covers, as they were sent."""

    method: str
    path: str
    query: str
    """Without its question mark; empty where there is none."""
    content_digest: bytes
    """SHA-256 of the body."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A signed request as the ledger keeps it: anyone who has the public key can check it."""

    base: bytes
    """What was signed (RFC 9421, section 2.5)."""
    signature: bytes


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature that was read from a request and not judged yet."""

    key_id: bytes
    created: int
    """Seconds since 1970, by the signer's clock."""
    nonce: bytes
    origin: str
    parameters: str
    signature: bytes

    def verifies(self, said: Said, public_key: bytes) -> bool:
        """Whether the holder of this key signed exactly this request."""
        return verify_signature(public_key, _base(said, self.parameters), self.signature)

    def evidence(self, said: Said) -> Evidence:
        """What is kept of it."""
        return Evidence(_base(said, self.parameters), self.signature)


def sign(said: Said, key: SigningKey, *, created: int, nonce: bytes, origin: str) -> dict[str, str]:
    """The headers of a signed request."""
    if len(nonce) != NONCE_BYTES or not 0 <= created < CREATED_MAX:
        raise InvalidInput(f"a signature has a time of day and a nonce of {NONCE_BYTES} bytes")
    parameters = (
        f'{_COVERED};created={created};keyid="{key.key_id.hex()}";nonce="{nonce.hex()}";alg="ed25519"'
        f';tag="detent/{origin}"'
    )
    if _INPUT.fullmatch(f"detent={parameters}") is None:
        raise InvalidInput("a ledger whose name has blanks or quotes cannot be named in a signature")
    signature = b64encode(key.sign(_base(said, parameters))).decode()
    return {
        CONTENT_DIGEST: content_digest(said.content_digest),
        SIGNATURE_INPUT: f"detent={parameters}",
        SIGNATURE: f"detent=:{signature}:",
    }


def read_signature(headers: Mapping[str, str | None]) -> Signed:
    """The signature of a request, by its three headers; `InvalidInput` says which of them is missing or written otherwise."""
    found = _matched(_INPUT, headers.get(SIGNATURE_INPUT), SIGNATURE_INPUT)
    signature = _matched(_SIGNATURE, headers.get(SIGNATURE), SIGNATURE)
    return Signed(
        bytes.fromhex(found[3]), int(found[2]), bytes.fromhex(found[4]), found[5], found[1], _bytes(signature[1])
    )


def read_content_digest(header: str | None) -> bytes:
    """The digest that a request says its body has; only SHA-256 is taken."""
    return _bytes(_matched(_DIGEST, header, CONTENT_DIGEST)[1])


def content_digest(digest: bytes) -> str:
    """A digest of SHA-256 as the header writes it."""
    return f"sha-256=:{b64encode(digest).decode()}:"


def _base(said: Said, parameters: str) -> bytes:
    """The signature base of RFC 9421, section 2.5."""
    return "\n".join(
        (
            f'"@method": {said.method}',
            f'"@path": {said.path}',
            f'"@query": ?{said.query}',
            f'"content-digest": {content_digest(said.content_digest)}',
            f'"@signature-params": {parameters}',
        )
    ).encode("latin-1")


def _matched(form: re.Pattern[str], header: str | None, name: str) -> re.Match[str]:
    if header is None:
        raise InvalidInput(f"the request has no {name}")
    found = form.fullmatch(header) if len(header) <= HEADER_CHARS_MAX else None
    if found is None:
        raise InvalidInput(f"the {name} of the request is not one of this profile", hint="see the HTTP reference")
    return found


def _bytes(text: str) -> bytes:
    """Base64 that was written in the one way; refuses stray bits at its end."""
    data = b64decode(text)
    if b64encode(data).decode() != text or len(data) not in (32, SIGNATURE_BYTES):
        raise InvalidInput("a signature or digest is not written in plain base64")
    return data
