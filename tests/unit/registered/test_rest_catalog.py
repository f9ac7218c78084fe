"""An Iceberg REST catalog, Iceberg's own handlers over SQLite, follows what is published by commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import iceberg_rest_server
from binlake.config import PipelineConfig
from binlake.doctor import catalog_checks
from binlake.errors import LakeError
from binlake.iceberg import published_table, table_metadata, upkeep
from binlake.iceberg.publication import publish_alone
from binlake.phases.register import register, registration_due
from binlake.records.status import read_status
from binlake.registered import published_names
from binlake.registered.rest_client import RestClient
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.spark.starting import no_session
from binlake.store.metadata import metadata_of
from iceberg_readers import by_delta, newest_by_duckdb, ordered
from iceberg_rest_server import TOKEN
from plain_table import PlainTable
from published_lake import PublishedLake, appending

pyiceberg_catalog = pytest.importorskip("pyiceberg.catalog")
pytest.importorskip("duckdb_extension_iceberg")

ORDERS, ITEMS = TableName("shop", "orders"), TableName("a b", "items")
COLUMNS = [("id", "INT"), ("v", "STRING")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if why := iceberg_rest_server.why_missing():
        pytest.skip(why)
    with iceberg_rest_server.iceberg_rest_server(tmp_path_factory.mktemp("rest") / "server") as address:
        yield address


class Followed:
    """A lake and the entry of a catalog. Each has names of its own there, by its source's folder."""

    def __init__(self, folder: Path, server: str, version: int = 3) -> None:
        folder.mkdir()
        self.lake = PublishedLake(folder, {ORDERS: COLUMNS, ITEMS: COLUMNS}, every="batch", version=version)
        self.database = f"{folder.parent.name}_{version}_{{database}}"
        self.entry = {"kind": "rest", "name": "lakehouse", "uri": server, "connection": "lakehouse"}
        self.server = server

    @property
    def config(self) -> PipelineConfig:
        written = self.lake.config.model_dump(exclude_unset=True)
        return PipelineConfig.model_validate({**written, "catalog": [{**self.entry, "database": self.database}]})

    def register(self) -> list[str]:
        return list(register(self.config, no_session, Report(quiet=True)).registered)

    def point(self, *names: TableName) -> None:
        paths = {name: self.lake.tables[name].path for name in names}
        published_names.point(self.config, paths, Report(quiet=True))

    def change(self, name: TableName, change: Callable[[PlainTable], None]) -> None:
        """Change a table, and let the catalog follow."""
        self.lake.batch({name: change})
        self.point(name)
        assert read_status(self.config).catalogs == ()

    def loaded(self, name: TableName) -> Any:
        catalog = pyiceberg_catalog.load_catalog("c", type="rest", uri=self.server, token=TOKEN)
        return catalog.load_table((self.database.format(database=name.database), name.table))

    def assert_same(self, name: TableName) -> None:
        """Readers see the newest version, and older ones by their ids, as Delta's readers do."""
        path, loaded = self.lake.tables[name].path, self.loaded(name)
        metadata = table_metadata.newest(path)
        assert metadata is not None
        theirs = sorted(each.snapshot_id for each in loaded.metadata.snapshots)
        assert theirs == [each["snapshot-id"] for each in metadata.snapshots]
        assert {ref: each.snapshot_id for ref, each in loaded.metadata.refs.items()} == {
            ref: each["snapshot-id"] for ref, each in metadata.content["refs"].items()
        }
        for number in theirs:
            assert ordered(loaded.scan(snapshot_id=number).to_arrow()) == by_delta(path, number - 1), number
        assert ordered(loaded.scan().to_arrow()) == by_delta(path)
        assert newest_by_duckdb(loaded.metadata_location.removeprefix("file://")) == by_delta(path)


