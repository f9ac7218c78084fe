"""Information that Airflow asks an installed provider for."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from binlake_airflow import supported

_MODULES = {
    "operators": ["binlake_airflow.operators", "binlake_airflow.upkeep", "binlake_airflow.feeding"],
    "sensors": ["binlake_airflow.sensors"],
    "hooks": ["binlake_airflow.hook"],
}
STOCK = "apache-airflow-providers-mysql"
"""Airflow's own provider of the connection type mysql."""


def get_provider_info() -> dict[str, Any]:
    """Return the provider's information, for the entry point ``apache_airflow_provider``.

    Airflow calls this in every process, so it imports nothing of the engine that takes long. Where binlake can't work
    in this Airflow, it names no class that Airflow would import. The connection type ``mysql`` is only
    provided if the stock provider isn't installed: of two providers Airflow takes the first, warns in every process,
    and mixes up their forms (``ProvidersManager`` of 3.3.2). The fields are the same, so connections made with either
    work for both.
    """
    about = {
        "package-name": "binlake",
        "name": "binlake",
        "description": "MySQL and MariaDB tables mirrored into Delta Lake",
        "versions": [version("binlake")],
    }
    if supported.problem():
        return about
    return {
        **about,
        **{kind: [{"integration-name": "binlake", "python-modules": modules}] for kind, modules in _MODULES.items()},
        "integrations": [{"integration-name": "binlake", "tags": ["service"]}],
        "extra-links": ["binlake_airflow.links.PageLink", "binlake_airflow.links.SparkLink"],
        "connection-types": [] if _is_installed(STOCK) else [_MYSQL],
    }


def _text(label: str, description: str) -> dict[str, Any]:
    """Return an optional text field of the form."""
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}


_MYSQL = {
    "hook-class-name": "binlake_airflow.hook.BinlakeHook",
    "connection-type": "mysql",
    "hook-name": "MySQL",
    "ui-field-behaviour": {
        "hidden-fields": ["schema"],
        "placeholders": {
            "port": "3306",
            "extra": '{"ssl": {"ca": "/path/to/ca.pem"}}',
        },
    },
    "conn-fields": {
        "ssl_ca": _text("TLS: authority", "Path of the PEM file with the authority of the server's certificate."),
        "ssl_cert": _text("TLS: certificate", "Path of this client's own, where the server asks for one."),
        "ssl_key": _text("TLS: key", "Path of the certificate's private key."),
        "ssl_verify_mode": {
            **_text("TLS: verify", "none: encrypted, whoever the server is. Empty: as required, once TLS is set."),
            "schema": {"type": ["string", "null"], "enum": ["required", "none", None]},
        },
        "ssl_check_hostname": {
            **_text("TLS: name", "false: the certificate is verified, but not that it is made out to the host."),
            "schema": {"type": ["string", "null"], "enum": ["true", "false", None]},
        },
    },
}
"""The connection form. TLS_FIELDS of ``binlake.source.connection``, which reads the extra, lists its TLS fields."""


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
