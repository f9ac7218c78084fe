"""AWS Glue, by moto's server, follows published tables and Delta tables, and what isn't ours there is left alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glue_server
from binlake.config import PipelineConfig
from binlake.config.catalogs_config import GlueCatalogConfig
from binlake.delta import opened_tables, plain_tables
from binlake.doctor import catalog_checks
from binlake.errors import LakeError
from binlake.iceberg import published_table, table_metadata
from binlake.iceberg.publication import publish
from binlake.merge.published_tables import publish_changed
from binlake.phases.register import register, registration_due
from binlake.planner.outcome import BatchOutcome, LifeOutcome
from binlake.position import Position
from binlake.records.status import read_status
from binlake.registered import glue_catalog, glue_client, published_names
from binlake.registered.glue_client import GlueClient, GlueRefused
from binlake.registered.sqlite_catalog import CatalogName
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.spark.starting import no_session
from binlake.store.metadata import metadata_of
from glue_server import ACCOUNT, REGION
from iceberg_readers import by_delta, newest_by_duckdb, ordered
from plain_table import PlainTable
from published_lake import PublishedLake, appending

ORDERS, ITEMS = TableName("shop", "orders"), TableName("A b", "Items-é")
COLUMNS = [("id", "INT"), ("v", "STRING"), ("at", "TIMESTAMP_NTZ"), ("price", "DECIMAL(10,2)")]
AT = Position("server", "binlog.000001", 1000, 1)
CHANGED = LifeOutcome("life", ORDERS, AT, AT, "following", None, "", True, delta_version=1)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if why := glue_server.why_missing():
        pytest.skip(why)
    with glue_server.glue_server() as address:
        yield address


class Followed:
    """A lake and the entry of a catalog. Each has databases of its own there, by its folder."""

    def __init__(self, folder: Path, server: str, form: str) -> None:
        folder.mkdir()
        columns = {ORDERS: COLUMNS, ITEMS: COLUMNS}
        self.lake = PublishedLake(folder, columns, every="batch")
        self.prefix = folder.parent.name
        self.entry: dict[str, Any] = {
            "kind": "glue", "name": "lake", "format": form, "region": REGION, "endpoint": server,
            "database": f"{self.prefix}_{{database}}",
        }  # fmt: skip
        self.asked = self.client()

    def client(self, region: str = REGION) -> GlueClient:
        return GlueClient(GlueCatalogConfig.model_validate({**self.entry, "region": region}), "/nowhere", 60)

    @property
    def config(self) -> PipelineConfig:
        written = self.lake.config.model_dump(exclude_unset=True)
        return PipelineConfig.model_validate({**written, "catalog": [self.entry]})

    def register(self) -> list[str]:
        return list(register(self.config, no_session, Report(quiet=True)).registered)

    def point(self, *names: TableName) -> None:
        """As a batch does that changed tables."""
        paths = {name: self.lake.tables[name].path for name in names}
        published_names.point(self.config, paths, Report(quiet=True))
        published_names.point_delta(self.config, paths, Report(quiet=True))

    def there(self, database: str = "shop", table: str = "orders") -> dict[str, Any]:
        answer = self.asked.ask("GetTable", DatabaseName=f"{self.prefix}_{database}", Name=table)
        return dict(answer["Table"])

    def is_there(self, database: str = "shop", table: str = "orders") -> bool:
        try:
            return bool(self.there(database, table))
        except GlueRefused as error:
            if error.kind != "EntityNotFoundException":
                raise
            return False

    def change(self, **table: Any) -> None:
        """Change what Glue has of orders, as others do."""
        kept = ("Name", "TableType", "StorageDescriptor", "Parameters", "Owner", "Description")
        has = {key: value for key, value in self.there().items() if key in kept}
        self.asked.ask("UpdateTable", DatabaseName=f"{self.prefix}_shop", TableInput=has | table)

    def problem(self) -> str:
        return "; ".join(each.problem for each in read_status(self.config).catalogs)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ACCOUNT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(glue_client, "_session", glue_client._session.__wrapped__)  # type: ignore[attr-defined]


@pytest.fixture(params=["delta", "iceberg"])
def followed(tmp_path: Path, server: str, account: None, request: pytest.FixtureRequest) -> Followed:
    made = Followed(tmp_path / "lake", server, request.param)
    published_names._failed.drop([made.config.reached_catalogs[0].identity])  # another test let it fail
    return made


@pytest.fixture
def published(tmp_path: Path, server: str, account: None) -> Followed:
    return Followed(tmp_path / "lake", server, "iceberg")


@pytest.fixture
def of_delta(tmp_path: Path, server: str, account: None) -> Followed:
    return Followed(tmp_path / "lake", server, "delta")


def reshaped(table: PlainTable) -> None:
    table.reshape(
        [("id", "BIGINT", None), ("name", "STRING", "v"), ("on", "BOOLEAN", None), ("w", "ARRAY<FLOAT>", None)]
    )


def test_readers_of_glue_see_each_publication(published: Followed) -> None:
    glue_server.make_boto3_importable()
    pytest.importorskip("duckdb_extension_iceberg")
    from pyiceberg.catalog.glue import GlueCatalog

    pyiceberg = GlueCatalog(
        "c", **{"glue.region": REGION, "glue.endpoint": published.entry["endpoint"],
                "glue.access-key-id": "a", "glue.secret-access-key": "b"},
    )  # fmt: skip
    assert len(published.register()) == 2
    path = published.lake.tables[ORDERS].path
    changes = [
        appending({"id": 1, "v": "a", "at": None, "price": None}),
        lambda table: table.hide({table.files[0]["path"]: [0]}),
        reshaped,
    ]
    for change in changes:
        before = published.there()["Parameters"]["metadata_location"]
        published.lake.batch({ORDERS: change})
        published.point(ORDERS)
        assert published.problem() == ""
        assert published.there()["Parameters"]["previous_metadata_location"] == before
        loaded = pyiceberg.load_table((f"{published.prefix}_shop", "orders"))
        assert ordered(loaded.scan().to_arrow()) == by_delta(path)
        assert newest_by_duckdb(loaded.metadata_location.removeprefix("file://")) == by_delta(path)
    assert not registration_due(published.config)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_columns_have_types_and_comments(tmp_path: Path, server: str, account: None, form: str) -> None:
    followed = Followed(tmp_path / "lake", server, form)
    table = followed.lake.tables[ORDERS]
    comment(table, "the\norders " + "x" * 3000, {"v": "ein\tWort " + "é" * 300})
    publish(table.path)
    followed.register()
    there = followed.there()
    assert [(each["Name"], each["Type"]) for each in there["StorageDescriptor"]["Columns"]] == [
        ("id", "int"), ("v", "string"), ("at", "timestamp"), ("price", "decimal(10,2)"),
    ]  # fmt: skip
    assert there["StorageDescriptor"]["Columns"][1]["Comment"] == "ein Wort " + "é" * 123  # 255 bytes
    assert there["Description"] == ("the orders " + "x" * 3000)[:2048]
    followed.lake.batch({ORDERS: reshaped})
    followed.point(ORDERS)
    assert [(each["Name"], each["Type"]) for each in followed.there()["StorageDescriptor"]["Columns"]] == [
        ("id", "bigint"), ("name", "string"), ("on", "boolean"), ("w", "array<float>"),
    ]  # fmt: skip
    assert followed.problem() == ""


def comment(table: PlainTable, description: str, columns: dict[str, str]) -> None:
    """Comment on a table and its columns, as the server's COMMENT does."""
    opened = opened_tables.opened(table.path)
    fields = plain_tables.fields_of(opened)
    for field in fields:
        if field["name"] in columns:
            field["metadata"]["comment"] = columns[field["name"]]
    schema = json.dumps({"type": "struct", "fields": fields})
    table.commit(plain_tables.metadata_with(opened, schema, {}, description))


