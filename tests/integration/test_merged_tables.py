"""Tables of one shape from many databases, which the lake has as one: SQL in, rows of the merged table out."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake.delta import layout
from binlake.errors import LogUnreadable
from binlake.faults import FaultPoint
from binlake.iceberg import table_metadata
from binlake.lake import pins
from binlake.lake.lake_versions import lake_versions
from binlake.lake.opened_lake import open_lake
from binlake.maintain.maintain import maintain
from binlake.phases.published_check import check_published
from binlake.records.decisions import Reason
from binlake.records.status import read_status
from binlake.report import Report
from binlake.spark.starting import no_session
from iceberg_readers import READERS, assert_same, by_delta
from mirror import Mirror, in_the_soak, on_mysql, sync_alone
from rolled_shards import ROLLED, drawn_changes
from versions_read import BRIEF

Row = dict[str, Any]


class Shards:
    """Databases t_…_1, t_…_2 … of a server, whose tables ``orders`` are one table of the lake."""

    def __init__(self, mirror: Mirror, stack: ExitStack) -> None:
        self.mirror, self.stem, self._stack = mirror, f"{mirror.database}_s", stack
        mirror.include = [f"{self.stem}*.*"]
        mirror.options |= {
            "merge_tables": [{"from": f"{self.stem}%.orders", "into": "all.orders", "source_column": "tenant"}],
            "merge": {"without_spark_mb": 16},
        }
        mirror.reader = "direct"

    def add(self, tenant: Any, columns: str = "id INT PRIMARY KEY, v VARCHAR(20)") -> None:
        self.mirror.server.execute(f"CREATE DATABASE {self.stem}{tenant}")
        drop = f"DROP DATABASE IF EXISTS {self.stem}{tenant}"
        self._stack.callback(lambda: self.mirror.server.execute(drop))
        self.execute(tenant, f"CREATE TABLE orders ({columns})")

    def execute(self, tenant: Any, *statements: str) -> None:
        self.mirror.server.execute(*statements, database=f"{self.stem}{tenant}")

    @property
    def path(self) -> str:
        return f"{self.mirror.config.root}/all/orders"

    @property
    def version(self) -> int:
        return DeltaTable(self.path).version()

    def rows(self) -> list[Row]:
        read = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT * FROM t").read_all()
        rows: list[Row] = pa.table(read).to_pylist()
        return sorted(rows, key=lambda row: (row["tenant"], row["id"]))

    def rows_by_spark(self) -> list[Row]:
        read = self.mirror.spark.read.format("delta").load(self.path)
        return sorted((row.asDict() for row in read.collect()), key=lambda row: (row["tenant"], row["id"]))

    def server_rows(self, *tenants: Any) -> list[Row]:
        """The union of the server's tables: a column that a table lacks is NULL."""
        rows: list[Row] = []
        columns = {"tenant"}
        for tenant in tenants:
            database = f"{self.stem}{tenant}"
            names = [row[0] for row in self.mirror.server.execute("SHOW COLUMNS FROM orders", database=database)]
            columns |= {*names}
            stored = self.mirror.server.execute("SELECT * FROM orders", database=database)
            rows += [{"tenant": str(tenant), **dict(zip(names, row, strict=True))} for row in stored]
        return sorted(
            ({name: row.get(name) for name in columns} for row in rows), key=lambda row: (row["tenant"], row["id"])
        )


@pytest.fixture
def shards(mirror: Mirror) -> Iterator[Shards]:
    with ExitStack() as stack:
        yield Shards(mirror, stack)


@on_mysql
def test_shards_are_one_table_in_one_commit_a_batch(shards: Shards) -> None:
    for tenant in (1, 2, 3):
        shards.add(tenant)
        shards.execute(tenant, f"INSERT INTO orders VALUES (1, 'a{tenant}'), (2, 'b')")
    shards.mirror.snapshot()
    assert shards.rows() == shards.server_rows(1, 2, 3)
    before = shards.version
    for tenant in (1, 2, 3):
        shards.execute(tenant, "UPDATE orders SET v = 'x' WHERE id = 1", "INSERT INTO orders VALUES (3, 'c')")
    shards.execute(2, "DELETE FROM orders WHERE id = 2")
    sync_alone(shards.mirror)
    assert shards.rows() == shards.server_rows(1, 2, 3)
    assert shards.version == before + 1
    lake = open_lake(shards.mirror.config)
    assert [*lake.tables] == ["all.orders"]
    assert lake.sql("SELECT count(*) AS n FROM all.orders WHERE tenant = '2'").to_pylist() == [{"n": 2}]


@on_mysql
def test_the_columns_are_the_union_while_an_alter_goes_through_the_shards(shards: Shards) -> None:
    for tenant in (1, 2):
        shards.add(tenant, "id INT PRIMARY KEY, v VARCHAR(20), n INT")
        shards.execute(tenant, f"INSERT INTO orders VALUES (1, 'a{tenant}', 7), (2, 'b', NULL)")
    shards.mirror.snapshot()
    alters = (
        "ADD COLUMN c VARCHAR(9) DEFAULT 'new' FIRST, ADD COLUMN d INT",
        "RENAME COLUMN v TO note",
        "MODIFY n BIGINT, DROP COLUMN c",
        "ADD COLUMN c INT DEFAULT 5",
        "RENAME COLUMN d TO v, RENAME COLUMN n TO d",
    )
    for number, alter in enumerate(alters, start=10):
        for tenant in (2, 1):
            shards.execute(
                tenant,
                f"INSERT INTO orders (id) VALUES ({number})",
                f"ALTER TABLE orders {alter}",
                f"INSERT INTO orders (id) VALUES ({number + 50})",
                f"DELETE FROM orders WHERE id = {number - 1}",
            )
            with mock.patch.object(layout, "FEW_BYTES", 0 if tenant == 1 else layout.FEW_BYTES):  # rows are marked
                sync_alone(shards.mirror)
            assert shards.rows() == shards.server_rows(1, 2), f"{alter} in {tenant}"
            if tenant == 2:
                said = [text for merged in read_status(shards.mirror.config).merged for text in merged.differences]
                assert any(" lacks " in text or " others as " in text for text in said), alter
    assert shards.rows_by_spark() == shards.server_rows(1, 2)
    shown = shards.rows()
    shards.execute(1, "ALTER TABLE orders MODIFY v VARCHAR(30)", "INSERT INTO orders (id) VALUES (70)")
    shards.execute(2, "INSERT INTO orders (id) VALUES (70)")
    assert f"{shards.stem}1.orders isn't shown as it is in all.orders: its column 'v' is" in sync_alone(shards.mirror)
    assert [row for row in shards.rows() if row["tenant"] == "1"] == [row for row in shown if row["tenant"] == "1"]
    assert [row["id"] for row in shards.rows() if row["tenant"] == "2"][-1] == 70
    shards.execute(2, "ALTER TABLE orders MODIFY v VARCHAR(30)", "TRUNCATE TABLE orders")
    sync_alone(shards.mirror)
    assert shards.rows() == shards.server_rows(1, 2)


@on_mysql
def test_a_shard_comes_goes_and_stops_and_the_others_go_on(shards: Shards) -> None:
    shards.mirror.options["policies"] = {"tables": {f"{shards.stem}3.*": {"on_truncate": "stop"}}}
    for tenant in (1, 2, 3):
        shards.add(tenant)
        shards.execute(tenant, "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    shards.mirror.snapshot()
    before = open_lake(shards.mirror.config)
    shards.add(4)
    shards.execute(4, "INSERT INTO orders VALUES (1, 'first')")
    shards.execute(3, "TRUNCATE TABLE orders")
    shards.execute(2, "DROP TABLE orders")
    shards.execute(1, "INSERT INTO orders VALUES (3, 'c')")
    sync_alone(shards.mirror)
    stood = [{"tenant": "3", "id": 1, "v": "a"}, {"tenant": "3", "id": 2, "v": "b"}]
    assert shards.rows() == sorted([*shards.server_rows(1, 4), *stood], key=lambda row: (row["tenant"], row["id"]))
    shards.mirror.snapshot(f"{shards.stem}3.orders")
    sync_alone(shards.mirror)
    assert shards.rows() == shards.server_rows(1, 3, 4)
    shards.execute(4, "RENAME TABLE orders TO archive")
    sync_alone(shards.mirror)
    assert shards.rows() == shards.server_rows(1, 3)
    shards.execute(4, "RENAME TABLE archive TO orders", "INSERT INTO orders VALUES (5, 'back')")
    sync_alone(shards.mirror)
    assert shards.rows() == shards.server_rows(1, 3, 4)
    assert shards.mirror.verify().equal
    assert before.sql("SELECT count(*) AS n FROM all.orders").to_pylist() == [{"n": 6}]
    assert sorted(open_lake(shards.mirror.config).arrow("all.orders").to_pylist(), key=str) == sorted(
        shards.rows(), key=str
    )


@on_mysql
def test_what_cannot_be_composed_stops_alone_until_it_is_mended(shards: Shards, tmp_path: Path) -> None:
    for tenant in (1, 2):
        shards.add(tenant)
        shards.execute(tenant, "INSERT INTO orders VALUES (1, 'a')")
    shards.mirror.server.execute("CREATE TABLE plain (id INT PRIMARY KEY)", database=f"{shards.stem}1")
    shards.mirror.snapshot()
    (own,) = Path(shards.path, "_delta_log").glob("*0.json")
    whole = own.read_text()
    own.write_text("{no JSON")
    for tenant in (1, 2):
        shards.execute(tenant, "INSERT INTO orders VALUES (2, 'b')")
    shards.execute(1, "INSERT INTO plain VALUES (1)")
    assert "all.orders is stopped: " in sync_alone(shards.mirror)
    plain = f"{shards.stem}1.plain"
    lake = open_lake(shards.mirror.config)
    assert [*lake.tables] == [plain]
    assert lake.arrow(plain).num_rows == 1
    (problem,) = read_status(shards.mirror.config).beside
    assert (problem.table, "it is stopped: " in problem.problem) == ("all.orders", True)
    with pytest.raises(LogUnreadable):
        maintain(shards.mirror.config, no_session, shards.mirror.metadata, Report(quiet=True), patience=0)
    assert "move it away: the table is composed again" in problem.remedy
    own.write_text(whole)
    sync_alone(shards.mirror)
    assert not read_status(shards.mirror.config).beside
    assert {*open_lake(shards.mirror.config).tables} == {plain, "all.orders"}
    assert shards.rows() == shards.server_rows(1, 2)

    shard = f"{shards.stem}2.orders"
    log = Path(shards.path, "tenant=2/_delta_log")
    shutil.copytree(log, tmp_path / "backup")
    for tenant in (1, 2):
        shards.execute(tenant, "INSERT INTO orders VALUES (3, 'c')")
    sync_alone(shards.mirror)
    before = shards.server_rows(2)
    shutil.rmtree(log)
    shutil.copytree(tmp_path / "backup", log)
    (stopped,) = shards.mirror.sync().tables
    assert (stopped.table, stopped.status) == (shard, "stopped")
    assert [row.status for row in read_status(shards.mirror.config).tables if row.table == shard] == ["stopped"]
    shards.execute(1, "INSERT INTO orders VALUES (4, 'd')")
    shards.execute(2, "INSERT INTO orders VALUES (4, 'd')")
    sync_alone(shards.mirror)
    assert shards.rows() == [*shards.server_rows(1), *before]
    (problem,) = read_status(shards.mirror.config).beside
    assert (problem.table, "commits are lost" in problem.problem) == (shard, True)
    shards.mirror.snapshot(shard)
    sync_alone(shards.mirror)
    assert shards.rows() == shards.server_rows(1, 2)
    assert not read_status(shards.mirror.config).beside


@on_mysql
def test_killed_between_any_two_writes_the_merged_table_is_the_same(shards: Shards) -> None:
    for tenant in (1, 2, 3):
        shards.add(tenant, "id INT PRIMARY KEY, v VARCHAR(20), n INT")
        shards.execute(tenant, "INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2)")
    shards.mirror.snapshot()
    shards.execute(1, "INSERT INTO orders VALUES (3, 'c', 3)", "ALTER TABLE orders RENAME COLUMN v TO note")
    shards.execute(2, "UPDATE orders SET v = 'x'", "ALTER TABLE orders MODIFY n BIGINT", "DELETE FROM orders LIMIT 1")
    shards.execute(3, "DROP TABLE orders")
    points: list[FaultPoint] = ["data file written", "epoch committed", "schema evolved", "table composed", "merged"]
    chance = random.Random(55)
    shards.mirror.sync_cut_off(chance, 0.5, points=points)
    assert shards.rows() == shards.server_rows(1, 2)
    for tenant in (1, 2):
        shards.execute(tenant, "INSERT INTO orders (id) VALUES (9)")
    with shards.mirror.cut_off_at("table composed"):
        shards.mirror.sync()
    version = shards.version
    sync_alone(shards.mirror)
    assert shards.rows() == shards.server_rows(1, 2)
    assert shards.version == version
    assert open_lake(shards.mirror.config).tables["all.orders"] == version


@on_mysql
def test_an_entry_that_is_taken_out_leaves_the_merged_table_and_copies_the_shards(shards: Shards) -> None:
    shards.add(1)
    shards.execute(1, "INSERT INTO orders VALUES (1, 'a')")
    shards.mirror.snapshot()
    merged = shards.mirror.options.pop("merge_tables")
    shards.execute(1, "INSERT INTO orders VALUES (2, 'b')")
    sync_alone(shards.mirror)
    sync_alone(shards.mirror)
    lake = open_lake(shards.mirror.config)
    assert [*lake.tables] == [f"{shards.stem}1.orders"]
    assert lake.arrow(f"{shards.stem}1.orders").num_rows == 2
    shards.mirror.options["merge_tables"] = merged
    sync_alone(shards.mirror)
    shards.execute(1, "INSERT INTO orders VALUES (3, 'c')")
    sync_alone(shards.mirror)
    assert [*open_lake(shards.mirror.config).tables] == ["all.orders"]
    assert shards.rows() == shards.server_rows(1)


@on_mysql
def test_versions_that_are_told_to_be_readable_are_and_pinned_ones_stay(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "FEW_BYTES", 0)
    mirror = shards.mirror
    mirror.options |= {"maintain": BRIEF, "policies": {"on_drop_table": "drop"}}
    for tenant in (1, 2, 3):
        shards.add(tenant)
        shards.execute(tenant, f"INSERT INTO orders VALUES {', '.join(f'({key}, {key})' for key in range(30))}")
    mirror.snapshot()
    known: dict[int, list[Row]] = {}
    tenants = [1, 2, 3]
    for number in range(1, 8):
        for tenant in tenants[:2]:
            shards.execute(tenant, f"UPDATE orders SET id = {-number} WHERE id = {number}")
        if number == 2:
            shards.execute(1, "ALTER TABLE orders RENAME COLUMN v TO w")
        if number == 4:
            shards.execute(3, "DROP TABLE orders")
            tenants = [1, 2]
        sync_alone(mirror)
        batch = open_lake(mirror.config).batch
        known[batch] = shards.server_rows(*tenants)
        if number in (3, 5):
            pins.pin(mirror.metadata, batch, f"after_{number}", Reason("a test", "to keep it"))
        if number % 2 == 0:
            maintain(mirror.config, no_session, mirror.metadata, Report(quiet=True), patience=0)
        versions = {version.batch: version for version in lake_versions(mirror.metadata, looks=True)}
        for each, rows in known.items():
            if versions[each].readable:
                stored = open_lake(mirror.config).at(batch=each).arrow("all.orders").to_pylist()
                names = sorted({name for row in rows for name in row})
                shown = [{name: row[name] for name in names} for row in stored]
                assert sorted(shown, key=str) == sorted(({n: row[n] for n in names} for row in rows), key=str)
    assert versions[batch].readable
    assert [v.name for v in versions.values() if v.name and v.readable] == ["after_3", "after_5"]
    assert not all(version.readable for version in versions.values())
    assert Path(f"{shards.path}/tenant=3").exists(), "dropped, but a pinned version has it"
    for name in ("after_3", "after_5"):
        pins.unpin(mirror.metadata, name)
    maintain(mirror.config, no_session, mirror.metadata, Report(quiet=True), patience=0)
    assert not Path(f"{shards.path}/tenant=3").exists()
    assert shards.rows() == shards.server_rows(1, 2)


@on_mysql
def test_readers_of_iceberg_see_the_merged_table_at_each_batch(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FEW_BYTES", 0)
    mirror = shards.mirror
    mirror.options |= {"iceberg": {"every": "batch"}, "maintain": BRIEF}
    for tenant in (1, 2):
        shards.add(tenant)
        shards.execute(tenant, f"INSERT INTO orders VALUES {', '.join(f'({key}, {key})' for key in range(9))}")
    mirror.snapshot()
    batches = {}
    statements = (
        ("ALTER TABLE orders RENAME COLUMN v TO w", "UPDATE orders SET w = 'x' WHERE id = 3"),
        ("ALTER TABLE orders ADD v INT DEFAULT 5 FIRST", "DELETE FROM orders WHERE id > 5"),
        ("TRUNCATE TABLE orders",),
    )
    for number, changes in enumerate(statements):
        if number == 1:
            shards.add(3, "w VARCHAR(20), id INT PRIMARY KEY")  # other ids of the columns
            shards.execute(3, "INSERT INTO orders VALUES ('first', 1)")
        for tenant in (2, 1):
            shards.execute(tenant, *changes, f"INSERT INTO orders (id) VALUES ({20 + number})")
            sync_alone(mirror)
            assert_same(shards.path)
            batches[f"batch-{open_lake(mirror.config).batch}"] = shards.version + 1
    metadata = table_metadata.newest(shards.path)
    assert metadata is not None
    assert metadata.tags == batches
    assert not [*Path(shards.path).glob("tenant=*/_iceberg")]
    maintain(mirror.config, no_session, mirror.metadata, Report(quiet=True), patience=0)
    check_published(mirror.config, mirror.metadata, None).refuse_unequal()
    left = table_metadata.newest(shards.path)
    assert left is not None
    assert 0 < len(left.snapshots) < len(metadata.snapshots)
    for snapshot in left.snapshots:
        number = snapshot["snapshot-id"]
        for name, read in READERS.items():
            assert read(shards.path, number) == by_delta(shards.path, number - 1), (name, number)
    assert not [*Path(shards.path).glob("tenant=*/_iceberg")]


@pytest.mark.parametrize(("count", "rounds"), [(3, 2), *in_the_soak((8, 60))])
def test_a_random_walk_over_shards_equals_their_union(shards: Shards, count: int, rounds: int) -> None:
    """So do the readers of Iceberg."""
    chance = random.Random(count)
    shards.mirror.options["iceberg"] = {"every": "batch", "version": 2 + count % 2}
    levels = dict.fromkeys(range(1, count + 1), 0)
    for tenant in levels:
        shards.add(tenant, "id INT PRIMARY KEY, v VARCHAR(20), n INT")
        shards.execute(tenant, "INSERT INTO orders (id, v, n) VALUES (1, 'a', 1), (2, 'b', NULL)")
    shards.mirror.snapshot()
    points: list[FaultPoint] = ["data file written", "epoch committed", "schema evolved", "table composed", "merged"]
    for number in range(10, 10 + rounds):
        for tenant in chance.sample([*levels], (count + 1) // 2):
            _change_shard(shards, tenant, chance, number)
            if levels[tenant] == min(levels.values()) and levels[tenant] < len(ROLLED):
                shards.execute(tenant, f"ALTER TABLE orders {ROLLED[levels[tenant]]}")
                levels[tenant] += 1
                _change_shard(shards, tenant, chance, number + 20000)
        with mock.patch.object(layout, "FEW_BYTES", chance.choice([0, layout.FEW_BYTES])):
            shards.mirror.sync_cut_off(chance, 0.1, points=points)
        assert shards.rows() == shards.server_rows(*levels), f"round {number}, {levels}"
        assert_same(shards.path)
    assert shards.rows_by_spark() == shards.server_rows(*levels)


def _change_shard(shards: Shards, tenant: int, chance: random.Random, number: int) -> None:
    create = shards.mirror.server.execute("SHOW CREATE TABLE orders", database=f"{shards.stem}{tenant}")[0][1]
    shards.execute(tenant, *drawn_changes(chance, number, create))
