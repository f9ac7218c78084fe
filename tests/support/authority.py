"""An authority that signs certificates for TLS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """Signs certificates; its own is ``pem``."""

    pem: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def made(cls, folder: Path, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(name, key, name, key, x509.BasicConstraints(ca=True, path_length=None))
        pem = folder / f"{name}.pem"
        pem.write_bytes(certificate.public_bytes(Encoding.PEM))
        return cls(pem, key, certificate)

    def sign(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of who is called ``name`` and lives at 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        issuer = self.pem.stem
        files = self.pem.with_name(f"{name}.crt"), self.pem.with_name(f"{name}.key")
        files[0].write_bytes(_certificate(name, key, issuer, self.key, here).public_bytes(Encoding.PEM))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuers_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(extension, critical=False)
        .sign(issuers_key, hashes.SHA256())
    )
