"""What a batch, an upkeep and ``binlake register`` ask a REST catalog for, by a catalog that keeps tables in memory."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from binlake.config import PipelineConfig
from binlake.config.catalogs_config import RestCatalogConfig
from binlake.errors import LakeError
from binlake.iceberg.publication import publish
from binlake.lease import lease
from binlake.phases.register import register
from binlake.records import catalog_problems
from binlake.registered import committed_names, published_names
from binlake.registered.rest_catalog import RestCatalog
from binlake.registered.rest_client import CONFLICT, NOT_FOUND, RestRefused
from binlake.registered.sqlite_catalog import CatalogName
from binlake.registered.timed_client import CatalogSilent
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.spark.starting import no_session
from binlake.store.metadata import metadata_of
from plain_table import PlainTable
from published_lake import PublishedLake, appending

NAMES = [TableName("shop", f"t{number}") for number in range(6)]
COLUMNS = [("id", "INT")]
QUIET = Report(quiet=True)


class Catalog:
    """A catalog. refused: statuses by the tables whose registration is refused. most: requests that a client may send
    before the time is over. silent: requests for tables aren't answered. written: how it writes a table's metadata."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.seconds: list[float] = []
        self.refused: dict[str, int] = {}
        self.most, self.silent = 1_000_000, False
        self.written: Callable[[Any], Any] = lambda content: content
        self.before_answer: Callable[[str], None] = lambda method: None
        self.changing = threading.Lock()

    def client(self, _: RestCatalogConfig, seconds: float) -> Client:
        self.seconds.append(seconds)
        return Client(self)

    def answer(self, method: str, path: tuple[str, ...], body: Any) -> dict[str, Any]:
        name = body["name"] if path[-1] == "register" else path[-1]
        with self.changing:
            self.asked.append((method, name))
        self.before_answer(method)
        if path[-1] == "register":
            if status := self.refused.get(name):
                raise RestRefused(f"no {name}", remedy="allow it", status=status)
            content = json.loads(Path(body["metadata-location"].removeprefix("file://")).read_text())
            self.tables[name] = {"metadata": self.written(content), "metadata-location": body["metadata-location"]}
        elif name not in self.tables:
            raise RestRefused("none", remedy="", status=NOT_FOUND)
        elif method == "DELETE":
            del self.tables[name]
        return self.tables.get(name, {})


