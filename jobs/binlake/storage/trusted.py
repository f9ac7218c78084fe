"""Certificate authorities that a store's server is trusted by."""

from __future__ import annotations

from collections.abc import Mapping

SYSTEMS_OWN = (
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
)  # fmt: skip
"""Files of the system's authorities, which all libraries trust by themselves."""


def own_authorities(endpoint: str, environment: Mapping[str, str]) -> str:
    """Return the path of a PEM file with the authorities that are trusted in the place of the system's; empty for
    these."""
    file = environment.get("SSL_CERT_FILE", "")
    return "" if endpoint.startswith("http://") or file in SYSTEMS_OWN else file
