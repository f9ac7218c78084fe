"""The page's data, asked of Airflow's own API server: who gets it, and whether it is what the metadata says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.session import create_session
from deltalake import CommitProperties, DeltaTable, write_deltalake
from fastapi.testclient import TestClient

from airflow_page import add, add_feeds, client, get, routes, viewer
from binlake.lease import lease
from binlake.lease.lease import OpenBatch
from binlake.planner.steps import Life
from binlake.position import Range
from binlake.records import failures, watermarks
from binlake.records.metrics import counted_since
from binlake.relay import core as relay
from binlake.schema.mask import Mask
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import dumps, loads
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import ShapeRow
from binlake_airflow.page import answers, newest_changes
from binlake_airflow.page.app import STATIC
from binlake_airflow.page.remembered import RememberedMetadata
from binlake_airflow.page.totals import Totals
from past import HOUR, SCHEMA
from prometheus_text import parse

OF_SOURCES = ("follow/start", "follow/stop", "pause", "unpause", "pins", "unpin", "replay", "unlock", "remove")


def test_each_route_is_for_those_alone_who_may_use_it(server: Any, folder: Path) -> None:
    add(folder).write()
    add(folder, "bank")
    asked = routes()
    assert {("GET", "/binlake/"), ("GET", "/binlake/api/sources/shop/runs/2")} <= set(asked)
    assert ("POST", "/binlake/api/sources/shop/tables/shop.table_0001/pause") in asked
    assert {("POST", f"/binlake/api/sources/shop/{name}") for name in OF_SOURCES} <= set(asked)
    anonymous, without_role = client(server, None), client(server, "eve", None)
    nobody, reader = client(server, "nobody", "USER"), viewer(server)
    own, of_another = client(server, "shop", "USER"), client(server, "bank", "USER")
    for method, path in asked:
        if path.startswith(("/binlake/api/new-source", "/binlake/api/broken/")):
            continue  # for fewer: test_source_form, test_broken_edit
        changes = method == "POST"

        def status(client: TestClient, path: str = path, method: str = method, **headers: str) -> int:
            return client.request(method, path, headers=headers).status_code

        assert status(anonymous) == 401, path
        assert status(anonymous, Authorization="Bearer x") in (401, 403), path
        assert status(without_role) == 403, path
        assert status(nobody) == 403, path
        assert status(of_another) == (403 if "/sources/shop" in path else 200), path
        assert status(reader) == (403 if changes or path.endswith("/yaml") else 200), path
        # Without a body nothing is done, and Airflow doesn't know the DAG: who may is told so.
        assert status(own) in ((409, 422) if changes else (200,)), path
        if not changes:
            policy = own.get(path).headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy


def test_of_several_sources_each_sees_his_own(server: Any, folder: Path) -> None:
    for name in ("shop", "bank"):
        add(folder, name)
    (folder / "broken.yaml").write_text("source: {name: broken}\n")

    def seen(client: TestClient) -> list[str]:
        return [source["source"] for source in get(client, "sources")["sources"]]

    assert seen(viewer(server)) == ["bank", "shop", "broken"]
    assert seen(client(server, "bank", "USER")) == ["bank"]
    get(client(server, "bank", "USER"), "sources/shop", 403)
    get(client(server, "bank", "USER"), "sources/unknown", 403)


def test_metrics_are_of_the_sources_that_a_user_may_read(server: Any, folder: Path) -> None:
    past = add(folder).write()
    add(folder, "bank")
    damaged = add(folder, "damaged")
    Path(damaged.config.root).write_text("a file in the folder's place")
    (folder / "broken.yaml").write_text("source: {name: broken}\n")
    answer = viewer(server).get("/binlake/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = parse(answer.text)
    readable = found["binlake_source_readable"]
    assert [readable.value(source=name) for name in ("shop", "bank", "damaged")] == [1, 1, 0]
    assert len(readable.values) == 3
    assert found["binlake_health"].value(source="shop", level=get(viewer(server), "sources/shop")["health"]) == 1
    assert found["binlake_batches_total"].value(source="shop") == past.batches
    today = [batch for batch in range(1, past.batches + 1) if past.ended_us(batch) >= counted_since(now_us())]
    inserted = sum(did.inserted for batch in today for did in past.did(batch))
    assert found["binlake_rows_total"].value(source="shop", kind="inserted") == inserted
    own = client(server, "bank", "USER").get("/binlake/metrics?by_table=true").text
    assert {dict(labels)["source"] for family in parse(own).values() for labels in family.values} == {"bank"}
    by_table = parse(client(server, "shop", "USER").get("/binlake/metrics?by_table=true").text)
    assert by_table["binlake_table_status"].value(table="shop.table_0001", status="following") == 1


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
    sources = {source["source"]: source for source in get(viewer(server), "sources")["sources"]}
    assert sources["shop"]["health"] == "good"
    assert "line 2: tabels: there is no key 'tabels'; did you mean 'tables'?" in sources["bank"]["error"]["detail"]
    assert sources["bank"]["error"]["remedy"]
    assert "isn't a folder" in sources["damaged"]["error"]["detail"]
    assert "tabels" in get(viewer(server), "sources/bank/tables", 409)["detail"]
    refusal = get(viewer(server), "sources/damaged/tables", 503)
    assert "isn't a folder" in refusal["detail"]
    assert refusal["remedy"]


def test_the_page_takes_nothing_from_outside_and_data_as_text_alone() -> None:
    for file in STATIC.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")  # a name: nobody is asked for it
        assert not re.search(r"""[a-z]+://|["'(]//""", text), f"{file.name} has an address"
        for unsafe in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick="):
            assert unsafe not in text, f"{file.name}: {unsafe}"


