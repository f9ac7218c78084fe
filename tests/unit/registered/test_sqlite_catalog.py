"""A SQL catalog of pyiceberg follows what is published, and what isn't ours in it stays."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from binlake.config import PipelineConfig
from binlake.config.catalogs_config import SqliteCatalogConfig
from binlake.config.mirrored_tables import TablesConfig
from binlake.doctor import catalog_checks
from binlake.errors import LakeError, UsageError
from binlake.iceberg.publication import publish
from binlake.maintain.maintain import maintain
from binlake.merge.published_tables import publish_now
from binlake.phases.register import register, registration_due
from binlake.records.status import read_status
from binlake.registered import published_names
from binlake.registered.sqlite_catalog import CatalogName, SqliteCatalog
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.spark.starting import no_session
from binlake.store.metadata import metadata_of
from plain_table import PlainTable
from published_lake import PublishedLake, appending

pyiceberg_sql = pytest.importorskip("pyiceberg.catalog.sql")

ORDERS, ITEMS, HIDDEN = TableName("shop", "orders"), TableName("a b", "t/ä"), TableName("shop", "hidden")
ALL = TableName("all", "orders")
COLUMNS = [("id", "INT")]


@pytest.fixture
def lake(tmp_path: Path) -> PublishedLake:
    (tmp_path / "lake").mkdir()
    catalog = {"name": "of_tests", "sqlite": f"{tmp_path}/catalog.db"}
    lake = PublishedLake(
        tmp_path / "lake", dict.fromkeys((ORDERS, ITEMS, HIDDEN), COLUMNS), every="batch",
        tables=["shop.orders", "a b.*"], catalogs=[catalog],
    )  # fmt: skip
    lake.batch({ORDERS: appending({"id": 1})})
    return lake


def catalog_of(lake: PublishedLake) -> Any:
    return pyiceberg_sql.SqlCatalog("of_tests", uri=f"sqlite:///{lake.config.iceberg.catalogs[0].sqlite}")  # type: ignore[union-attr]


def registered(lake: PublishedLake) -> list[str]:
    return list(register(lake.config, no_session, Report(quiet=True)).registered)


def ids(lake: PublishedLake, name: TableName = ORDERS) -> list[int]:
    rows = catalog_of(lake).load_table((name.database, name.table)).scan().to_arrow()
    return sorted(rows["id"].to_pylist())


def test_a_catalog_is_filled_and_read_by_pyiceberg(lake: PublishedLake) -> None:
    assert registration_due(lake.config)
    assert registered(lake) == ["a b.t/ä", "shop.orders"]
    assert not registration_due(lake.config)
    assert registered(lake) == []
    assert sorted(catalog_of(lake).list_namespaces()) == [("a b",), ("shop",)]
    assert catalog_of(lake).list_tables("shop") == [("shop", "orders")]
    assert ids(lake) == [1]


def test_each_publication_moves_the_name(lake: PublishedLake) -> None:
    registered(lake)
    for number in (2, 3):
        lake.tables[ORDERS].append([{"id": number}])
        publish_now(lake.config, [ORDERS], Report(quiet=True))
        assert ids(lake) == list(range(1, number + 1))
    assert not registration_due(lake.config)


def test_a_table_that_several_sources_fill_keeps_its_name(lake: PublishedLake) -> None:
    """It is in a folder beside theirs."""
    entry = {"from": "t%.orders", "into": "all.orders", "source_column": "tenant", "source_name_column": "region",
             "sources": ["shop", "us"], "folder": "company"}  # fmt: skip
    written = lake.config.model_dump(exclude_unset=True)
    iceberg = {**written["iceberg"], "tables": ["all.*"]}
    config = PipelineConfig.model_validate({**written, "merge_tables": [entry], "iceberg": iceberg})
    merged = PlainTable(Path(config.table_path(ALL)), COLUMNS)
    publish(merged.path)
    assert register(config, no_session, Report(quiet=True)).registered == ("all.orders",)
    merged.append([{"id": 7}])
    publish_now(config, [TableName("t1", "orders")], Report(quiet=True))
    assert ids(lake, ALL) == [7]
    assert not registration_due(config)


def test_names_of_tables_that_are_gone_are_removed_by_the_upkeep(lake: PublishedLake) -> None:
    registered(lake)
    narrower = lake.config.iceberg.model_copy(update={"tables": ["shop.*"]})  # type: ignore[union-attr]
    config = lake.config.model_copy(update={"iceberg": narrower})
    assert registration_due(config)
    published_names.follow_all(config, metadata_of(config), Report(quiet=True))
    assert catalog_of(lake).list_tables("a b") == []
    assert Path(lake.tables[ITEMS].path, "_iceberg").is_dir()
    assert not registration_due(config)


def test_a_table_whose_metadata_cant_be_read_keeps_its_name(lake: PublishedLake) -> None:
    """It isn't gone. After a sync no metadata is read of tables that have their names."""
    registered(lake)
    there = {
        path: path.read_text() for path in Path(lake.tables[ORDERS].path, "_iceberg/metadata").glob("v*.metadata.json")
    }
    for path in there:
        path.write_text("{")
    assert not registration_due(lake.config)
    assert registered(lake) == []
    published_names.follow_all(lake.config, metadata_of(lake.config), Report(quiet=True))
    for path, text in there.items():
        path.write_text(text)
    assert ids(lake) == [1]