def test_a_delta_table_is_as_athena_trino_and_spark_look_for_it(of_delta: Followed) -> None:
    assert of_delta.register() == [f"{of_delta.prefix}_a_b.items__", f"{of_delta.prefix}_shop.orders"]
    there, place = of_delta.there(), f"file://{of_delta.lake.tables[ORDERS].path}"
    assert there["TableType"] == "EXTERNAL_TABLE"
    assert there["Parameters"]["table_type"] == "DELTA"
    assert there["Parameters"]["spark.sql.sources.provider"] == "delta"
    assert there["StorageDescriptor"]["Location"] == place
    assert there["StorageDescriptor"]["SerdeInfo"]["Parameters"]["path"] == place
    assert of_delta.is_there("a_b", "items__")


def test_a_batch_that_leaves_columns_as_they_were_asks_nothing(
    of_delta: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_delta.register()
    asked, real = list[str](), GlueClient.ask

    def noting(self: GlueClient, action: str, **body: Any) -> dict[str, Any]:
        asked.append(action)
        return real(self, action, **body)

    monkeypatch.setattr(GlueClient, "ask", noting)
    of_delta.lake.batch({ORDERS: appending({"id": 1, "v": "a", "at": None, "price": None})})
    of_delta.point(ORDERS)
    assert asked == []
    of_delta.lake.batch({ORDERS: reshaped})
    of_delta.point(ORDERS)
    assert asked == ["GetTable", "UpdateTable"]


def test_a_batch_of_a_lake_that_publishes_nothing_gives_names(of_delta: Followed) -> None:
    whole = of_delta.config
    of_snapshots = [GlueCatalogConfig.model_validate({**of_delta.entry, "every": "snapshot"})]
    for catalogs, wanted in ((of_snapshots, False), (whole.catalog, True)):
        config = whole.model_copy(update={"iceberg": None, "catalog": catalogs})
        publish_changed(config, BatchOutcome((CHANGED,)), 1, Report(quiet=True))
        published_names.follow_all(config, metadata_of(config), Report(quiet=True)) if not wanted else None
        assert (of_delta.is_there(), of_delta.is_there("a_b", "items__")) == (wanted, False)
    assert registration_due(config, "batch")
    assert not registration_due(config.model_copy(update={"catalog": of_snapshots}), "batch")
    assert registration_due(config.model_copy(update={"catalog": of_snapshots}), "snapshot")


def test_what_is_not_ours_is_left_alone(followed: Followed) -> None:
    database = f"{followed.prefix}_shop"
    theirs = {
        "Name": "orders",
        "StorageDescriptor": {"Location": "s3://theirs/orders", "Columns": []},
        "Parameters": {},
    }
    followed.asked.ask("CreateDatabase", DatabaseInput={"Name": database})
    followed.asked.ask("CreateTable", DatabaseName=database, TableInput=theirs)
    for _ in range(2):
        with pytest.raises(LakeError, match=r"_shop\.orders is another's table, at s3://theirs/orders"):
            followed.register()
        assert followed.there()["StorageDescriptor"]["Location"] == "s3://theirs/orders"
        assert followed.is_there("a_b", "items__")
    assert "another's table" in followed.problem()
    check = next(catalog_checks.checks(followed.config))
    assert (check.ok, "another's table" in check.found) == ("warn", True)
    followed.asked.ask("DeleteTable", DatabaseName=database, Name="orders")
    followed.register()
    assert followed.problem() == ""
    assert next(catalog_checks.checks(followed.config)).ok is True


def test_a_table_of_another_lake_keeps_its_name(followed: Followed, tmp_path: Path) -> None:
    followed.register()
    (tmp_path / "other").mkdir()
    other = Followed(tmp_path / "other" / "lake", followed.entry["endpoint"], followed.entry["format"])
    other.prefix, other.entry["database"] = followed.prefix, followed.entry["database"]
    with pytest.raises(LakeError, match="is another's table, at file://"):
        other.register()
    assert str(followed.lake.folder) in followed.there()["StorageDescriptor"]["Location"]


def test_what_others_noted_stays_and_what_they_wrote_is_not_undone(published: Followed) -> None:
    published.register()
    has = published.there()["Parameters"]
    published.change(Owner="analysts", Parameters={**has, "classification": "gold"})
    published.lake.batch({ORDERS: reshaped})
    published.point(ORDERS)
    there = published.there()
    assert (there["Owner"], there["Parameters"]["classification"]) == ("analysts", "gold")
    written = "file:///elsewhere/00007-0a1b.metadata.json"
    published.change(Parameters={**there["Parameters"], "metadata_location": written})
    with pytest.raises(LakeError, match=r"orders was written by others"):
        published.register()
    assert published.there()["Parameters"]["metadata_location"] == written


def test_names_go_with_their_tables(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.register()
    orders, items = followed.lake.tables[ORDERS].path, followed.lake.tables[ITEMS].path
    monkeypatch.setattr(
        "binlake.records.registrations.readable_tables", lambda *_: iter([(TableName("shop", "Sold items"), items)])
    )
    assert registration_due(followed.config)
    assert followed.register() == [f"{followed.prefix}_shop.sold_items"]
    assert not followed.is_there()
    assert not followed.is_there("a_b", "items__")
    assert followed.there("shop", "sold_items")["StorageDescriptor"]["Location"] == f"file://{items}"
    assert Path(orders).is_dir()


def test_of_two_tables_with_one_name_neither_gets_it(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    items, path = TableName("shop", "ORDERS"), followed.lake.tables[ITEMS].path
    tables = [(ORDERS, followed.lake.tables[ORDERS].path), (items, path)]
    monkeypatch.setattr("binlake.records.registrations.readable_tables", lambda *_: iter(tables))
    followed.lake.tables[items] = followed.lake.tables[ITEMS]
    followed.point(ORDERS, items)
    assert not followed.is_there()
    with pytest.raises(LakeError, match=r"_shop\.orders would be shop\.orders and shop\.ORDERS"):
        followed.register()
    assert not followed.is_there()


@pytest.mark.parametrize(("followed", "when"), [("iceberg", "before"), ("delta", "behind")], indirect=["followed"])
def test_a_kill_at_any_request_is_made_good(followed: Followed, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Of a registration, of a batch, and of names that go."""
    real, left = GlueClient._sent, [0]

    def killed(self: GlueClient, action: str, body: Any) -> dict[str, Any]:
        left[0] -= 1
        if left[0] == 0 and when == "before":
            raise KeyboardInterrupt
        answer = real(self, action, body)
        if left[0] == 0:
            raise KeyboardInterrupt
        return answer

    def through() -> None:
        """Kill at the first request, then at the second, and so on, until none is left."""
        for number in range(1, 40):
            left[0] = number
            glue_catalog._put.clear()
            try:
                followed.register()
            except KeyboardInterrupt:
                continue
            return
        raise AssertionError("it never ends")

    monkeypatch.setattr("binlake.registered.committed_names._SIDE_BY_SIDE", 1)
    followed.asked = followed.client()
    with monkeypatch.context() as patch:
        patch.setattr(GlueClient, "_sent", killed)
        through()
        followed.lake.batch({ORDERS: reshaped})
        through()
    assert [each["Name"] for each in followed.there()["StorageDescriptor"]["Columns"]] == ["id", "name", "on", "w"]
    assert followed.is_there("a_b", "items__")
    tables = [(ORDERS, followed.lake.tables[ORDERS].path)]
    with monkeypatch.context() as patch:
        patch.setattr("binlake.records.registrations.readable_tables", lambda *_: iter(tables))
        patch.setattr(GlueClient, "_sent", killed)
        through()
        assert not registration_due(followed.config)
    assert not followed.is_there("a_b", "items__")


def test_who_changes_a_table_meanwhile_is_not_overtaken(published: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update names the version that was read; another's since then lets it be read again."""
    published.register()
    real, refused = GlueClient.ask, list[str]()

    def refusing(self: GlueClient, action: str, **body: Any) -> dict[str, Any]:
        if action == "UpdateTable" and not refused:
            refused.append(body["VersionId"])
            raise GlueRefused("it changed", remedy="", kind="ConcurrentModificationException")
        return real(self, action, **body)

    monkeypatch.setattr(GlueClient, "ask", refusing)
    published.lake.batch({ORDERS: reshaped})
    published.point(ORDERS)
    assert (refused, published.problem()) == (["1"], "")
    metadata = table_metadata.newest(published.lake.tables[ORDERS].path)
    assert metadata is not None
    assert published.there()["Parameters"]["metadata_location"] == f"file://{metadata.path}"


def test_a_table_that_is_made_again_keeps_its_name(published: Followed) -> None:
    published.register()
    table = published.lake.tables[ORDERS]
    publish(table.path, None, 2)
    published_table.forget(table.path)
    published.point(ORDERS)
    assert published.problem() == ""
    assert published.there()["Parameters"]["metadata_location"].endswith("/v2.metadata.json")


def test_two_entries_never_take_a_name_from_each_other(of_delta: Followed) -> None:
    """Their databases are the same for the server's database alone."""
    written = of_delta.config.model_dump(exclude_unset=True)
    other = {**of_delta.entry, "name": "other", "format": "iceberg", "database": f"{of_delta.prefix}_shop"}
    config = PipelineConfig.model_validate({**written, "catalog": [of_delta.entry, other]})
    for _ in range(2):
        with pytest.raises(LakeError, match=r"orders is the table of another entry of catalog, 'lake', at file://"):
            register(config, no_session, Report(quiet=True))
        assert of_delta.there()["Parameters"]["table_type"] == "DELTA"


def test_an_entry_may_get_another_name(followed: Followed) -> None:
    followed.register()
    followed.entry["name"] = "renamed"
    assert followed.register()
    assert followed.there()["Parameters"]["binlake.catalog"] == "renamed"


def test_an_entry_may_get_another_format(followed: Followed) -> None:
    followed.register()
    followed.entry["format"] = "iceberg" if followed.entry["format"] == "delta" else "delta"
    published_names.follow_all(followed.config, metadata_of(followed.config), Report(quiet=True))
    parameters = followed.there()["Parameters"]
    assert parameters["table_type"] == followed.entry["format"].upper()
    assert ("metadata_location" in parameters) == (followed.entry["format"] == "iceberg")
    assert ("spark.sql.sources.provider" in parameters) == (followed.entry["format"] == "delta")


def test_a_name_that_others_wrote_stays_when_its_table_goes(
    published: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    published.register()
    written = "file:///elsewhere/00007-0a1b.metadata.json"
    published.change(Parameters={**published.there()["Parameters"], "metadata_location": written})
    monkeypatch.setattr("binlake.records.registrations.readable_tables", lambda *_: iter([]))
    with pytest.raises(LakeError, match=r"orders was written by others"):
        published.register()
    assert published.is_there()
    assert not published.is_there("a_b", "items__")


def test_a_table_that_several_sources_fill_stays_for_the_others(of_delta: Followed) -> None:
    table = PlainTable(of_delta.lake.folder / "company" / "orders", COLUMNS)
    entry = GlueCatalogConfig.model_validate(of_delta.entry)
    name = CatalogName(f"{of_delta.prefix}_all", "orders")
    catalog = glue_catalog.GlueCatalog(entry, of_delta.config.root, 60)
    assert [catalog.put(name, table.path) for _ in range(2)] == ["", ""]
    catalog.drop(name, table.path)
    assert of_delta.is_there("all")
    shutil.rmtree(table.path)
    catalog.drop(name, table.path)
    assert not of_delta.is_there("all")
