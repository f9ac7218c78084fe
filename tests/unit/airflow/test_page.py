"""The page's data, asked of Airflow's own API server: who gets it, and whether it is what the metadata says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.utils import db
from airflow.utils.session import create_session
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from binlake import config
from binlake.batch.steps import Life
from binlake.schema.table import Column, TableName
from binlake.state import watermarks
from binlake.state.metadata import Metadata, now_us
from binlake.state.remembered import RememberedMetadata
from binlake.state.status import SnapshotStatus, SourceStatus
from binlake_airflow.page import answers
from binlake_airflow.page.answers import MINUTE
from binlake_airflow.page.app import STATIC
from binlake_airflow.page.health import DagState, advise, health
from binlake_airflow.plugin import BinlakePlugin
from past import SCHEMA, Past

YAML = """
source: {{name: {name}, connection: {name}_mysql, server_id: 4001}}
tables: {{include: ["{name}.*"]}}
lake: {{path: "{lake}"}}
schedule: "0 * * * *"
"""
VALUES = {"source": "shop", "table": "shop.table_0001", "batch": "2"}
"""Of the routes' parameters, where each names something that is there."""


class OneSourceOnly(SimpleAuthManager):
    """Of the role user it lets each read the DAGs that have his name."""

    def is_authorized_dag(self, *, method: Any, user: Any, details: Any = None, **others: Any) -> bool:
        if user.role != "USER":
            return super().is_authorized_dag(method=method, user=user, details=details, **others)
        return bool(details and details.id and details.id.startswith(f"binlake_{user.username}_"))

    def is_authorized_view(self, *, user: Any, **others: Any) -> bool:
        return user.role != "USER" and super().is_authorized_view(user=user, **others)


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """Airflow's whole app, with plugins, middlewares and a database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__AUTH_MANAGER", f"{__name__}.OneSourceOnly")
        patch.setitem(sys.modules, __name__, sys.modules.get(__name__) or sys.modules[OneSourceOnly.__module__])
        airflow_app.purge_cached_app()
        db.initdb()
        yield airflow_app.create_app("core")
        airflow_app.purge_cached_app()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "pipelines"
    made.mkdir()
    monkeypatch.setenv("AIRFLOW__BINLAKE__PIPELINES", str(made))
    return made


def add(folder: Path, name: str = "shop") -> Past:
    """A source of the folder, with nothing in its lake yet."""
    file = folder / f"{name}.yaml"
    file.write_text(YAML.format(name=name, lake=folder.parent / "lake"))
    return Past(config.load(file), now_us() - 5 * MINUTE)


def client(server: Any, name: str | None, role: str | None = None) -> TestClient:
    """name: None for who isn't logged in."""
    headers = {}
    if name:
        user = SimpleAuthManagerUser(username=name, role=role)
        headers["Authorization"] = f"Bearer {airflow_app.get_auth_manager().generate_jwt(user)}"
    return TestClient(server, headers=headers, raise_server_exceptions=False)


def viewer(server: Any) -> TestClient:
    return client(server, "ada", "VIEWER")


def routes() -> list[str]:
    """Every route of the page's app, each with names of what is there."""
    (entry,) = BinlakePlugin.fastapi_apps
    found = [route.path for route in entry["app"].app().routes if isinstance(route, APIRoute)]
    assert len(found) == len(entry["app"].app().routes), "a route of another kind has no guard"
    return ["/binlake" + re.sub(r"{(\w+)(:\w+)?}", lambda match: VALUES[match[1]], path) for path in found]