def test_before_the_first_snapshot(server: Any, folder: Path) -> None:
    assert get(viewer(server), "sources")["sources"] == []
    add(folder)
    (source,) = get(viewer(server), "sources")["sources"]
    assert (source["health"], source["position"], source["table_counts"]) == ("new", None, {})
    assert "binlake_shop_bootstrap" in source["advice"][0]["remedy"]
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
    source = get(viewer(server), "sources/shop")
    assert source["dags"] == {
        "bootstrap": {"dag_id": bootstrap_dag.dag_id, "is_paused": True, "next_run_us": None}
    }  # fmt: skip
    assert source["advice"][0]["remedy"] == "unpause the DAG binlake_shop_bootstrap and trigger it"


def test_the_numbers_are_those_of_the_metadata(server: Any, folder: Path) -> None:
    past = replace(add(folder), batches=30).write()
    stopped = next(row for row in watermarks.read(past.metadata) if row.table == "table_0002")
    stop = {"status": "stopped", "reason": "no such type", "remedy": "snapshot it again"}
    watermarks.write(past.metadata, [replace(stopped, **stop)])  # type: ignore[arg-type]
    past.metadata.append("ddl_history", [{
        "batch": 4, "file": "binlog.000001", "offset": 9, "position": str(past.position(4)), "database": "shop",
        "table": "table_0001", "statement": "ALTER TABLE <b>x</b>", "kind": "ALTER TABLE", "action": "followed",
        "committed_us": past.ended_us(4),
    }])  # fmt: skip
    compared = {"verification": "v", "database": "shop", "table": "table_0001", "source_rows": 9, "lake_rows": 8}
    looked = now_us()
    past.metadata.append("verifications", [
        {**compared, "at_us": looked + at, "batch": at, "differing": at - 1, "equal": at == 1} for at in (1, 2)
    ])  # fmt: skip
    past.metadata.append("verifications", [{**compared, "table": "table_0000", "at_us": 1, "equal": False}])
    grown = replace(SCHEMA, columns=(*SCHEMA.columns, Column("price", "decimal", precision=9, scale=2)))
    life = Life("life-shop.table_0001", past.names[1], grown, past.position(0), past.position(0))
    # Numbers of files start again where a replica takes over.
    row = watermarks.schema_row(life, batch=4, where=past.position(0), why="followed")
    ShapeRow.append(past.metadata, [replace(row, file_number=0)])
    user = viewer(server)

    source = get(user, "sources/shop")
    assert (source["batch"], source["position"]) == (30, str(past.position(30)))
    assert source["carried_us"] == past.batch(30)["planned_us"]
    assert (source["last_run"]["batch"], source["table_counts"]) == (30, {"following": 2, "stopped": 1})
    assert source["health"] == "bad"
    assert source["sentence"] == "shop.table_0001 differs from the server, compared 0 s ago."
    assert source["verified"] == {"tables": 2, "equal": 0, "differing": 1, "at_us": looked + 2}, "of its present life"
    mutations = [past.run(batch)["mutations"] for batch in range(7, 31)]
    assert source["rows_changed"] == {
        "hour": mutations[-1], "day": sum(mutations), "by_hour": mutations,
        "by_5_minutes": [0] * 11 + mutations[-1:],
    }  # fmt: skip

    tables = {row["table"]: row for row in get(user, "sources/shop/tables")["tables"]}
    assert tables["shop.table_0002"].items() >= stop.items()
    in_a_day = [table for batch in range(7, 31) for table in past.did(batch) if table.table == "shop.table_0001"]
    assert tables["shop.table_0001"]["day"] == {
        "inserted": sum(table.inserted for table in in_a_day), "updated": len(in_a_day), "deleted": 0,
        "ended_us": past.ended_us(30),
    }  # fmt: skip
    assert tables["shop.table_0001"]["batch"] == 30
    of_all = [table for batch in range(1, 31) for table in past.did(batch) if table.table == "shop.table_0001"]
    assert tables["shop.table_0001"]["total"].items() >= {
        "inserted": sum(table.inserted for table in of_all), "updated": len(of_all), "deleted": 0
    }.items()  # fmt: skip
    assert tables["shop.table_0001"]["hour"]["inserted"] == 30
    assert tables["shop.table_0002"]["hour"] is None or tables["shop.table_0000"]["hour"] is None
    assert (tables["shop.table_0001"]["verified"]["batch"], tables["shop.table_0000"]["verified"]) == (2, None)

    table = get(user, "sources/shop/tables/shop.table_0001")
    assert [column["type"] for column in table["schema"]["columns"]] == ["int", "varchar(40)", "decimal(9,2)"]
    assert table["verified"] == {
        "at_us": looked + 2, "batch": 2, "position": None, "equal": False, "differing": 1, "source_rows": 9,
        "lake_rows": 8,
        "differing_rows": None,
    }  # fmt: skip
    assert [statement["statement"] for statement in table["history"]] == ["ALTER TABLE <b>x</b>"]
    did = [batch for batch in range(30, 0, -1) if "shop.table_0001" in {run.table for run in past.did(batch)}]
    assert [(run["batch"], run["inserted"]) for run in table["runs"]] == [(batch, batch) for batch in did]
    assert table["runs"][0]["phases"] == {"plan": 0.1, "stage": 1.5, "merge": 3.25}

    newest = get(user, "sources/shop/runs?count=10")["runs"]
    assert [run["batch"] for run in newest] == list(range(30, 20, -1))
    older = get(user, f"sources/shop/runs?count=10&before_us={newest[-1]['ended_us']}")["runs"]
    assert [run["batch"] for run in older] == list(range(20, 10, -1))

    assert source["failed"] is None
    failures.note(past.metadata, "merge", "no space is left\n  → make some", now_us())
    failures_shown = [line for line in get(user, "sources/shop")["advice"] if "failed" in line["what"]]
    assert [(failure["what"], failure["remedy"]) for failure in failures_shown] == [
        ("the last run failed in merge, 0 s ago: no space is left", "make some")
    ]  # fmt: skip
    assert get(user, "sources/shop/runs?count=1")["runs"][0]["outcome"] == "failed"

    run = get(user, "sources/shop/runs/30")
    assert (run["range"]["start"], run["range"]["stop"]) == (str(past.position(29)), str(past.position(30)))
    assert run["run"]["phases"] == {"plan": 0.1, "stage": 1.5, "merge": 3.25}
    assert [table["inserted"] for table in run["tables"]] == [30, 30]


