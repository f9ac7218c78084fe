"""Tasks that somebody ends in Airflow's UI while Spark runs: the JVM goes with them, and the next run is good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import comparison
from airflow_home import AirflowHome, wait_for
from binlake.config import PipelineConfig, load
from binlake.schema.table import TableName
from servers import Server

SOURCES = ("shop", "bank")
PASSWORD = "p4ssword-7f3a"
pytestmark = [pytest.mark.timeout(1500), pytest.mark.soak]


@pytest.fixture
def home(tmp_path: Path, mariadb_server: Server) -> Iterator[AirflowHome]:
    """Two sources on one server, whose merges all want Spark; nothing is scheduled."""
    mariadb_server.create_account("u_kills", PASSWORD, ["ALL PRIVILEGES ON *.*"])
    for source in SOURCES:
        mariadb_server.execute(f"CREATE DATABASE kills_{source}", f"CREATE TABLE kills_{source}.t (id INT PRIMARY KEY)")
    (folder := tmp_path / "airflow").mkdir()
    made = AirflowHome(folder, mariadb_server, "kills_shop", "u_kills", PASSWORD)
    text = made.yaml.read_text().replace('schedule: "0 * * * *"\n', "merge: {without_spark_mb: 0}\n")
    made.yaml.write_text(text)
    bank = text.replace("name: shop,", "name: bank,").replace("server_id: 4001", "server_id: 4101")
    made.yaml.with_name("bank.yaml").write_text(bank.replace("kills_shop", "kills_bank"))
    yield made
    mariadb_server.execute(*(f"DROP DATABASE kills_{source}" for source in SOURCES), "DROP USER u_kills")


def config_of(home: AirflowHome, source: str) -> PipelineConfig:
    return load(home.yaml.with_name(f"{source}.yaml"))


def drivers(home: AirflowHome, source: str) -> set[int]:
    """The JVMs of the source's jobs; not those that launch them."""
    pids: set[int] = set()
    file = str(home.yaml.with_name(f"{source}.yaml")).encode()
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        is_java = arguments.partition(b"\0")[0].endswith(b"/java") and b"launcher.Main" not in arguments
        if is_java and file in arguments:
            pids.add(int(entry.name))
    return pids


def called(home: AirflowHome, method: str, path: str, token: str | None, **body: Any) -> Any:
    """Airflow's REST API, as its UI calls it."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = Request(home.url + path, json.dumps(body).encode(), headers, method=method)
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


def run_of(home: AirflowHome, source: str) -> tuple[str, str]:
    """Id and state of the newest sync."""
    sql = "SELECT run_id, state FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1"
    ((run, state),) = home.query(sql, f"binlake_{source}_sync")
    return run, state


def test_two_sources_whose_merges_are_ended_in_the_ui(home: AirflowHome) -> None:
    server = home.server
    for source in SOURCES:
        home.test_dag(f"binlake_{source}_bootstrap")
        server.execute(f"INSERT INTO kills_{source}.t VALUES (1), (2), (3)")
    with home.services():
        name, password = home.admin
        token = called(home, "POST", "/auth/token", None, username=name, password=password)["access_token"]

        def await_state(source: str, state: str) -> None:
            wait_for(f"the sync of {source}", 400, lambda: run_of(home, source)[1] == state)

        for source in SOURCES:
            home.run_beside_services("dags", "trigger", f"binlake_{source}_sync")
        wait_for("both merges at once", 300, lambda: all(drivers(home, source) for source in SOURCES))
        first = {source: drivers(home, source) for source in SOURCES}
        shop, bank = (f"/api/v2/dags/binlake_{source}_sync" for source in SOURCES)
        called(
            home, "PATCH", f"{shop}/dagRuns/{run_of(home, 'shop')[0]}/taskInstances/merge", token, new_state="failed"
        )
        cleared = {"dry_run": False, "only_failed": False, "only_running": False, "task_ids": ["merge"]}
        called(home, "POST", f"{bank}/clearTaskInstances", token, dag_run_id=run_of(home, "bank")[0], **cleared)
        for source in SOURCES:
            wait_for(f"the end of {source}'s JVM", 90, lambda it=source: not first[it] & drivers(home, it))
        await_state("bank", "success")  # the cleared task runs once more
        await_state("shop", "failed")
        home.run_beside_services("dags", "trigger", "binlake_shop_sync")
        await_state("shop", "success")
    assert not any(drivers(home, source) for source in SOURCES)
    for source in SOURCES:
        path = config_of(home, source).table_path(TableName(f"kills_{source}", "t"))
        comparison.assert_equal(server, f"kills_{source}", "t", path)