class Client:
    """One client of it."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog, self.sent = catalog, 0
        self.silent: CatalogSilent | None = None

    def ask(self, method: str, *path: str, body: Any = None, query: str = "") -> dict[str, Any]:
        with self.catalog.changing:
            self.sent += 1
            if self.catalog.silent or self.sent > self.catalog.most:
                self.silent = CatalogSilent("it didn't answer", remedy="wait", late=not self.catalog.silent)
        if self.silent is not None:
            raise self.silent
        return self.catalog.answer(method, path, body)


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    made = Catalog()
    monkeypatch.setattr("binlake.registered.rest_catalog.RestClient", made.client)
    return made


@pytest.fixture
def lake(tmp_path: Path, catalog: Catalog) -> PublishedLake:
    return PublishedLake(tmp_path / "lake", dict.fromkeys(NAMES, COLUMNS), every="batch")


def config_of(lake: PublishedLake) -> PipelineConfig:
    entry = {"kind": "rest", "name": "lakehouse", "uri": f"http://{lake.folder.parent.name}"}
    return PipelineConfig.model_validate({**lake.config.model_dump(exclude_unset=True), "catalog": [entry]})


def point(lake: PublishedLake, name: TableName) -> None:
    published_names.point(config_of(lake), {name: lake.tables[name].path}, QUIET)


def follow_all(lake: PublishedLake) -> None:
    published_names.follow_all(config_of(lake), metadata_of(lake.config), QUIET)


def problem(lake: PublishedLake) -> str:
    return "; ".join(each.problem for each in catalog_problems.read(config_of(lake), metadata_of(lake.config)))


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(published_names, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + seconds))


def test_a_slow_catalog_holds_the_lease_shortly_and_gets_more_each_time(
    lake: PublishedLake, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_names, "_NOTED_TOGETHER", 2)
    monkeypatch.setattr(committed_names, "_SIDE_BY_SIDE", 1)
    catalog.most, given = 5, []
    for _ in range(3):
        follow_all(lake)
        given.append(len(catalog.tables))
    assert given == [2, 4, 6]
    assert max(catalog.seconds) <= 20
    assert problem(lake) == ""


def test_names_that_were_not_asked_for_are_lacking(lake: PublishedLake, catalog: Catalog) -> None:
    catalog.most = 5
    follow_all(lake)
    assert "names weren't asked for within 20 seconds; run binlake register" in problem(lake)


def test_to_register_gives_the_lease_back_and_continues(
    lake: PublishedLake, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.most, held, taken = 4, lease.held, list[float]()

    def counted(*arguments: Any, patience: float = 0, **more: Any) -> Any:
        taken.append(patience)
        return held(*arguments, patience=patience, **more)

    monkeypatch.setattr("binlake.phases.register.lease.held", counted)
    monkeypatch.setattr(committed_names, "_NOTED_TOGETHER", 2)
    register(config_of(lake), no_session, QUIET)
    assert len(catalog.tables) == 6
    assert len(taken) == len(catalog.seconds) > 1
    assert taken[0] == 0 < min(taken[1:])
    assert problem(lake) == ""


def test_a_name_that_was_taken_away_is_given_before_a_slow_catalog_is_asked_for_others(
    lake: PublishedLake, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(config_of(lake), no_session, QUIET)
    monkeypatch.setattr(committed_names, "_SIDE_BY_SIDE", 1)
    catalog.most = 2
    for name in NAMES[:4]:
        config = config_of(lake)
        published_names.begin_again(config, metadata_of(config), name, lake.tables[name].path, QUIET)
        assert name.table in catalog.tables


def test_a_refused_name_delays_no_batch(lake: PublishedLake, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.refused = {"t0": 400}
    with pytest.raises(LakeError, match="no t0"):
        register(config_of(lake), no_session, QUIET)
    later(monkeypatch, 1000)
    catalog.asked.clear()
    point(lake, NAMES[1])
    assert {name for _, name in catalog.asked} == {"t1"}
    assert "no t0" in problem(lake)
    catalog.refused = {}
    follow_all(lake)
    assert "t0" in catalog.tables
    assert problem(lake) == ""
    _assert_next_batch_gives_a_name(lake, catalog)


def _assert_next_batch_gives_a_name(lake: PublishedLake, catalog: Catalog) -> None:
    """Where it was refused once."""
    del catalog.tables["t0"]
    catalog.refused = {"t0": 503}
    point(lake, NAMES[0])
    assert problem(lake) == "no t0"
    catalog.refused = {}
    point(lake, NAMES[1])
    assert "t0" in catalog.tables
    assert problem(lake) == ""


def test_a_name_that_was_refused_once_is_given_by_the_next_batch(lake: PublishedLake, catalog: Catalog) -> None:
    register(config_of(lake), no_session, QUIET)
    _assert_next_batch_gives_a_name(lake, catalog)


def test_a_catalog_that_stops_to_answer_is_not_waited_for_by_each_batch(
    lake: PublishedLake, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(config_of(lake), no_session, QUIET)
    catalog.silent = True
    point(lake, NAMES[0])
    assert problem(lake) == "it didn't answer"
    clients = len(catalog.seconds)
    point(lake, NAMES[1])
    follow_all(lake)
    assert len(catalog.seconds) == clients
    catalog.silent = False
    later(monkeypatch, 31)
    point(lake, NAMES[1])
    assert problem(lake) == ""


@pytest.mark.parametrize(("status", "stays"), [(CONFLICT, True), (500, True), (400, False)])
def test_a_copy_stays_to_which_a_catalog_may_refer(
    lake: PublishedLake, catalog: Catalog, status: int, stays: bool
) -> None:
    catalog.refused = {"t0": status}
    point(lake, NAMES[0])
    copies = list(Path(lake.tables[NAMES[0]].path, "_iceberg/registered/lakehouse").glob("binlake-*"))
    assert bool(copies) is stays
    assert problem(lake)


def reached(lake: PublishedLake) -> RestCatalog:
    (entry,) = config_of(lake).reached_catalogs
    assert isinstance(entry, RestCatalogConfig)
    return RestCatalog(entry, lake.config.root, 5)


def test_a_table_that_several_sources_fill_keeps_its_name(lake: PublishedLake, catalog: Catalog) -> None:
    """It is in a folder beside theirs. Where another source's own table has the name, it is left alone."""
    name, table = CatalogName("all", "orders"), PlainTable(lake.folder / "company" / "all" / "orders", COLUMNS)
    publish(table.path)
    for _ in range(2):
        assert reached(lake).put(name, table.path) == ""
    assert "is another's table" in reached(lake).put(name, lake.tables[NAMES[0]].path)
    reached(lake).drop(name, table.path)
    assert [*catalog.tables] == ["orders"], "another source may fill it"
    shutil.rmtree(table.path)
    reached(lake).drop(name, table.path)
    assert catalog.tables == {}


