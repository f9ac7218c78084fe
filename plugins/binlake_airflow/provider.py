"""What Airflow asks an installed provider for."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

STOCK = "apache-airflow-providers-mysql"
"""Airflow's own provider of the connection type mysql."""


def get_provider_info() -> dict[str, Any]:
    """Entry point ``apache_airflow_provider``. Airflow reads it in every process: it imports nothing of ours.

    The type ``mysql`` is ours only where the stock provider isn't there. Of two that claim it Airflow takes the first,
    warns in every process, and gives the first one's form the fields of the second (``ProvidersManager`` of 3.3.2).
    The fields are the same, so connections made with either are good for both.
    """
    return {
        "package-name": "binlake",
        "name": "binlake",
        "description": "MySQL and MariaDB tables mirrored into Delta Lake",
        "versions": [version("binlake")],
        "extra-links": ["binlake_airflow.links.PageLink", "binlake_airflow.links.SparkLink"],
        "connection-types": [] if _is_installed(STOCK) else [_MYSQL],
    }


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
}


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
