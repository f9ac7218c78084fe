"""DAGs of two servers' sources that fill one table of the lake, as Airflow runs them at the same time."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_home import AirflowHome
from servers import Server

PASSWORD = "p4ss-of-the-sources"
ROUNDS = 3
YAML = """
source: {{name: {source}, connection: {source}_server, server_id: {number}}}
tables: {{include: ["{stem}_*.*"]}}
lake: {{path: "{lake}"}}
schedule: "0 * * * *"
maintain: {{schedule: null, staging_hours: 24}}
verify: {{schedule: null}}
merge_tables: [{{file: company.yaml}}]
"""
SHARED = """
folder: company
sources: [eu, us]
merge_tables: [{{from: "{stem}_%.orders", into: "all.orders", source_column: tenant, source_name_column: region}}]
"""

pytestmark = [pytest.mark.timeout(1500), pytest.mark.soak]


@pytest.fixture
def servers(mysql_server: Server, mariadb_server: Server) -> dict[str, Server]:
    return {"eu": mysql_server, "us": mariadb_server}


@pytest.fixture
def stem(servers: dict[str, Server]) -> Iterator[str]:
    """The beginning of the names of each server's two databases, in which there is a table orders."""
    name = f"air_{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        for server in servers.values():
            for tenant in (7, 8):
                database = f"{name}_{tenant}"
                server.execute(f"CREATE DATABASE {database}")
                stack.callback(server.execute, f"DROP DATABASE {database}")
                server.execute(
                    "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))",
                    f"INSERT INTO orders VALUES (1, 'a{tenant}'), (2, NULL)",
                    database=database,
                )
        yield name


@pytest.fixture
def airflow(tmp_path: Path, servers: dict[str, Server], stem: str) -> Iterator[AirflowHome]:
    user, connections = f"u_{stem[-8:]}", {}
    for source, server in servers.items():
        server.create_account(user, PASSWORD, ["ALL PRIVILEGES ON *.*"])
        connections[f"AIRFLOW_CONN_{source.upper()}_SERVER"] = f"mysql://{user}:{PASSWORD}@127.0.0.1:{server.port}"
    folder = tmp_path / "airflow"
    folder.mkdir()
    home = AirflowHome(folder, servers["eu"], stem, user, PASSWORD, settings=connections)
    pipelines = home.yaml.parent
    home.yaml.unlink()
    (pipelines / "company.yaml").write_text(SHARED.format(stem=stem))
    for number, source in enumerate(servers, start=4101):
        text = YAML.format(source=source, number=number, stem=stem, lake=folder / "lake")
        (pipelines / f"{source}.yaml").write_text(text)
    yield home
    for server in servers.values():
        server.execute(f"DROP USER {user}")


def test_dags_of_two_sources_at_the_same_time_fill_one_table(
    airflow: AirflowHome, servers: dict[str, Server], stem: str
) -> None:
    airflow.run("dags", "reserialize")  # two processes that note new DAGs at once get into each other's way
    _at_once(airflow, "bootstrap")
    assert _rows(airflow) == _server_rows(servers, stem)
    for number in range(10, 10 + ROUNDS):
        for server in servers.values():
            server.execute(
                f"INSERT INTO {stem}_7.orders VALUES ({number}, 'n')", f"DELETE FROM {stem}_8.orders LIMIT 1"
            )
        _at_once(airflow, "sync")
        assert _rows(airflow) == _server_rows(servers, stem), number


def _at_once(airflow: AirflowHome, step: str) -> None:
    """Run a DAG of both sources in two processes; each of its tasks has to succeed."""
    dags = [f"binlake_{source}_{step}" for source in ("eu", "us")]
    with ThreadPoolExecutor(2) as pool:
        _ = [*pool.map(lambda dag: airflow.run_beside_services("dags", "test", dag), dags)]
    for dag in dags:
        assert set(airflow.states(dag).values()) <= {"success", "skipped"}, airflow.states(dag)


def _rows(airflow: AirflowHome) -> list[tuple[str, str, int, str | None]]:
    table = DeltaTable(os.fspath(airflow.folder / "lake" / "company" / "all" / "orders"))
    rows = QueryBuilder().register("t", table).execute("SELECT region, tenant, id, v FROM t").read_all()
    return sorted(tuple(row.values()) for row in pa.table(rows).to_pylist())


def _server_rows(servers: dict[str, Server], stem: str) -> list[tuple[str, str, int, str | None]]:
    rows: list[tuple[str, str, int, str | None]] = []
    for source, server in servers.items():
        for tenant in ("7", "8"):
            found = server.execute(f"SELECT id, v FROM {stem}_{tenant}.orders")
            rows += [(source, tenant, number, text) for number, text in found]
    return sorted(rows)
