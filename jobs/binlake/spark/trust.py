"""Authorities in a PEM file as Java reads them: PKCS12. Imports no pyspark, as settings.py.

pyarrow, obstore and deltalake trust those of SSL_CERT_FILE, in the place of the system's; Java gets them from here.
"""

from __future__ import annotations

import tempfile
from hashlib import sha256
from pathlib import Path

from binlake.caches import once
from binlake.errors import ConfigurationError
from binlake.storage import stores

VARIABLE = "SSL_CERT_FILE"
_PASSWORD = "binlake"
"""Nothing in the store is secret, but Java reads none without a password."""


def pkcs12(pem: str, password: str, remedy: str) -> bytes:
    """Make a trust store with all certificates of a file. Raises ConfigurationError."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12 as form

    try:
        certificates = x509.load_pem_x509_certificates(Path(pem).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"can't read the certificates in {pem}: {error}", remedy=remedy) from error
    trusted = [form.PKCS12Certificate(certificate, f"ca{n}".encode()) for n, certificate in enumerate(certificates)]
    return form.serialize_java_truststore(trusted, BestAvailableEncryption(password.encode()))


def store_for(lake: str) -> Path | None:
    """Return the file in which Java finds the authorities of the lake's store; None where the system's are trusted.

    Raises ConfigurationError.
    """
    pem = authorities(lake)
    return _made(pem) if pem else None


def authorities(lake: str) -> str:
    """Return the PEM file of authorities; empty where the system's are trusted."""
    return stores.at(lake).authorities if stores.store_of(lake) else ""


@once
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="binlake-trust-")


@once
def _made(pem: str) -> Path:
    """Write the PEM file's authorities as PKCS12, and return the path: its name depends on the content alone, for the
    driver's JVM may be another process's child than the session."""
    data = pkcs12(pem, _PASSWORD, f"fix {VARIABLE}")
    made = Path(_folder().name) / f"trusted-{sha256(Path(pem).read_bytes()).hexdigest()[:16]}.p12"
    made.write_bytes(data)
    return made


def java_options(store: str) -> list[str]:
    """Return the options by which a JVM trusts a store of authorities.

    store: its path; for executors, which have it in their working folder, its name.
    """
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]
