"""Certificates for tests: an authority of its own, and a chain for localhost and 127.0.0.1 that it signed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files, as PEM."""

    authority: Path
    chain: Path
    key: Path


def certificates(directory: Path) -> Certificates:
    """Make an authority and a certificate for this machine."""
    directory.mkdir(parents=True, exist_ok=True)
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = _name("tests of Detent")
    authority = _built(root, root, root_key.public_key())
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    own = _built(_name("localhost"), root, key.public_key())
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(one)) for one in ("127.0.0.1", "::1"))]
    own = own.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = Certificates(directory / "authority.pem", directory / "chain.pem", directory / "key.pem")
    for path, builder in ((made.authority, authority), (made.chain, own)):
        signed = builder.sign(root_key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _built(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
    )