def test_what_another_publishes_meanwhile_is_no_other_table(lake: PublishedLake, catalog: Catalog) -> None:
    """The catalog has it by the time that it answers."""
    name, path = CatalogName("shop", "t0"), lake.tables[NAMES[0]].path
    assert reached(lake).put(name, path) == ""

    def publish(method: str) -> None:
        catalog.before_answer = lambda method: None
        lake.batch({NAMES[0]: appending({"id": 1})})
        other = Catalog()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("binlake.registered.rest_catalog.RestClient", other.client)
            reached(lake).put(name, path)
        catalog.tables["t0"] = other.tables["t0"]

    catalog.asked.clear()
    catalog.before_answer = publish
    assert reached(lake).put(name, path) == ""
    assert [method for method, _ in catalog.asked] == ["GET"]


@pytest.mark.parametrize("slashes", ["/", "//", "///"])
def test_a_catalog_may_write_addresses_in_a_form_of_its_own(
    lake: PublishedLake, catalog: Catalog, slashes: str
) -> None:
    lake.batch({NAMES[0]: appending({"id": 1})})
    catalog.written = lambda content: json.loads(json.dumps(content).replace("file:///", f"file:{slashes}"))
    register(config_of(lake), no_session, QUIET)
    catalog.asked.clear()
    lake.batch({NAMES[0]: appending({"id": 2})})
    point(lake, NAMES[0])
    assert problem(lake) == ""
    assert [method for method, _ in catalog.asked] == ["GET", "POST"], "a commit to the table that it is"
    reached(lake).drop(CatalogName("shop", "t0"), lake.tables[NAMES[0]].path)
    assert "t0" not in catalog.tables


def test_what_a_catalog_lacks_that_does_not_follow_is_no_error(lake: PublishedLake, catalog: Catalog) -> None:
    """Even if it has the name of one that does."""
    entries = [
        {"kind": "rest", "name": "lakehouse", "uri": "http://a"},
        {"kind": "spark", "name": "lakehouse", "every": "snapshot"},
    ]
    config = PipelineConfig.model_validate({**lake.config.model_dump(exclude_unset=True), "catalog": entries})
    catalog_problems.note(metadata_of(config), "lakehouse", "it lacks something", "wait")
    assert register(config, no_session, QUIET, "batch").registered
    assert len(catalog_problems.read(config, metadata_of(config))) == 1
