"""The TLS identity of a server towards the other servers of its ledger: a key made at its start, in a certificate that it signs itself.

Nobody certifies it. Each server writes its certificate into the database with a signature of its transition key, and a connection counts only
between two certificates that were signed so. Python's ``ssl`` cannot make a certificate, so the few fields that X.509 asks for are written
here (RFC 5280, RFC 8410); reading, checking and everything else is OpenSSL's.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

_ED25519: Final = b"\x30\x05\x06\x03\x2b\x65\x70"
"""The algorithm, as X.509 names it."""
_COMMON_NAME: Final = b"\x06\x03\x55\x04\x03"
_VALID: Final = (b"20200101000000Z", b"99991231235959Z")
"""As long as the process: no clock is compared, and the next start has another key."""
CERTIFICATE_BYTES_MAX: Final = 1024


class LinkKey:
    """A key pair with its certificate, for as long as a server runs."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        seed = random(32)
        key = SigningKey(seed)
        self._private = b"\x30\x2e\x02\x01\x00" + _ED25519 + b"\x04\x22\x04\x20" + seed
        self.certificate = _certificate(key, random(16))

    def accepting(self, peer: bytes) -> ssl.SSLContext:
        """For a server that is connected to by the holder of a certificate, and by no one else."""
        return self._context(ssl.PROTOCOL_TLS_SERVER, peer)

    def connecting(self, peer: bytes) -> ssl.SSLContext:
        """For a connection to the holder of a certificate, wherever it answers."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT, peer)

    def _context(self, protocol: int, peer: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.check_hostname = False  # It is known by its key, not by a name.
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=peer)
        with tempfile.TemporaryDirectory(
            prefix="detent-link-"
        ) as name:  # It takes files alone; mkdtemp makes them ours.
            path = Path(name) / "pair.pem"
            path.write_text(_pem("PRIVATE KEY", self._private) + _pem("CERTIFICATE", self.certificate))
            context.load_cert_chain(path)
        return context


def _certificate(key: SigningKey, serial: bytes) -> bytes:
    # Certificates are looked up by their names, so each has one of its own.
    common_name = _tagged(0x0C, b"detent server " + serial.hex().encode())
    name = _tagged(0x30, _tagged(0x31, _tagged(0x30, _COMMON_NAME + common_name)))
    valid = _tagged(0x30, b"".join(_tagged(0x18, time) for time in _VALID))
    public = _tagged(0x30, _ED25519 + _tagged(0x03, b"\0" + bytes(key.verify_key)))
    number = _tagged(0x02, bytes([serial[0] & 0x7F | 0x40]) + serial[1:])  # Positive, in the fewest bytes.
    signed = _tagged(0x30, _tagged(0xA0, b"\x02\x01\x02") + number + _ED25519 + name + valid + name + public)
    return _tagged(0x30, signed + _ED25519 + _tagged(0x03, b"\0" + key.sign(signed).signature))


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = (
        bytes([size]) if size < 128 else b"\x81" + bytes([size]) if size < 256 else b"\x82" + size.to_bytes(2, "big")
    )
    return bytes([tag]) + length + content


def _pem(kind: str, der: bytes) -> str:
    return ssl.DER_cert_to_PEM_cert(der).replace("CERTIFICATE", kind)