def test_columns_tell_their_types_in_the_lake_the_values_of_an_enum_and_comments(server: Any, folder: Path) -> None:
    past = add(folder).write()
    with (folder / "shop.yaml").open("a") as file:
        file.write("invalid_dates: keep_text\n")
    columns = (
        Column("id", "int", unsigned=True, nullable=False, comment="the key"),
        Column("size", "enum", values=("s", "m"), charset="utf8mb4"),
        Column("day", "date"),
    )
    commented = replace(SCHEMA, columns=columns, row_metadata=("batch",), comment="of the table")
    life = Life("life-shop.table_0001", past.names[1], commented, past.position(0), past.position(0))
    row = watermarks.schema_row(life, batch=3, where=past.position(3), why="followed")
    ShapeRow.append(past.metadata, [row])
    schema = get(viewer(server), "sources/shop/tables/shop.table_0001")["schema"]
    by_name = {column["name"]: (column["lake"], column["values"]) for column in schema["columns"]}
    assert by_name["id"] == ({"id": "BIGINT"}, [])
    assert by_name["size"] == ({"size": "STRING"}, ["s", "m"])
    assert by_name["day"] == ({"day": "DATE", "day__text": "STRING"}, [])
    assert schema["own"] == {"_binlake_batch": "BIGINT"}
    assert [column["comment"] for column in schema["columns"]] == ["the key", "", ""]
    assert schema["comment"] == "of the table"
    assert {column["becomes"] for column in schema["columns"]} == {""}