@pytest.fixture
def followed(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> Followed:
    monkeypatch.setenv("AIRFLOW_CONN_LAKEHOUSE", json.dumps({"extra": {"token": TOKEN}}))
    made = Followed(tmp_path / "lake", server)
    published_names._failed.drop([made.config.reached_catalogs[0].identity])  # another test let it fail
    return made


def hide_first(table: PlainTable) -> None:
    table.hide({table.files[0]["path"]: [0]})


CHANGES: list[Callable[[PlainTable], None]] = [
    appending(*({"id": number, "v": f"v{number}"} for number in range(4))),
    hide_first,
    lambda table: table.reshape([("w", "STRING", "v"), ("id", "INT", "id"), ("note", "STRING", None)]),
    appending({"w": "d", "id": 9, "note": "n"}),
    lambda table: table.reshape([("w", "STRING", "w"), ("note", "STRING", "note")]),
    lambda table: table.replace(table.files, []),
    lambda table: table.reshape([("w", "BIGINT", None), ("id", "INT", None)]),
    appending({"w": 1 << 40, "id": 1}),
]
"""Rows come and go, columns get other names, come and go, a TRUNCATE, and names are used again for other types."""


@pytest.mark.parametrize("version", [3, pytest.param(2, marks=pytest.mark.soak)])
def test_each_publication_is_a_commit(followed: Followed, tmp_path: Path, server: str, version: int) -> None:
    of_version = followed if version == 3 else Followed(tmp_path / "lake2", server, 2)
    assert len(of_version.register()) == 2
    assert not registration_due(of_version.config)
    for change in CHANGES:
        of_version.change(ORDERS, change)
    of_version.assert_same(ORDERS)
    assert not registration_due(of_version.config)


def test_a_catalog_begins_again_without_what_a_table_was(followed: Followed) -> None:
    followed.register()
    for change in CHANGES[:3]:
        followed.change(ORDERS, change)
    table, config = followed.lake.tables[ORDERS], followed.config
    folder = Path(table.path, "_iceberg", "registered", "lakehouse")
    before = {file.name for file in folder.iterdir()}
    CHANGES[3](table)
    publish_alone(table.path)
    published_names.begin_again(config, metadata_of(config), ORDERS, table.path, Report(quiet=True))
    files = list(folder.iterdir())
    assert files
    assert not before & {file.name for file in files}
    assert not [file for file in files if '"name": "v"' in file.read_text()]
    followed.assert_same(ORDERS)
    followed.change(ORDERS, CHANGES[4])
    followed.assert_same(ORDERS)


def test_what_was_missed_is_one_commit(followed: Followed) -> None:
    followed.register()
    for change in CHANGES:
        followed.lake.batch({ORDERS: change})
    followed.point(ORDERS)
    followed.assert_same(ORDERS)


def test_snapshots_that_the_upkeep_lets_go_are_gone_there(followed: Followed) -> None:
    followed.register()
    for change in CHANGES[:2]:
        followed.change(ORDERS, change)
    path = followed.lake.tables[ORDERS].path
    (old,) = (file["path"] for file in followed.lake.tables[ORDERS].files_at(1).values())
    followed.change(ORDERS, lambda table: table.replace(table.files, [{"id": 1, "v": "new"}]))
    upkeep.expire(path, [old], {"pinned": followed.lake.tables[ORDERS].version})
    followed.register()
    followed.assert_same(ORDERS)
    assert "pinned" in followed.loaded(ORDERS).metadata.refs


def test_a_table_made_again_is_registered_again(followed: Followed) -> None:
    followed.register()
    followed.change(ORDERS, CHANGES[0])
    before = followed.loaded(ORDERS).metadata.table_uuid
    table = followed.lake.tables[ORDERS]
    followed.change(ORDERS, lambda table: table.replace_columns([("id", "STRING")]))
    followed.change(ORDERS, appending({"id": "x"}))
    followed.assert_same(ORDERS)
    assert followed.loaded(ORDERS).metadata.table_uuid != before
    assert by_delta(table.path) == [{"id": "x"}]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(
    "is_sent", [pytest.param(False, marks=pytest.mark.soak), True], ids=["before a request", "behind a request"]
)
def test_a_run_that_was_killed_is_continued(followed: Followed, monkeypatch: pytest.MonkeyPatch, is_sent: bool) -> None:
    """A table is registered, another one is made again, and commits are made; killed at each request in turn."""
    opened = RestClient._opened
    for stop in range(40):
        count = 0

        def cut_off(client: RestClient, request: Any, stop: int = stop) -> Any:
            nonlocal count
            count += 1
            if count - 1 == stop:
                if is_sent:
                    opened(client, request)
                raise Killed
            return opened(client, request)

        if stop % 3 == 1:
            followed.lake.batch({ORDERS: lambda table: table.replace_columns([("id", "INT"), ("v", "STRING")])})
        followed.lake.batch({name: appending({"id": stop, "v": "x"}) for name in (ORDERS, ITEMS)})
        with monkeypatch.context() as patch:
            patch.setattr(RestClient, "_opened", cut_off)
            try:
                followed.point(ORDERS, ITEMS)
            except Killed:
                continue_with = True
            else:
                continue_with = False
        followed.point(ORDERS, ITEMS)
        assert read_status(followed.config).catalogs == ()
        if stop < 3 or not continue_with:
            followed.assert_same(ORDERS)
            followed.assert_same(ITEMS)
        if not continue_with:
            break
    else:
        pytest.fail("it asks without an end")
    assert stop > 4
    assert not followed.register()


def test_a_stale_commit_is_refused_and_made_again(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.register()
    followed.lake.batch({ORDERS: CHANGES[0]})
    opened, commits = RestClient._opened, list[str]()

    def overtaken(client: RestClient, request: Any) -> Any:
        if request.method == "POST":
            commits.append(request.selector)
            if len(commits) == 1:
                followed.point(ORDERS)
                followed.lake.batch({ORDERS: hide_first})
        return opened(client, request)

    monkeypatch.setattr(RestClient, "_opened", overtaken)
    followed.point(ORDERS)
    assert len(commits) == 3, "the refused one, the other's, and the one that was made again"
    assert read_status(followed.config).catalogs == ()
    followed.assert_same(ORDERS)


def test_what_is_not_ours_is_left_alone_and_named(followed: Followed, tmp_path: Path, server: str) -> None:
    other = Followed(tmp_path / "other", server)
    other.database = followed.database
    other.register()
    other.change(ORDERS, appending({"id": 77, "v": "theirs"}))
    with pytest.raises(LakeError, match=r"orders is another's table, at file://.*/other/shop/shop/orders"):
        followed.register()
    followed.lake.batch({ORDERS: CHANGES[0]})
    followed.point(ORDERS)
    other.assert_same(ORDERS)
    (problem,) = read_status(followed.config).catalogs
    assert "is another's table" in problem.problem


def test_names_of_tables_that_are_gone_are_removed(followed: Followed) -> None:
    followed.register()
    followed.lake.iceberg = {**followed.lake.iceberg, "tables": ["shop.*"]}
    assert registration_due(followed.config)
    assert register(followed.config, no_session, Report(quiet=True)).dropped
    with pytest.raises(Exception, match="does not exist"):
        followed.loaded(ITEMS)
    assert Path(followed.lake.tables[ITEMS].path, "_iceberg/metadata").is_dir()
    assert not registration_due(followed.config)


def test_of_two_tables_of_one_name_none_has_it(followed: Followed) -> None:
    """Nor does a batch on one of them give it the name that another one has."""
    other = TableName("stock", "orders")
    followed.lake.tables[other] = PlainTable(Path(followed.config.table_path(other)), COLUMNS)
    followed.lake.batch({name: appending({"id": 1, "v": str(name)}) for name in (ORDERS, other)})
    followed.database = f"{followed.database.partition('{')[0]}all"
    followed.point(ORDERS)
    followed.point(other)
    with pytest.raises(Exception, match="does not exist"):
        followed.loaded(ORDERS)
    row = {
        "table_id": "stock.orders",
        "database": "stock",
        "table": "orders",
        "status": "following",
        "delta_version": 0,
    }
    metadata_of(followed.config).append("watermarks", [row])
    with pytest.raises(LakeError, match=r"all\.orders would be shop\.orders and stock\.orders"):
        followed.register()
    with pytest.raises(Exception, match="does not exist"):
        followed.loaded(ORDERS)
    followed.assert_same(ITEMS)


def test_a_catalog_that_is_away_holds_nothing_back(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.register()
    monkeypatch.setenv("AIRFLOW_CONN_LAKEHOUSE", json.dumps({"extra": {"token": "of-nobody"}}))
    followed.lake.batch({ORDERS: CHANGES[0]})
    followed.point(ORDERS)
    (problem,) = read_status(followed.config).catalogs
    assert "refused GET /v1/config: 401" in problem.problem
    assert "catalog.connection" in problem.remedy
    assert "of-nobody" not in problem.problem
    (check,) = catalog_checks.checks(followed.config)
    assert (check.ok, "401" in check.found) == ("warn", True)
    with pytest.raises(LakeError, match="401"):
        followed.register()
    monkeypatch.setenv("AIRFLOW_CONN_LAKEHOUSE", json.dumps({"extra": {"token": TOKEN}}))
    followed.register()
    followed.assert_same(ORDERS)
    assert read_status(followed.config).catalogs == ()


def test_copies_that_were_not_registered_are_removed(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.register()
    followed.change(ORDERS, CHANGES[0])
    folder = Path(followed.lake.tables[ORDERS].path, "_iceberg/registered/lakehouse")
    before = set(folder.iterdir())
    assert len([path for path in before if path.name.startswith("binlake-")]) == 1
    dead = folder / "binlake-of-the-dead.metadata.json"
    dead.write_text("{}")
    followed.register()
    assert dead.exists(), "it may be about to be registered"
    monkeypatch.setattr("binlake.registered.rest_catalog._UNKNOWN_SECONDS", -1)
    followed.register()
    assert set(folder.iterdir()) == before
    published_table.forget(followed.lake.tables[ORDERS].path)
    followed.assert_same(ORDERS)