def get(client: TestClient, path: str, status: int = 200) -> Any:
    answer = client.get(f"/binlake/api/{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def test_each_route_is_for_those_alone_who_may_read_it(server: Any, folder: Path) -> None:
    add(folder).write()
    add(folder, "bank")
    asked = routes()
    assert {"/binlake/", "/binlake/api/sources", "/binlake/api/sources/shop/runs/2"} <= set(asked)
    without_role, nobody, reader = client(server, "eve", None), client(server, "nobody", "USER"), viewer(server)
    own, of_another = client(server, "shop", "USER"), client(server, "bank", "USER")
    for path in asked:
        assert client(server, None).get(path).status_code == 401, path
        assert client(server, None).get(path, headers={"Authorization": "Bearer x"}).status_code in (401, 403), path
        assert without_role.get(path).status_code == 403, path
        assert nobody.get(path).status_code == 403, path
        assert of_another.get(path).status_code == (403 if "/sources/shop" in path else 200), path
        for one in (reader, own):
            answer = one.get(path)
            assert answer.status_code == 200, (path, answer.text)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy


def test_of_several_sources_each_sees_his_own(server: Any, folder: Path) -> None:
    for name in ("shop", "bank"):
        add(folder, name)
    (folder / "broken.yaml").write_text("source: {name: broken}\n")

    def seen(client: TestClient) -> list[str]:
        return [one["source"] for one in get(client, "sources")["sources"]]

    assert seen(viewer(server)) == ["bank", "shop", "broken"]
    assert seen(client(server, "bank", "USER")) == ["bank"]
    get(client(server, "bank", "USER"), "sources/shop", 403)
    get(client(server, "bank", "USER"), "sources/unknown", 403)


def test_what_isnt_there_is_told(server: Any, folder: Path) -> None:
    add(folder).write()
    user = viewer(server)
    assert "no source 'unknown'" in get(user, "sources/unknown", 404)["detail"]
    assert "no table 'shop.unknown'" in get(user, "sources/shop/tables/shop.unknown", 404)["detail"]
    assert "no batch 99" in get(user, "sources/shop/runs/99", 404)["detail"]
    get(user, f"sources/shop/runs/{10**30}", 422)


def test_a_broken_file_hides_no_other(server: Any, folder: Path) -> None:
    add(folder).write()
    (folder / "bank.yaml").write_text("source: {name: bank, connection: x, server_id: 1}\ntabels: {}\n")
    bad = add(folder, "damaged")
    Path(bad.config.root).parent.mkdir(exist_ok=True)
    Path(bad.config.root).write_text("a file in the folder's place")
    found = {one["source"]: one for one in get(viewer(server), "sources")["sources"]}
    assert found["shop"]["health"] == "good"
    assert "tabels: Extra inputs" in found["bank"]["error"]["detail"]
    assert found["bank"]["error"]["remedy"]
    assert "isn't a folder" in found["damaged"]["error"]["detail"]
    assert "tabels" in get(viewer(server), "sources/bank/tables", 409)["detail"]
    told = get(viewer(server), "sources/damaged/tables", 503)
    assert "isn't a folder" in told["detail"]
    assert told["remedy"]


def test_the_page_takes_nothing_from_outside_and_data_as_text_alone() -> None:
    for file in STATIC.iterdir():
        text = file.read_text()
        assert not re.search(r"""[a-z]+://|["'(]//""", text), f"{file.name} has an address"
        for unsafe in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick="):
            assert unsafe not in text, f"{file.name}: {unsafe}"


def test_before_the_first_snapshot(server: Any, folder: Path) -> None:
    assert get(viewer(server), "sources")["sources"] == []
    add(folder)
    (found,) = get(viewer(server), "sources")["sources"]
    assert (found["health"], found["position"], found["table_counts"]) == ("new", None, {})
    assert "binlake_shop_bootstrap" in found["advice"][0]["remedy"]
    assert get(viewer(server), "sources/shop/tables")["tables"] == []
    assert get(viewer(server), "sources/shop/runs")["runs"] == []


@pytest.fixture
def bootstrap_dag(server: Any) -> Iterator[DagModel]:
    """As the DAG processor leaves it for the scheduler."""
    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
        session.flush()
        dag = DagModel(dag_id="binlake_shop_bootstrap", bundle_name="dags-folder", is_paused=True, is_stale=False)
        session.add(dag)
        session.commit()
        yield dag
        session.delete(dag)


def test_a_paused_dag_is_named(server: Any, folder: Path, bootstrap_dag: DagModel) -> None:
    add(folder)
    found = get(viewer(server), "sources/shop")
    assert found["dags"] == {
        "bootstrap": {"dag_id": bootstrap_dag.dag_id, "is_paused": True, "next_run_us": None}
    }  # fmt: skip
    assert found["advice"][0]["remedy"] == "unpause the DAG binlake_shop_bootstrap and trigger it"


NOW = datetime(2026, 3, 1, 12, 10, tzinfo=UTC)


def standing(**changes: Any) -> SourceStatus:
    """A source that the noon's run carried to its start."""
    carried = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1e6)
    return replace(SourceStatus("shop", 7, "s/b.000001:4@1", None, None, (), None, carried_us=carried), **changes)