def test_columns_tell_what_the_yaml_makes_of_them(server: Any, folder: Path) -> None:
    past = add(folder).write()
    columns = (
        Column("order_id", "bigint", unsigned=True, server_name="id", lake_type="bigint"),
        Column("mail", "varchar", length=40, charset="utf8mb4", mask=Mask("hash", 32, "k"), server_name="email"),
        Column("token", "text", charset="utf8mb4"),
    )
    schema = TableSchema(columns, ("order_id",), "primary", excluded=frozenset({"token"}), where="n > 1")
    life = Life("life-shop.table_0001", past.names[1], schema, past.position(0), past.position(0))
    ShapeRow.append(past.metadata, [watermarks.schema_row(life, batch=3, where=past.position(3), why="followed")])
    shown = get(viewer(server), "sources/shop/tables/shop.table_0001")["schema"]
    assert [(column["name"], column["becomes"], column["lake"]) for column in shown["columns"]] == [
        ("id", "called order_id, BIGINT", {"order_id": "BIGINT"}),
        ("email", "called mail, hash of 32 digits", {"mail": "STRING"}),
        ("token", "excluded", {}),
    ]
    assert (shown["key"], shown["where"]) == (["id"], "n > 1")


def test_how_far_the_log_goes_on_and_for_how_long_it_is_kept(server: Any, folder: Path) -> None:
    past = add(folder).write()
    user = viewer(server)
    assert get(user, "sources/shop")["log"] is None
    seen = {"at_us": 5, "head": "binlog.000001:9", "bytes_ahead": 700, "oldest_file": "binlog.000001", "files": 1}
    past.metadata.append("source_log", [{**seen, "bytes": 9, "kept_hours": 2.0}])
    source = get(user, "sources/shop")
    assert source["log"] == {
        **seen, "bytes": 9, "kept_hours": 2.0, "server": None, "kept_until_us": source["carried_us"] + 2 * 3600 * 10**6
    }  # fmt: skip
    assert [line["what"].partition(" ago")[2] for line in source["advice"]] == [
        ": its log may have grown by more than is shown here"
    ]  # fmt: skip
    past.metadata.replace("source_log", "true", [{**seen, "at_us": now_us(), "bytes": 9, "kept_hours": 2.0}])
    assert get(user, "sources/shop")["advice"] == []
    # What is planned and isn't merged yet is to be read still.
    plan = past.batch(4) | {"state": "planned"}
    with lease.held(past.metadata) as held:
        held.open(OpenBatch(4, loads(Range, plan["range"])))
    past.metadata.append("batches", [plan])
    assert get(user, "sources/shop")["log"]["bytes_ahead"] == 700 + 1000


