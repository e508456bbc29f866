"""The public key inside a certificate, for pinning.

A pin is the SHA-256 of a certificate's SubjectPublicKeyInfo (as in RFC 7469): it stays the same when the certificate is renewed
with the same key. The standard library gives the certificate as DER and does not take it apart, so this reads the few elements in
front of the key: RFC 5280, 4.1.
"""

from __future__ import annotations

from hashlib import sha256

from detent.errors import InvalidInput

_SEQUENCE, _VERSION = 0x30, 0xA0
_BEFORE_KEY = 5
"""Elements of a TBSCertificate between its version and its key: serial, algorithm, issuer, validity, subject."""


def spki_digest(certificate: bytes) -> bytes:
    """SHA-256 of the public key in a certificate (DER)."""
    start, end, _ = _element(certificate, 0)
    start, end, _ = _element(certificate, start)
    if certificate[start] == _VERSION:
        start = _element(certificate, start)[1]
    for _ in range(_BEFORE_KEY):
        start = _element(certificate, start)[1]
    key_start = start
    _, key_end, tag = _element(certificate, start)
    if tag != _SEQUENCE or key_end > end:
        raise InvalidInput("the server's certificate cannot be read")
    return sha256(certificate[key_start:key_end]).digest()


def _element(data: bytes, start: int) -> tuple[int, int, int]:
    """Where the content of an element begins and ends, and its tag."""
    try:
        tag, length = data[start], data[start + 1]
        place = start + 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise IndexError
            length = int.from_bytes(data[place : place + count], "big")
            place += count
        if place + length > len(data):
            raise IndexError
    except IndexError:
        raise InvalidInput("the server's certificate cannot be read") from None
    return place, place + length, tag