def test_the_upkeep_registers_what_was_missed(lake: PublishedLake) -> None:
    maintain(lake.config, no_session, metadata_of(lake.config), Report(quiet=True), tables=["shop.hidden"], patience=0)
    assert ids(lake) == [1]


def theirs(lake: PublishedLake, folder: Path) -> str:
    """A table of somebody else, under a name that ours would have; the address of its metadata."""
    other = PublishedLake(folder, {ORDERS: COLUMNS})
    other.batch({ORDERS: appending({"id": 77})})
    metadata = max(Path(other.tables[ORDERS].path, "_iceberg/metadata").glob("v*.json"))
    catalog = catalog_of(lake)
    catalog.create_namespace("shop")
    catalog.register_table(("shop", "orders"), f"file://{metadata}")
    return f"file://{metadata}"


def test_what_is_not_ours_is_left_alone_and_named(lake: PublishedLake, tmp_path: Path) -> None:
    address = theirs(lake, tmp_path / "other")
    before = sorted((tmp_path / "other").rglob("*"))
    with pytest.raises(LakeError, match=rf"catalog of_tests: shop\.orders is another's table, at {address}"):
        registered(lake)
    publish_now(lake.config, [ORDERS], Report(quiet=True))
    assert ids(lake) == [77]
    assert catalog_of(lake).list_tables("a b") == [("a b", "t/ä")]
    assert sorted((tmp_path / "other").rglob("*")) == before
    catalog_of(lake).drop_table(("shop", "orders"))
    registered(lake)
    assert ids(lake) == [1]