def test_a_server_with_nothing_new_leaves_the_lake_neither_late_nor_without_log(server: Any, folder: Path) -> None:
    past = replace(add(folder), now_us=now_us() - 50 * HOUR).write()
    seen = {"head": "binlog.000001:9", "oldest_file": "binlog.000001", "files": 1, "bytes": 9, "kept_hours": 48.0}
    looked = now_us() - 60_000_000
    past.metadata.append("source_log", [{**seen, "at_us": looked, "bytes_ahead": 0}])
    source = get(viewer(server), "sources/shop")
    assert (source["lag"], source["nothing_new_us"]) == ({"seconds": 0, "known_us": looked}, None), "a look is no sync"
    assert (source["advice"], source["log"]["kept_until_us"]) == ([], looked + 48 * HOUR)
    past.metadata.replace("source_log", "true", [{**seen, "at_us": looked, "bytes_ahead": 700}])
    assert [line["what"] for line in get(viewer(server), "sources/shop")["advice"]] == [
        "it is more than a run behind its schedule",
        "the log that is needed next is older than the 48 hours for which the server keeps it",
    ]


def test_the_size_of_a_table_is_that_of_its_delta_log(
    server: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binlake_airflow.page.tables._PATIENCE", 60)
    past = add(folder).write()
    path = past.config.table_path(past.names[1])
    for number in range(3):
        write_deltalake(path, pa.table({"id": [number, number + 10]}), mode="append")
    user = viewer(server)

    def size() -> Any:
        tables = {row["table"]: row["size"] for row in get(user, "sources/shop/tables")["tables"]}
        assert tables["shop.table_0000"] is None, "no Delta table is there"
        return tables["shop.table_0001"]

    measured = size()
    on_disk = sum(file.stat().st_size for file in Path(path).glob("*.parquet"))
    assert measured == {
        "delta_version": 2, "bytes": on_disk, "files": 3, "small": 3, "rows": 6, "many_small": False
    }  # fmt: skip
    # It is measured again once a batch changed the table, or the upkeep ran, and not before.
    write_deltalake(path, pa.table({"id": [99]}), mode="append")
    assert size() == measured
    row = next(row for row in watermarks.read(past.metadata) if row.table == "table_0001")
    watermarks.write(past.metadata, [replace(row, delta_version=3, updated_us=now_us())])
    assert (size()["rows"], size()["delta_version"]) == (7, 3)
    DeltaTable(path).optimize.compact()
    past.metadata.append(
        "runs", [{"kind": "maintain", "run": "m", "ended_us": now_us(), "tables": "[]", "phases": "{}"}]
    )
    assert (size()["files"], size()["rows"]) == (1, 7)


def test_a_table_whose_log_cannot_be_read_is_told_until_it_can(
    server: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binlake_airflow.page.tables._PATIENCE", 60)
    past = add(folder).write()
    path = Path(past.config.table_path(past.names[1]))
    write_deltalake(path, pa.table({"id": [1]}))
    commit = path / "_delta_log" / f"{0:020}.json"
    text = commit.read_text()
    commit.write_text("no JSON")
    user = viewer(server)
    get(user, "sources/shop/tables")
    source = get(user, "sources/shop")
    assert source["health"] == "bad"
    assert source["sentence"].startswith("shop.table_0001 can't be read in the lake: ")
    assert source["advice"][0]["button"]["tables"] == ["shop.table_0001"]
    commit.write_text(text)
    get(user, "sources/shop/tables")
    assert get(user, "sources/shop")["health"] == "good"


def test_the_delta_history_tells_no_values(server: Any, folder: Path) -> None:
    past = add(folder).write()
    path = past.config.table_path(past.names[1])
    write_deltalake(path, pa.table({"id": [1, 2], "note": ["a", "b"]}))
    noted = CommitProperties(custom_metadata={"userMetadata": json.dumps({"binlake": {"batch": 2, "step": 1}})})
    DeltaTable(path).update(predicate="note = 'topsecret'", updates={"id": "7"}, commit_properties=noted)
    DeltaTable(path).delete("note = 'b'", commit_properties=noted)
    table = get(viewer(server), "sources/shop/tables/shop.table_0001")
    columns = ("version", "operation", "ours", "batch")
    assert [tuple(commit[name] for name in columns) for commit in table["commits"]][-1] == (
        0, "WRITE", False, None
    )  # fmt: skip
    newest = table["commits"][0]
    assert (newest["operation"], newest["ours"], newest["batch"], newest["files_removed"]) == ("DELETE", True, 2, 1)
    assert "topsecret" not in json.dumps(table)
    assert "note =" not in json.dumps(table["commits"])


def test_keys_and_values_of_the_newest_mutations_are_for_who_may_edit(server: Any, folder: Path) -> None:
    past = add(folder).write()
    past.stage(3, past.names[1])
    path = "sources/shop/tables/shop.table_0001"
    change = {"batch": 3, "op": "insert", "committed_us": 8, "position": "binlog.000001:2504", "gtid": "u:1"}
    editor = client(server, "shop", "USER")
    for user, key in ((viewer(server), None), (editor, {"id": "4711"})):
        newest = get(user, path)["newest"]
        assert newest["changes"][1] == {**change, "key": key, "before": None, "after": None}
        shown = {"since_batch": 3, "with_keys": key is not None, "with_values": False}
        assert newest.items() >= shown.items()
    assert get(editor, "sources/shop/tables/shop.table_0002")["newest"]["changes"] == []

    # With values, where the YAML says so; masked ones aren't even read.
    with (folder / "shop.yaml").open("a") as file:
        file.write("page: {show_values: true, mask_columns: ['shop.*_0002.note', 'shop.*.ID']}\n")
    assert "topsecret" not in json.dumps(get(viewer(server), path))
    updated, inserted = get(editor, path)["newest"]["changes"]
    assert (updated["before"], updated["after"]) == ({"id": "***", "note": "topsecret"}, {"id": "***", "note": None})
    assert (inserted["before"], inserted["after"]) == (None, {"id": "***", "note": "topsecret"})
    assert inserted["key"] == {"id": "***"}


def test_keys_of_repaired_rows_are_for_who_may_edit(server: Any, folder: Path) -> None:
    past = add(folder).write()
    name, path = past.names[1], "sources/shop/tables/shop.table_0001"
    assert get(viewer(server), path)["repaired"] == []
    common = {"database": name.database, "table": name.table, "batch": 3, "kind": "changed", "rows": 1}
    notes = [
        {
            **common,
            "at_us": at_us,
            "columns": '["note"]',
            "key": json.dumps({"email": f"ann{at_us}@example.org", "id": "7"}),
        }
        for at_us in (5, 6)
    ]
    past.metadata.append("repairs", [*notes, {**notes[0], "table": "else", "at_us": 7}])
    shown = {"at_us": 6, "batch": 3, "kind": "changed", "rows": 1, "columns": ["note"]}
    newest, _ = get(viewer(server), path)["repaired"]
    assert newest == {**shown, "key": None}
    assert "example.org" not in json.dumps(get(viewer(server), path))
    editor = client(server, "shop", "USER")
    assert get(editor, path)["repaired"][0] == {**shown, "key": {"email": "ann6@example.org", "id": "7"}}
    with (folder / "shop.yaml").open("a") as file:
        file.write("page: {mask_columns: ['shop.*.Email']}\n")
    assert get(editor, path)["repaired"][0] == {**shown, "key": {"email": "***", "id": "7"}}


def test_feeds_and_the_relays_clients(server: Any, folder: Path) -> None:
    past = add(folder).write()
    user = viewer(server)
    assert get(user, "sources/shop/feeds").items() >= {"feeds": [], "relay": None}.items()
    add_feeds(past)
    answer = get(user, "sources/shop/feeds")
    stopped = {"status": "stopped", "reason": "no such topic", "remedy": "make it"}
    place = {"batch": 1, "behind": 2, "messages": 40, "carried_us": past.batch(1)["planned_us"], "updated_us": 7}
    place |= {"left_out": 0, "last_left_out": "", "in_yaml": False, "position": past.batch(1)["stop"]}
    assert answer["feeds"] == [
        {"name": "orders", **place, **stopped},
        {
            "name": "early",
            **place,
            **stopped,
            "batch": None,
            "behind": 3,
            "messages": 0,
            "carried_us": None,
            "position": "",
        },
    ]
    assert answer["relay"]["status"] == "following"
    (client,) = answer["relay"]["clients"]
    assert (client["name"], client["served"], client["last_events"][0]["position"]) == ("till", 1, 3500)
    assert [line["what"] for line in get(user, "sources/shop")["advice"]] == [
        "feed orders is stopped: no such topic", "feed early is stopped: no such topic"
    ]  # fmt: skip
    Path(relay.state_path(past.config)).write_text("{")
    problem = get(user, "sources/shop/feeds")["relay"]["clients_problem"]
    assert "is damaged" in problem["detail"]
    assert problem["remedy"]


def test_the_schema_at_an_earlier_point(server: Any, folder: Path) -> None:
    past = add(folder).write()
    grown = replace(SCHEMA, columns=(*SCHEMA.columns, Column("price", "decimal", precision=9, scale=2)))
    statement = {"database": "shop", "table": "table_0001", "kind": "ALTER TABLE", "action": "followed"}
    for offset, before, after in ((1500, SCHEMA, grown), (2500, grown, SCHEMA)):
        past.metadata.append("ddl_history", [{
            **statement, "batch": offset // 1000, "file": "binlog.000001", "offset": offset, "statement": "ALTER …",
            "position": str(past.position(1)), "before": dumps(before), "after": dumps(after), "committed_us": offset,
        }])  # fmt: skip
    path, user = "sources/shop/tables/shop.table_0001", viewer(server)
    assert get(user, path)["shape"] is None

    def columns(at: str) -> list[str]:
        return [column["name"] for column in get(user, f"{path}?at={at}")["shape"]["schema"]["columns"]]

    assert columns("binlog.000001:1499") == ["id", "note"]
    assert columns("binlog.000001:1500") == ["id", "note", "price"]
    assert columns("binlog.000001:2500") == ["id", "note"]
    assert "nothing is known" in get(user, f"{path}?at=binlog.000000:1", 409)["detail"]
    assert "not a time" in get(user, f"{path}?at=noon", 409)["detail"]


def test_a_table_that_is_copied_for_the_first_time_shows_how_far_it_is(server: Any, folder: Path) -> None:
    past = add(folder).write()
    chunk = {"snapshot": "s", "table_id": "t", "database": "shop", "table": "fresh", "updated_us": 1}
    past.metadata.append("snapshots", [
        {**chunk, "chunk": number, "state": "staged" if number < 3 else "planned", "rows": 10 if number < 3 else None}
        for number in range(8)
    ])  # fmt: skip
    tables = {row["table"]: row for row in get(viewer(server), "sources/shop/tables")["tables"]}
    assert (tables["shop.fresh"]["status"], tables["shop.fresh"]["batch"]) == ("bootstrapping", None)
    assert tables["shop.fresh"]["snapshot"] == {"chunks": 8, "copied": 3, "rows": 30, "begun_us": 1}
    assert tables["shop.table_0001"]["snapshot"] is None


def test_all_that_is_known_is_counted_once_and_kept_up(folder: Path) -> None:
    past = replace(add(folder), batches=5).write()
    totals = Totals(answers.metadata_of(past.config))

    def inserted(since_us: int = 0) -> int:
        return sum(counts.inserted for counts in totals.since(since_us).values())

    expected = sum(table.inserted for batch in range(1, 6) for table in past.did(batch))
    assert inserted() == inserted() == expected
    past.metadata.append("runs", [past.run(6)])
    assert inserted() == expected + 12
    past.metadata.replace("runs", "batch = 6", [{**past.run(6), "ended_us": now_us() + 1}])
    assert inserted() == expected + 12, "a batch that is recorded again counts once"
    past.metadata.replace("runs", "true", [past.run(1)])
    assert inserted() == 2, "the lake was begun again"
    assert inserted(now_us() + 48 * 3600 * 10**6) == 0


def test_names_with_anything_in_them(server: Any, folder: Path) -> None:
    past = add(folder).write()
    row = next(iter(watermarks.read(past.metadata)))
    odd = TableName("shop", '100% "o\'dd"/\\ tåble?')
    watermarks.write(past.metadata, [replace(row, table=odd.table)])
    run = past.run(3)
    tables = run["tables"].replace("shop.table_0000", 'shop.100% \\"o\'dd\\"/\\\\ tåble?')
    past.metadata.replace("runs", "batch = 3", [{**run, "tables": tables}])
    path = "sources/shop/tables/shop.100%25%20%22o'dd%22%2F%5C%20t%C3%A5ble%3F"
    answer = get(viewer(server), path)
    assert answer["table"] == str(odd)
    assert [run["batch"] for run in answer["runs"]] == [3]


def test_a_year_of_hourly_runs_of_a_thousand_tables(server: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    past = replace(add(folder), tables=1000, batches=8760, changed=20).write(commits=12)
    rows: dict[str, int] = {}

    def counted(self: Metadata, name: str, *asked: Any, **chosen: Any) -> list[dict[str, Any]]:
        result = read(self, name, *asked, **chosen)
        rows[name] = rows.get(name, 0) + len(result)
        return result

    read = Metadata.read
    monkeypatch.setattr(Metadata, "read", counted)
    user = viewer(server)
    for path in ("sources", "sources/shop", "sources/shop/runs", "sources/shop/runs/8000"):
        get(user, path)
    assert len(get(user, "sources/shop/tables")["tables"]) == 1000
    get(user, "sources/shop/tables/shop.table_0007")
    # All that is known is counted once; what is asked again and again isn't, beyond a day.
    assert rows["runs"] <= 8760 + 1 + 3 * 25 + 50 + 1 + 25
    assert rows["batches"] <= 2 + newest_changes.BATCHES
    assert rows["schemas"] <= 1

    metadata = answers.metadata_of(past.config)
    asked = metadata.reads
    rows.clear()
    for _ in range(3):
        get(user, "sources/shop/runs")
        get(user, "sources/shop/tables")
        get(user, "sources/shop/tables/shop.table_0007")
    assert metadata.reads - asked <= 4, "nothing is new but the minute, and up to which batch all is counted"
    assert rows.get("runs", 0) <= 2 * 25 + 25 + 1
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
        "if hasattr(manager, 'get_fastapi_plugins'):\n"
        "    plugins = manager.get_fastapi_plugins()[0]\n"
        "else:  # Airflow 3.1\n"
        "    manager.initialize_fastapi_plugins()\n"
        "    plugins = manager.fastapi_apps\n"
        "assert [plugin['name'] for plugin in plugins] == ['binlake']\n"
        "print(sorted({'deltalake', 'pyarrow', 'binlake_airflow.page.app'} & sys.modules.keys()))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr
