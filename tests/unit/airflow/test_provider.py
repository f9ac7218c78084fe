"""The connection type mysql: ours where nobody else has it, and the stock provider's where that is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import airflow
import pytest

from binlake.errors import ConfigurationError
from binlake.source.connection import TLS_FIELDS
from binlake_airflow import supported

ROOT = Path(__file__).parents[3]

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
        field.field_name for name, field in ours._connection_form_widgets_from_metadata.items() if "__mysql__" in name
    ),
    "claims": [kind["connection-type"] for kind in ours.providers["binlake"].data["connection-types"]],
}))
"""


def asked(*folders: Path) -> tuple[dict[str, Any], str]:
    """What Airflow finds, with these folders among its packages, and all it said."""
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith('{"classes"')]
    provided: dict[str, Any] = json.loads(line)
    return provided, done.stdout + done.stderr


def test_an_airflow_that_is_too_old_is_refused_and_a_newer_one_warned_of() -> None:
    with pytest.raises(ConfigurationError, match=r"needs Airflow 3\.3 or later, and this is 3\.2\.9"):
        supported.check("3.2.9")
    with pytest.raises(ConfigurationError, match=r"this is 2\.11\.0"):
        supported.check("2.11.0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tried in ("3.3.0rc1", "3.3.2", airflow.__version__):
            supported.check(tried)
    with pytest.warns(UserWarning, match=r"tested with Airflow up to 3\.3, and this is 3\.10\.0"):
        supported.check("3.10.0")


def test_the_range_of_airflows_is_what_is_declared_and_said() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["airflow"]
    (version,) = (line.removeprefix("apache-airflow==") for line in declared if line.startswith("apache-airflow=="))
    assert supported.OLDEST <= tuple(int(part) for part in version.split(".")[:2]) <= supported.NEWEST
    minor = ".".join(map(str, supported.OLDEST))
    said = f"binlake works with Airflow {minor}; all tests run on {version}."
    assert said in (ROOT / "plugins" / "README.md").read_text()


def test_alone_it_brings_the_connection_type() -> None:
    provided, _ = asked()
    assert provided["classes"] == ["binlake_airflow.hook.BinlakeHook"] * 2
    assert provided["form"]["hidden_fields"] == ["schema"]
    assert provided["fields"] == sorted(TLS_FIELDS)


def test_beside_the_stock_provider_it_claims_nothing(tmp_path: Path) -> None:
    info = tmp_path / "apache_airflow_providers_mysql-99.0.dist-info"
    package = tmp_path / "airflow" / "providers" / "mysql"
    info.mkdir()
    package.mkdir(parents=True)
    for name, text in STOCK.items():
        (info / name).write_text(text)
    (package / "__init__.py").write_text(STOCK_CODE)
    provided, said = asked(tmp_path)
    assert provided == {"classes": ["airflow.providers.mysql.MySqlHook"] * 2, "form": None, "fields": [], "claims": []}
    assert "already registered" not in said
