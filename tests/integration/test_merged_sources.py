"""Tables of two sources that the lake has as one: SQL on both in, rows of the merged table out."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from binlake.delta import layout
from binlake.doctor.reach import lake_checks
from binlake.faults import FaultPoint
from binlake.iceberg import table_metadata
from binlake.lake import merged_sources, pins
from binlake.lake.lake_versions import lake_versions
from binlake.lake.opened_lake import open_lake
from binlake.maintain.maintain import maintain
from binlake.records.decisions import Reason
from binlake.records.status import read_status
from binlake.report import Report
from binlake.spark.starting import no_session
from companies import POINTS, SOURCES, Companies, Row, ordered, walk
from iceberg_readers import READERS, assert_same, by_delta
from mirror import Mirror, in_the_soak, on_mysql, sync_alone
from versions_read import BRIEF


@pytest.fixture
def companies(mirror: Mirror) -> Iterator[Companies]:
    with ExitStack() as stack:
        yield Companies(mirror, stack)


@on_mysql
@pytest.mark.parametrize("order", [("us", "eu"), *in_the_soak((("eu", "us"),))])
def test_equal_tenants_of_two_sources_are_two_shards_of_one_table(companies: Companies, order: Sequence[str]) -> None:
    for source in order:
        for tenant in (7, 8):
            companies.add(source, tenant)
            companies.execute(source, tenant, f"INSERT INTO orders VALUES (1, '{source}{tenant}'), (2, 'b')")
    for source in order:
        companies.mirrors[source].snapshot()
        checks = {check.name: check for check in lake_checks(companies.mirrors[source].config, None)}
        assert checks["lake: all.orders"].ok is (True if source == order[1] else "warn")
        assert companies.rows(source) == companies.server_rows(source)
    assert companies.rows() == companies.server_rows()
    eu, us = (companies.mirrors[source] for source in order)
    first = companies.rows()
    companies.execute(order[0], 7, "UPDATE orders SET v = 'x' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    companies.execute(order[1], 7, "INSERT INTO orders VALUES (3, 'c')")
    sync_alone(eu)
    assert companies.rows(order[0]) == companies.server_rows(order[0])
    assert companies.rows(order[1]) == [row for row in first if row["region"] == order[1]]
    sync_alone(us)
    assert companies.rows() == companies.server_rows()
    assert eu.verify().equal
    assert us.verify().equal
    lake = open_lake(us.config)
    assert [*lake.tables] == ["all.orders"]
    assert ordered(lake.arrow("all.orders").to_pylist()) == companies.rows()
    assert open_lake(eu.config).tables["all.orders"] == lake.tables["all.orders"] - 1, "as eu's batch left it"
    assert ordered(lake.at(batch=0).arrow("all.orders").to_pylist()) == first


@on_mysql
def test_an_alter_goes_through_one_source_before_the_other(companies: Companies) -> None:
    for source in SOURCES:
        for tenant in (7, 8):
            companies.add(source, tenant, "id INT PRIMARY KEY, v VARCHAR(20), n INT")
            companies.execute(source, tenant, "INSERT INTO orders VALUES (1, 'a', 7), (2, 'b', NULL)")
        companies.mirrors[source].snapshot()
    alters = (
        "ADD COLUMN c VARCHAR(9) DEFAULT 'new' FIRST, ADD COLUMN d INT",
        "RENAME COLUMN v TO note",
        "MODIFY n BIGINT, DROP COLUMN c",
        "ADD COLUMN c INT DEFAULT 5",
        "RENAME COLUMN d TO v, RENAME COLUMN n TO d",
    )
    for number, alter in enumerate(alters, start=10):
        for source in SOURCES:
            for tenant in (7, 8):
                companies.execute(
                    source, tenant,
                    f"INSERT INTO orders (id) VALUES ({number})",
                    f"ALTER TABLE orders {alter}",
                    f"INSERT INTO orders (id) VALUES ({number + 50})",
                )  # fmt: skip
            said = sync_alone(companies.mirrors[source])
            assert companies.rows() == companies.server_rows(), f"{alter} in {source}: {said}"
            if source == "eu":
                (status,) = read_status(companies.mirrors["us"].config).merged
                assert len(status.others) > 1, alter
    for tenant in (7, 8):
        companies.execute("eu", tenant, "ALTER TABLE orders MODIFY v VARCHAR(30)", "UPDATE orders SET v = 'eu'")
    before = companies.rows("eu")
    assert "eu7.orders isn't shown as it is in all.orders: its column 'v' is string" in sync_alone(
        companies.mirrors["eu"]
    )
    assert companies.rows("eu") == before
    companies.execute("us", 7, "ALTER TABLE orders MODIFY v VARCHAR(30)", "UPDATE orders SET v = 'us'")
    sync_alone(companies.mirrors["us"])
    assert companies.rows("eu") == before
    companies.execute("us", 8, "ALTER TABLE orders MODIFY v VARCHAR(30)")
    sync_alone(companies.mirrors["us"])
    assert companies.rows() == companies.server_rows()
    version = companies.version
    assert sync_alone(companies.mirrors["eu"]).find("isn't shown") < 0
    assert companies.version == version


@on_mysql
def test_a_source_that_is_taken_out_of_the_file_has_no_row_and_the_others_stay(companies: Companies) -> None:
    for source in SOURCES:
        companies.add(source, 7)
        companies.execute(source, 7, "INSERT INTO orders VALUES (1, 'a')")
        companies.mirrors[source].snapshot()
    companies.listed.remove("us")
    with pytest.raises(ValueError, match=r"the sources that fill all\.orders are eu, without us"):
        _ = companies.mirrors["us"].config
    companies.execute("eu", 7, "INSERT INTO orders VALUES (2, 'b')")
    sync_alone(companies.mirrors["eu"])
    assert companies.rows() == companies.server_rows("eu")
    alone = companies.mirrors["us"]
    del alone.options["merge_tables"]
    companies.execute("us", 7, "INSERT INTO orders VALUES (2, 'b')")
    sync_alone(alone)
    sync_alone(alone)
    lake = open_lake(alone.config)
    (name,) = lake.tables
    assert name.endswith("us7.orders")
    assert lake.arrow(name).num_rows == 2
    assert companies.rows() == companies.server_rows("eu")


@on_mysql
def test_a_stopped_source_holds_no_other_and_is_repaired_alone(companies: Companies) -> None:
    for source in SOURCES:
        companies.mirrors[source].options["policies"] = {"on_truncate": "stop"}
        for tenant in (7, 8):
            companies.add(source, tenant)
            companies.execute(source, tenant, f"INSERT INTO orders VALUES (1, 'a{tenant}')")
        companies.mirrors[source].snapshot()
    stood = companies.rows("us")
    companies.execute("us", 7, "TRUNCATE TABLE orders")
    companies.execute("us", 8, "TRUNCATE TABLE orders")
    for source in SOURCES:
        companies.execute(source, 7, "INSERT INTO orders VALUES (5, 'late')")
        sync_alone(companies.mirrors[source])
    assert companies.rows("us") == stood
    assert companies.rows("eu") == companies.server_rows("eu")
    assert companies.mirrors["eu"].verify().equal
    companies.mirrors["us"].snapshot("*.orders")
    sync_alone(companies.mirrors["us"])
    assert companies.rows() == companies.server_rows()
    companies.execute("eu", 8, "DROP TABLE orders")
    companies.tenants["eu"].remove(8)
    sync_alone(companies.mirrors["eu"])
    assert companies.rows() == companies.server_rows()


@on_mysql
def test_killed_between_any_two_writes_the_table_of_both_is_the_same(companies: Companies) -> None:
    for source in SOURCES:
        for tenant in (7, 8):
            companies.add(source, tenant, "id INT PRIMARY KEY, v VARCHAR(20), n INT")
            companies.execute(source, tenant, "INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2)")
        companies.mirrors[source].snapshot()
    companies.execute("eu", 7, "INSERT INTO orders VALUES (3, 'c', 3)", "ALTER TABLE orders RENAME COLUMN v TO note")
    companies.execute("us", 7, "UPDATE orders SET v = 'x'", "ALTER TABLE orders MODIFY n BIGINT", "DELETE FROM orders")
    companies.execute("us", 8, "DROP TABLE orders")
    companies.tenants["us"].remove(8)
    chance = random.Random(55)
    for source in SOURCES:
        companies.mirrors[source].sync_cut_off(chance, 0.5, points=POINTS)
    assert companies.rows() == companies.server_rows()
    for source in SOURCES:
        companies.execute(source, 7, "INSERT INTO orders (id) VALUES (9)")
    with companies.mirrors["eu"].cut_off_at("table composed"):
        companies.mirrors["eu"].sync()
    sync_alone(companies.mirrors["us"])
    version = companies.version
    sync_alone(companies.mirrors["eu"])
    assert companies.rows() == companies.server_rows()
    assert companies.version == version
    assert {open_lake(companies.mirrors[source].config).tables["all.orders"] for source in SOURCES} == {version}


@on_mysql
def test_versions_that_one_source_shows_outlive_the_upkeep_of_the_other(
    companies: Companies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "FEW_BYTES", 0)
    monkeypatch.setattr(merged_sources, "LEAST_HOURS", 0.0)
    eu, us = (companies.mirrors[source] for source in SOURCES)
    for source, mirror in companies.mirrors.items():
        mirror.options |= {"maintain": BRIEF, "policies": {"on_drop_table": "drop"}}
        for tenant in (7, 8):
            companies.add(source, tenant)
            companies.execute(
                source, tenant, f"INSERT INTO orders VALUES {', '.join(f'({n}, {n})' for n in range(30))}"
            )
        mirror.snapshot()
    known: dict[str, dict[int, list[Row]]] = {source: {} for source in SOURCES}
    for number in range(1, 7):
        if number == 4:
            companies.execute("eu", 8, "DROP TABLE orders")
            companies.tenants["eu"].remove(8)
        for source, mirror in companies.mirrors.items():
            if source == "us" and number in (2, 3, 5):
                continue  # it is behind
            companies.execute(source, 7, f"UPDATE orders SET id = {-number} WHERE id = {number}")
            sync_alone(mirror)
            known[source][open_lake(mirror.config).batch] = companies.rows()
        if number == 1:
            pins.pin(us.metadata, open_lake(us.config).batch, "first", Reason("a test", "to keep it"))
        for mirror in (eu, us) if number % 2 else (eu,):
            maintain(mirror.config, no_session, mirror.metadata, Report(quiet=True), patience=0)
        for source, mirror in companies.mirrors.items():
            versions = {version.batch: version for version in lake_versions(mirror.metadata, looks=True)}
            newest = max(known[source])
            assert versions[newest].readable, f"{source}, {number}"
            for batch, rows in known[source].items():
                if versions[batch].readable:
                    stored = open_lake(mirror.config).at(batch=batch).arrow("all.orders").to_pylist()
                    assert ordered(stored) == rows, f"batch {batch} of {source} after round {number}"
        assert [version.readable for version in lake_versions(us.metadata) if version.name] == [True]
    assert not all(version.readable for version in lake_versions(eu.metadata, looks=True))
    assert Path(f"{companies.path}/region=eu.tenant=8").exists(), "dropped, but us pinned a version that has it"
    pins.unpin(us.metadata, "first")
    sync_alone(us)
    companies.execute("us", 7, "INSERT INTO orders VALUES (99, 'z')")
    sync_alone(us)
    maintain(eu.config, no_session, eu.metadata, Report(quiet=True), patience=0)
    assert not Path(f"{companies.path}/region=eu.tenant=8").exists()
    assert companies.rows() == companies.server_rows()


@pytest.mark.parametrize("point", ["merged", *in_the_soak("table composed")])
@on_mysql
def test_a_source_killed_before_it_records_what_it_composed_outlives_the_upkeep_of_the_other(
    companies: Companies, monkeypatch: pytest.MonkeyPatch, point: FaultPoint
) -> None:
    monkeypatch.setattr(layout, "FEW_BYTES", 0)
    monkeypatch.setattr(merged_sources, "LEAST_HOURS", 0.0)
    eu, us = (companies.mirrors[source] for source in SOURCES)
    for source, mirror in companies.mirrors.items():
        mirror.options |= {"maintain": BRIEF}
        companies.add(source, 7)
        companies.execute(source, 7, f"INSERT INTO orders VALUES {', '.join(f'({n}, {n})' for n in range(30))}")
        mirror.snapshot()
    companies.execute("eu", 7, "UPDATE orders SET id = -1 WHERE id = 1", "DELETE FROM orders WHERE id > 20")
    with eu.cut_off_at(point):
        eu.sync()
    for number in range(2, 5):
        companies.execute("us", 7, f"UPDATE orders SET id = {-number} WHERE id = {number}")
        sync_alone(us)
        maintain(us.config, no_session, us.metadata, Report(quiet=True), patience=0)
    sync_alone(eu)
    for source, mirror in companies.mirrors.items():
        newest = lake_versions(mirror.metadata, looks=True)[-1]
        assert newest.readable, source
        stored = open_lake(mirror.config).at(batch=newest.batch).arrow("all.orders").to_pylist()
        own = [row for row in ordered(stored) if row["region"] == source]
        assert own == companies.server_rows(source)


@on_mysql
def test_what_fails_to_be_read_of_one_source_leaves_the_other(companies: Companies) -> None:
    for source in SOURCES:
        companies.add(source, 7)
        companies.execute(source, 7, "INSERT INTO orders VALUES (1, 'a')")
        companies.mirrors[source].snapshot()
    (own,) = Path(companies.path, "region=us.tenant=7/_delta_log").glob("*0.json")
    own.write_text("{no JSON")
    stood = companies.rows("us")
    companies.execute("eu", 7, "ALTER TABLE orders ADD COLUMN c INT DEFAULT 3", "INSERT INTO orders VALUES (2, 'b', 4)")
    sync_alone(companies.mirrors["eu"])
    assert companies.rows("eu") == companies.server_rows("eu")
    assert companies.rows("us") == [{**row, "c": None} for row in stood]


@pytest.mark.parametrize(("count", "rounds"), [(2, 3), *in_the_soak((4, 60))])
@on_mysql
def test_a_random_walk_over_the_shards_of_two_sources_equals_their_union(
    companies: Companies, count: int, rounds: int
) -> None:
    """So do readers of Iceberg, at each snapshot that is there, also by the name that both sources give the table."""
    file = f"{companies.mirrors['eu'].folder}/catalog.db"
    for mirror in companies.mirrors.values():
        catalog = [{"kind": "sqlite", "name": "analysts", "sqlite": file}]
        mirror.options |= {"iceberg": {"version": 2 + count % 2}, "catalog": catalog}
    walk(companies, random.Random(count), count, rounds)
    assert_same(companies.path)
    metadata = table_metadata.newest(companies.path)
    assert metadata is not None
    for snapshot in metadata.snapshots[:: 1 if rounds > 9 else 5]:
        number = snapshot["snapshot-id"]
        for name, read in READERS.items():
            assert read(companies.path, number) == by_delta(companies.path, number - 1), (name, number)
    with sqlite3.connect(file) as connection:
        names = connection.execute("SELECT table_namespace, table_name, metadata_location FROM iceberg_tables")
        assert names.fetchall() == [("all", "orders", f"file://{metadata.path}")]
    assert [read_status(mirror.config).catalogs for mirror in companies.mirrors.values()] == [(), ()]


@pytest.mark.soak
@on_mysql
def test_a_random_walk_over_the_shards_of_four_sources_equals_their_union(mirror: Mirror) -> None:
    with ExitStack() as stack:
        walk(Companies(mirror, stack, sources=("eu", "us", "asia", "africa")), random.Random(46), 2, 60)


@on_mysql
def test_a_merged_table_of_one_source_becomes_one_of_several_and_goes_back(companies: Companies) -> None:
    mirror = companies.mirrors["eu"]
    (several,) = mirror.options["merge_tables"]
    alone = {key: several[key] for key in ("from", "into", "source_column")}
    companies.add("eu", 7)
    companies.execute("eu", 7, "INSERT INTO orders VALUES (1, 'a')")
    mirror.options["merge_tables"] = [alone]
    mirror.snapshot()
    for number, entry in enumerate((several, alone), start=2):
        mirror.options["merge_tables"] = [entry]
        for step in (0, 10):
            companies.execute("eu", 7, f"INSERT INTO orders VALUES ({number + step}, 'b')")
            sync_alone(mirror)
        lake = open_lake(mirror.config)
        assert [*lake.tables] == ["all.orders"]
        rows = [{"region": "eu", **row} for row in lake.arrow("all.orders").to_pylist()]
        assert ordered(rows) == companies.server_rows("eu")