def test_a_file_that_another_keeps_is_not_waited_for_by_each_batch(
    lake: PublishedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(lake)
    monkeypatch.setattr("binlake.registered.sqlite_catalog._WAIT_SECONDS", 0.3)
    opened, waits = published_names.opened, list[str]()

    def counted(config: PipelineConfig, catalog: SqliteCatalogConfig) -> SqliteCatalog:
        waits.append(catalog.name)
        return opened(config, catalog)

    monkeypatch.setattr(published_names, "opened", counted)
    with sqlite3.connect(lake.config.iceberg.catalogs[0].sqlite) as connection:  # type: ignore[union-attr]
        connection.execute("BEGIN EXCLUSIVE")
        for number in (2, 3, 4):
            lake.tables[ORDERS].append([{"id": number}])
            publish_now(lake.config, [ORDERS], Report(quiet=True))
    assert len(waits) == 1
    (problem,) = read_status(lake.config).catalogs
    assert "database is locked" in problem.problem
    published_names._failed.clear()  # as after half a minute
    publish_now(lake.config, [ITEMS], Report(quiet=True))
    assert ids(lake) == [1, 2, 3, 4]
    assert read_status(lake.config).catalogs == ()


@pytest.mark.parametrize("form", ["file:/", "file:////"])
def test_an_address_of_another_form_is_ours(lake: PublishedLake, form: str) -> None:
    registered(lake)
    with sqlite3.connect(lake.config.iceberg.catalogs[0].sqlite) as connection:  # type: ignore[union-attr]
        connection.execute(
            "UPDATE iceberg_tables SET metadata_location = ? || substr(metadata_location, length('file:///') + 1)",
            (form,),
        )
    assert not registration_due(lake.config)
    assert registered(lake) == []
    lake.tables[ORDERS].append([{"id": 2}])
    publish_now(lake.config, [ORDERS], Report(quiet=True))
    assert read_status(lake.config).catalogs == ()
    assert ids(lake) == [1, 2]


def test_another_catalog_in_the_file_is_left_alone(lake: PublishedLake) -> None:
    registered(lake)
    path = lake.config.iceberg.catalogs[0].sqlite  # type: ignore[union-attr]
    other = SqliteCatalog(path, "another", [lake.config.root])
    other.put({CatalogName("x", "y"): "file:///nowhere/v1.metadata.json"})
    with sqlite3.connect(path) as connection:
        views = "INSERT INTO iceberg_tables VALUES ('of_tests', 'shop', 'view', 'file:///v.json', NULL, 'VIEW')"
        connection.execute(views)
    registered(lake)
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT catalog_name, table_name FROM iceberg_tables").fetchall()
    assert sorted(rows) == [("another", "y"), ("of_tests", "orders"), ("of_tests", "t/ä"), ("of_tests", "view")]


def test_a_catalog_that_can_not_be_written_holds_nothing_back(
    lake: PublishedLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "catalog.db").mkdir()
    before = sorted((tmp_path / "lake").rglob("*.metadata.json"))
    lake.tables[ORDERS].append([{"id": 2}])
    publish_now(lake.config, [ORDERS], Report())
    assert "the catalog of_tests in" in capsys.readouterr().err
    assert registration_due(lake.config)
    with pytest.raises(LakeError, match="can't be written: unable to open"):
        registered(lake)
    assert set(before) < set((tmp_path / "lake").rglob("*.metadata.json"))
    (tmp_path / "catalog.db").rmdir()
    assert registered(lake) == ["a b.t/ä", "shop.orders"]
    assert ids(lake) == [1, 2]


def test_a_catalog_that_can_not_be_written_keeps_no_name_from_the_other_one(
    lake: PublishedLake, tmp_path: Path
) -> None:
    (tmp_path / "catalog.db").mkdir()
    both = {**lake.config.model_dump(exclude_unset=True), "catalog": {"metastore": str(tmp_path / "metastore")}}
    config = PipelineConfig.model_validate(both)
    with pytest.raises(LookupError, match=r"the catalog .* is reached by Spark"):
        register(config, asked, Report(quiet=True))


def asked(why: str) -> Any:
    """A session that is asked for, and isn't there."""
    raise LookupError(why)


def test_a_table_whose_metadata_can_not_be_read_holds_nothing_back(
    lake: PublishedLake, capsys: pytest.CaptureFixture[str]
) -> None:
    registered(lake)
    _make_unreadable(lake, ITEMS)
    lake.tables[ORDERS].append([{"id": 2}])
    publish_now(lake.config, [ITEMS, ORDERS], Report())
    assert "a b.t/ä: " in capsys.readouterr().err
    assert ids(lake) == [1, 2]
    registered(lake)
    assert catalog_of(lake).list_tables("a b") == [("a b", "t/ä")], "it is there, and its name with it"


def _make_unreadable(lake: PublishedLake, name: TableName) -> None:
    metadata = max(Path(lake.tables[name].path, "_iceberg/metadata").glob("v*.json"))
    metadata.unlink()
    metadata.mkdir()


def test_two_tables_of_one_name_have_none(tmp_path: Path) -> None:
    both = (ORDERS, TableName("stock", "orders"))
    catalog = {"name": "of_tests", "sqlite": f"{tmp_path}/catalog.db", "database": "all"}
    lake = PublishedLake(tmp_path / "lake", dict.fromkeys((*both, ITEMS), COLUMNS), every="batch", catalogs=[catalog])
    lake.batch({ORDERS: appending({"id": 1})})
    with pytest.raises(LakeError, match=r"all\.orders would be shop\.orders and stock\.orders"):
        registered(lake)
    assert catalog_of(lake).list_tables("all") == [("all", "t/ä")]
    lake.tables[ORDERS].append([{"id": 2}])
    publish_now(lake.config, [ORDERS], Report(quiet=True))
    assert catalog_of(lake).list_tables("all") == [("all", "t/ä")], "nor by a batch"


def test_a_table_of_shards_keeps_its_name(tmp_path: Path) -> None:
    catalog = {"name": "of_tests", "sqlite": f"{tmp_path}/catalog.db"}
    lake = PublishedLake(tmp_path / "lake", {ORDERS: COLUMNS}, every="batch", catalogs=[catalog])
    name, shards = TableName("shop", "all"), {"from": "t_%.orders", "into": "shop.all", "source_column": "tenant"}
    tables = TablesConfig.model_validate({"include": ["*.*"], "merge_tables": [shards]})
    config = lake.config.model_copy(update={"tables": tables})
    merged = PlainTable(Path(config.table_path(name)), COLUMNS)
    publish(merged.path)
    registered = register(config, no_session, Report(quiet=True)).registered
    assert registered == ("shop.all", "shop.orders")
    assert not registration_due(config)
    assert ids(lake, name) == []


def test_a_yaml_without_a_catalog_is_refused(lake: PublishedLake) -> None:
    config = PipelineConfig.model_validate({**lake.config.model_dump(exclude={"iceberg"}, exclude_unset=True)})
    with pytest.raises(UsageError, match="names no catalog"):
        register(config, no_session, Report(quiet=True))


def of_kind(lake: PublishedLake, **more: Any) -> PipelineConfig:
    """The same catalog as an entry of ``catalog``."""
    (entry,) = lake.config.reached_catalogs
    assert isinstance(entry, SqliteCatalogConfig)
    written = lake.config.model_dump(exclude_unset=True)
    written["iceberg"].pop("catalogs")
    catalog = {"kind": "sqlite", "name": entry.name, "sqlite": entry.sqlite, **more}
    return PipelineConfig.model_validate({**written, "catalog": [catalog]})


def test_an_entry_of_catalog_is_the_same(lake: PublishedLake) -> None:
    config = of_kind(lake)
    assert config.reached_catalogs[0].identity == lake.config.reached_catalogs[0].identity
    assert register(config, no_session, Report(quiet=True)).registered == ("a b.t/ä", "shop.orders")
    assert not registration_due(lake.config)


def test_published_tables_follow_each_batch(lake: PublishedLake) -> None:
    with pytest.raises(ValidationError, match="Input should be 'batch'"):
        of_kind(lake, every="snapshot")


def test_what_a_catalog_lacks_is_shown_until_the_next_batch_makes_it_good(lake: PublishedLake, tmp_path: Path) -> None:
    registered(lake)
    database, away = tmp_path / "catalog.db", tmp_path / "away.db"
    database.rename(away)
    database.mkdir()
    for number in (2, 3):
        lake.tables[ORDERS].append([{"id": number}])
        publish_now(lake.config, [ORDERS], Report(quiet=True))
    (problem,) = read_status(lake.config).catalogs
    assert problem.catalog == "of_tests"
    assert "can't be written" in problem.problem
    assert "its folder is there" in problem.remedy
    (check,) = catalog_checks.checks(lake.config)
    assert (check.name, check.ok) == ("catalog of_tests", "warn")
    database.rmdir()
    away.rename(database)
    published_names._failed.clear()  # as after half a minute
    (check,) = catalog_checks.checks(lake.config)
    assert "lacks something" in check.found
    lake.tables[ITEMS].append([{"id": 9}])
    publish_now(lake.config, [ITEMS], Report(quiet=True))
    assert ids(lake) == [1, 2, 3]
    assert ids(lake, ITEMS) == [9]
    assert read_status(lake.config).catalogs == ()
    (check,) = catalog_checks.checks(lake.config)
    assert check.ok is True