@pytest.mark.parametrize(
    ("found", "after", "paused", "said"),
    [
        (standing(), timedelta(0), False, []),
        (standing(), timedelta(hours=2), False, []),
        (standing(), timedelta(hours=2, minutes=6), False, ["bad: it is more than a run behind its schedule"]),
        (standing(), timedelta(0), True, ["warn: nothing carries it forward: its sync is paused"]),
        (standing(position=None), timedelta(9), False, ["new: no table has a snapshot yet"]),
        (
            standing(tables=({"status": "stopped"}, {"status": "paused"}, {"status": "paused"})),
            timedelta(0),
            False,
            ["bad: 1 table is stopped", "warn: 2 tables are paused"],
        ),
        (
            standing(poison=({"reason": "an event nobody can read", "remedy": "skip it"},)),
            timedelta(0),
            False,
            ["bad: the run is stopped by an event nobody can read"],
        ),
        (
            standing(snapshots=(SnapshotStatus("shop.a", 3, 1, 9),)),
            timedelta(0),
            False,
            ["warn: the snapshot of shop.a isn't finished: 1 of 3 chunks"],
        ),
    ],
)
def test_what_is_said_of_a_source(found: SourceStatus, after: timedelta, paused: bool, said: list[str]) -> None:
    dags = {"sync": DagState("binlake_shop_sync", paused, None)}
    advice = advise(found, schedule="0 * * * *", dags=dags, now=NOW + after)
    assert [f"{one.health}: {one.what}" for one in advice] == said
    assert all(one.remedy for one in advice)
    assert health(advice) == (said[0].partition(":")[0] if said else "good")


def test_the_numbers_are_those_of_the_metadata(server: Any, folder: Path) -> None:
    past = replace(add(folder), batches=30).write()
    stopped = next(row for row in watermarks.read(past.metadata) if row["table"] == "table_0002")
    told = {"status": "stopped", "reason": "no such type", "remedy": "snapshot it again"}
    watermarks.write(past.metadata, [{**stopped, **told}])
    past.metadata.append("ddl_history", [{
        "batch": 4, "file": "binlog.000001", "offset": 9, "position": str(past.position(4)), "database": "shop",
        "table": "table_0001", "statement": "ALTER TABLE <b>x</b>", "kind": "ALTER TABLE", "action": "followed",
        "committed_us": past.ended_us(4),
    }])  # fmt: skip
    compared = {"verification": "v", "database": "shop", "table": "table_0001", "source_rows": 9, "lake_rows": 8}
    past.metadata.append("verifications", [
        {**compared, "at_us": at, "batch": at, "differing": at - 1, "equal": at == 1} for at in (1, 2)
    ])  # fmt: skip
    grown = replace(SCHEMA, columns=(*SCHEMA.columns, Column("price", "decimal", precision=9, scale=2)))
    life = Life("life-shop.table_0001", past.names[1], grown, past.position(0), past.position(0))
    # Numbers of files start again where a replica takes over.
    past.metadata.append("schemas", [
        {**watermarks.schema_row(life, batch=4, where=past.position(0), why="followed"), "file_number": 0}
    ])  # fmt: skip
    user = viewer(server)

    source = get(user, "sources/shop")
    assert (source["batch"], source["position"]) == (30, str(past.position(30)))
    assert source["carried_us"] == past.batch(30)["planned_us"]
    assert (source["last_run"]["batch"], source["table_counts"]) == (30, {"following": 2, "stopped": 1})
    assert source["health"] == "bad"
    assert source["rows_changed"] == {
        "hour": past.run(30)["mutations"], "day": sum(past.run(batch)["mutations"] for batch in range(7, 31)),
    }  # fmt: skip

    tables = {row["table"]: row for row in get(user, "sources/shop/tables")["tables"]}
    assert tables["shop.table_0002"].items() >= told.items()
    in_a_day = [one for batch in range(7, 31) for one in past.did(batch) if one.table == "shop.table_0001"]
    assert tables["shop.table_0001"]["day"] == {
        "inserted": sum(one.inserted for one in in_a_day), "updated": len(in_a_day), "deleted": 0,
        "ended_us": past.ended_us(30),
    }  # fmt: skip
    assert tables["shop.table_0001"]["batch"] == 30

    table = get(user, "sources/shop/tables/shop.table_0001")
    assert [column["type"] for column in table["schema"]["columns"]] == ["int", "varchar(40)", "decimal(9,2)"]
    assert table["verified"] == {
        "at_us": 2, "batch": 2, "equal": False, "differing": 1, "source_rows": 9, "lake_rows": 8
    }  # fmt: skip
    assert [one["statement"] for one in table["history"]] == ["ALTER TABLE <b>x</b>"]
    did = [batch for batch in range(30, 0, -1) if "shop.table_0001" in {one.table for one in past.did(batch)}]
    assert [(run["batch"], run["inserted"]) for run in table["runs"]] == [(batch, batch) for batch in did]

    runs = get(user, "sources/shop/runs?count=10")["runs"]
    assert [run["batch"] for run in runs] == list(range(30, 20, -1))
    older = get(user, f"sources/shop/runs?count=10&before_us={runs[-1]['ended_us']}")["runs"]
    assert [run["batch"] for run in older] == list(range(20, 10, -1))

    run = get(user, "sources/shop/runs/30")
    assert (run["range"]["start"], run["range"]["stop"]) == (str(past.position(29)), str(past.position(30)))
    assert run["phases"] == {"plan": 0.1, "stage": 1.5, "merge": 3.25}
    assert [one["inserted"] for one in run["tables"]] == [30, 30]


def test_names_with_anything_in_them(server: Any, folder: Path) -> None:
    past = add(folder).write()
    row = next(iter(watermarks.read(past.metadata)))
    odd = TableName("shop", '100% "o\'dd"/\\ tåble?')
    watermarks.write(past.metadata, [{**row, "table": odd.table}])
    run = past.run(3)
    tables = run["tables"].replace("shop.table_0000", 'shop.100% \\"o\'dd\\"/\\\\ tåble?')
    past.metadata.replace("runs", "batch = 3", [{**run, "tables": tables}])
    path = "sources/shop/tables/shop.100%25%20%22o'dd%22%2F%5C%20t%C3%A5ble%3F"
    found = get(viewer(server), path)
    assert found["table"] == str(odd)
    assert [one["batch"] for one in found["runs"]] == [3]


def test_a_year_of_hourly_runs_of_a_thousand_tables(server: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    past = replace(add(folder), tables=1000, batches=8760, changed=20).write(commits=12)
    rows: dict[str, int] = {}

    def counted(self: Metadata, name: str, *asked: Any, **chosen: Any) -> list[dict[str, Any]]:
        found = read(self, name, *asked, **chosen)
        rows[name] = rows.get(name, 0) + len(found)
        return found

    read = Metadata.read
    monkeypatch.setattr(Metadata, "read", counted)
    user = viewer(server)
    for path in ("sources", "sources/shop", "sources/shop/runs", "sources/shop/runs/8000"):
        get(user, path)
    assert len(get(user, "sources/shop/tables")["tables"]) == 1000
    get(user, "sources/shop/tables/shop.table_0007")
    assert rows["runs"] <= 1 + 25 + 50 + 1 + 25
    assert rows["batches"] <= 2
    assert rows["schemas"] <= 1

    metadata = answers.metadata_of(past.config)
    asked = metadata.reads
    for _ in range(3):
        get(user, "sources/shop/runs")
        get(user, "sources/shop/tables/shop.table_0007")
    assert metadata.reads - asked <= 1, "nothing is new but the minute"
    past.metadata.append("runs", [{**past.run(8760), "batch": 8761, "run": "new", "ended_us": now_us()}])
    assert get(user, "sources/shop/runs")["runs"][0]["batch"] == 8761


def test_a_lake_that_is_begun_anew_is_seen(folder: Path) -> None:
    past = add(folder)
    metadata = RememberedMetadata(past.config.metadata_path("").rstrip("/"))
    assert metadata.read("runs") == []
    past.metadata.append("runs", [past.run(1)])
    assert [row["batch"] for row in metadata.read("runs")] == [1]
    metadata.read("runs")[0]["batch"] = 99
    assert [row["batch"] for row in metadata.read("runs")] == [1], "rows are the caller's own"
    subprocess.run(["rm", "-r", metadata.location("runs")], check=True)
    assert metadata.read("runs") == []
    past.metadata.append("runs", [past.run(2)])
    assert [row["batch"] for row in metadata.read("runs")] == [2]


def test_a_process_that_shows_no_page_imports_none_of_it() -> None:
    program = (
        "import sys, airflow.plugins_manager as manager\n"
        "assert [one['name'] for one in manager.get_fastapi_plugins()[0]] == ['binlake']\n"
        "print(sorted({'deltalake', 'pyarrow', 'binlake_airflow.page.app'} & sys.modules.keys()))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr
