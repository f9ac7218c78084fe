"""The connection type mysql: ours where nobody else has it, and the stock provider's where that is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import airflow
import pytest

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
ours = of_tasks = ProvidersManager()
try:
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
    of_tasks = ProvidersManagerTaskRuntime()
except ImportError:
    assert __import__("airflow").__version__.startswith("3.1."), "tasks have a manager of their own since 3.2"
ours.initialize_providers_hooks()
of_3_2 = "_connection_form_widgets_from_metadata" not in dir(ours)
fields = ours.connection_form_widgets if of_3_2 else ours._connection_form_widgets_from_metadata
hooks = [manager.hooks["mysql"] for manager in (ours, of_tasks)]
print(json.dumps({
    "classes": [hook.hook_class_name for hook in hooks],
    "form": ours.field_behaviours.get("mysql"),
    "fields": sorted(
        field.field_name for name, field in fields.items() if "__mysql__" in name
    ),
    "claims": [kind["connection-type"] for kind in ours.providers["binlake"].data["connection-types"]],
}))
"""
WRONG = """
import asyncio, json, logging
from binlake_airflow.plugin import BinlakePlugin
from binlake_airflow.provider import get_provider_info

logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("binlake_airflow.plugin").addHandler(handler)
BinlakePlugin.on_load()
sent = []

async def send(message):
    sent.append(message)

async def receive():
    return {"type": "http.request", "body": b""}

asyncio.run(BinlakePlugin.fastapi_apps[0]["app"]({"type": "http", "path": "/"}, receive, send))
try:
    import binlake_airflow.pipelines
except Exception as error:
    raised = str(error)
print(json.dumps({
    "info": sorted(get_provider_info()), "log": "".join(logged), "dag file": raised,
    "page": [sent[0]["status"], sent[1]["body"].decode()],
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


def test_an_airflow_that_is_too_old_is_named_and_a_newer_one_warned_of() -> None:
    for old in ("3.0.6", "2.11.0"):
        error = supported.too_old(old)
        assert error is not None
        assert f"needs Airflow 3.1 or later, and this is {old}" in error.message
        assert "pip install 'apache-airflow>=3.1'" in error.remedy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tried in ("3.1.0", "3.3.0rc1", "3.3.2", airflow.__version__):
            assert supported.too_old(tried) is None
    with pytest.warns(UserWarning, match=r"tested with Airflow up to 3\.3, and this is 3\.10\.0"):
        assert supported.too_old("3.10.0") is None
    assert supported.problem() is None


def test_the_range_of_airflows_is_what_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["airflow"]
    minor = ".".join(map(str, supported.OLDEST))
    assert f"apache-airflow>={minor}" in declared
    assert supported.OLDEST <= tuple(int(part) for part in airflow.__version__.split(".")[:2]) <= supported.NEWEST


def without(folder: Path, package: str) -> Path:
    """A folder of packages in which one has a version that is too old."""
    info = folder / f"{package.replace('-', '_')}-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
    return folder


@pytest.mark.parametrize("package", ["apache-airflow-providers-apache-spark", "deltalake"])
def test_what_does_not_fit_costs_binlake_alone(tmp_path: Path, package: str) -> None:
    """Of the provider nothing is left that Airflow would import; a DAG file and the page say what is missing."""
    path = os.pathsep.join([str(without(tmp_path, package)), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", WRONG], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    sentence = f"{package} 0.0.1 is installed, and binlake needs {package}"
    assert said["info"] == ["description", "name", "package-name", "versions"]
    assert sentence in said["dag file"]
    assert "pip install" in said["dag file"]
    assert sentence in said["log"]
    status, page = said["page"]
    assert status == 503
    assert sentence in page
    assert "Nothing else of Airflow is concerned" in page


def test_alone_it_brings_the_connection_type() -> None:
    provided, _ = asked()
    assert provided["classes"] == ["binlake_airflow.hook.BinlakeHook"] * 2
    if airflow.__version__.startswith("3.1."):  # its forms are made of wtforms' fields by the hook's class
        assert (provided["form"], provided["fields"]) == (None, [])
        return
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


def test_names_that_versions_keep_in_different_places_come_by_one_module() -> None:
    """Elsewhere they warn on one version of Airflow, and are missing on the next."""
    plugin = ROOT / "plugins" / "binlake_airflow"
    moved = re.compile(r"^\s*(?:from|import) airflow\.(?:exceptions|sdk|timetables|models\.param)\b", re.MULTILINE)
    files = [file for file in plugin.rglob("*.py") if "example_dags" not in file.parts and file.name != "compat.py"]
    assert [file.name for file in files if moved.search(file.read_text())] == []
