"""The connection type mysql: ours where nobody else has it, and the stock provider's where that is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from binlake.source.connection import TLS_FIELDS

STOCK = {
    "METADATA": "Metadata-Version: 2.1\nName: apache-airflow-providers-mysql\nVersion: 99.0\n",
    "entry_points.txt": "[apache_airflow_provider]\nprovider_info = airflow.providers.mysql:get_provider_info\n",
    "RECORD": "",
}
STOCK_CODE = """
def get_provider_info():
    return {
        "package-name": "apache-airflow-providers-mysql", "name": "MySQL", "description": "MySQL",
        "connection-types": [{
            "hook-class-name": "airflow.providers.mysql.MySqlHook", "hook-name": "MySQL", "connection-type": "mysql"
        }],
    }

class MySqlHook:
    conn_name_attr, default_conn_name, conn_type, hook_name = "mysql_conn_id", "mysql_default", "mysql", "MySQL"
"""
ASK = """
import json
from airflow.providers_manager import ProvidersManager
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
ours, of_tasks = ProvidersManager(), ProvidersManagerTaskRuntime()
ours.initialize_providers_hooks()
hooks = [manager.hooks["mysql"] for manager in (ours, of_tasks)]
print(json.dumps({
    "classes": [hook.hook_class_name for hook in hooks],
    "form": ours.field_behaviours.get("mysql"),
    "fields": sorted(
        one.field_name for name, one in ours._connection_form_widgets_from_metadata.items() if "__mysql__" in name
    ),
    "claims": [one["connection-type"] for one in ours.providers["binlake"].data["connection-types"]],
}))
"""


def asked(*folders: Path) -> tuple[dict[str, Any], str]:
    """What Airflow finds, with these folders among its packages, and all it said."""
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stdout.splitlines() if line.startswith('{"classes"')]
    found: dict[str, Any] = json.loads(told)
    return found, done.stdout + done.stderr


def test_alone_it_brings_the_connection_type() -> None:
    found, _ = asked()
    assert found["classes"] == ["binlake_airflow.hook.BinlakeHook"] * 2
    assert found["form"]["hidden_fields"] == ["schema"]
    assert found["fields"] == sorted(TLS_FIELDS)


def test_beside_the_stock_provider_it_claims_nothing(tmp_path: Path) -> None:
    info = tmp_path / "apache_airflow_providers_mysql-99.0.dist-info"
    package = tmp_path / "airflow" / "providers" / "mysql"
    info.mkdir()
    package.mkdir(parents=True)
    for name, text in STOCK.items():
        (info / name).write_text(text)
    (package / "__init__.py").write_text(STOCK_CODE)
    found, said = asked(tmp_path)
    assert found == {"classes": ["airflow.providers.mysql.MySqlHook"] * 2, "form": None, "fields": [], "claims": []}
    assert "already registered" not in said
