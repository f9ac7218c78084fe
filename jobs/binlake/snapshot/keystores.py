"""Certificates for Connector/J: Java wants PKCS12 where the connection names PEM.

A store is made in a private folder of the driver, and shipped to the executors of a cluster. Anybody there may read it,
so a client's key is encrypted in it. Its password is passed like the account's own: as an option of the reader.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from binlake.caches import once
from binlake.errors import ConfigurationError
from binlake.spark import trust

if TYPE_CHECKING:
    from pyspark import SparkContext

_TRUSTED, _CLIENT = "trustCertificateKeyStore", "clientCertificateKeyStore"
_PASSWORD = secrets.token_urlsafe(24)


def trusting(ca: str) -> dict[str, str]:
    """Return Connector/J's options that trust the authorities of a PEM file. Raises ConfigurationError."""
    return _store(_TRUSTED, _trust_store(ca))


def client(cert: str, key: str) -> dict[str, str]:
    """Return Connector/J's options for a client certificate and its key. Raises ConfigurationError."""
    return _store(_CLIENT, _key_store(cert, key))


def shipped(context: SparkContext, options: dict[str, str]) -> dict[str, str]:
    """Ship the stores among ``options`` to the executors; return their URL options relative to the working folder."""
    urls = {f"{kind}Url": options[f"{kind}Url"] for kind in (_TRUSTED, _CLIENT) if f"{kind}Url" in options}
    for url in urls.values():
        context.addFile(url)
    return {option: f"file:{url.rpartition('/')[2]}" for option, url in urls.items()}


def _store(option: str, path: str) -> dict[str, str]:
    return {f"{option}Url": Path(path).as_uri(), f"{option}Type": "PKCS12", f"{option}Password": _PASSWORD}


@once
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="binlake-tls-")  # only its owner may enter


@once
def _trust_store(ca: str) -> str:
    data = trust.pkcs12(ca, _PASSWORD, "fix ssl.ca of the connection")
    return _write("trust", data)


@once
def _key_store(cert: str, key: str) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        load_pem_private_key,
        pkcs12,
    )

    try:
        ssl.create_default_context().load_cert_chain(cert, key)
        private = load_pem_private_key(Path(key).read_bytes(), None)
        chain = x509.load_pem_x509_certificates(Path(cert).read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"can't read the client certificate {cert}: {error}", remedy="fix ssl.cert and ssl.key"
        ) from error
    encryption = BestAvailableEncryption(_PASSWORD.encode())
    data = pkcs12.serialize_key_and_certificates(b"client", private, chain[0], chain[1:], encryption)  # type: ignore[arg-type]
    return _write("client", data)


def _write(name: str, data: bytes) -> str:
    """Write a store and return its path. The name depends on the content, as a process may use several sources."""
    path = Path(_folder().name) / f"{name}-{sha256(data).hexdigest()[:16]}.p12"
    path.write_bytes(data)
    path.chmod(0o600)
    return str(path)
