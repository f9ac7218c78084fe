"""Authorities that a store's server is trusted by."""

from __future__ import annotations

from collections.abc import Mapping

SYSTEMS_OWN = (
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
)  # fmt: skip
"""Authorities that are trusted without a word."""


def own_authorities(endpoint: str, environment: Mapping[str, str]) -> str:
    """Path of a PEM file with those that are trusted in the place of the system's; empty for these."""
    told = environment.get("SSL_CERT_FILE", "")
    return "" if endpoint.startswith("http://") or told in SYSTEMS_OWN else told
