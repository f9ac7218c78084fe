"""What Airflow asks an installed provider for."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Entry point ``apache_airflow_provider``. Airflow reads it in every process: it imports nothing of ours."""
    return {
        "package-name": "binlake",
        "name": "binlake",
        "description": "MySQL and MariaDB tables mirrored into Delta Lake",
        "versions": [version("binlake")],
        "connection-types": [
            {
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
        ],
    }
