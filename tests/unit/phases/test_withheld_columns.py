"""Columns that the YAML excludes or masks, in tables that go through what they missed: statements in, rows out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import binlog, config, pipeline
from binlake.binlog.border import Statement
from binlake.binlog.tablemap import Undecodable
from binlake.binlog_writer.written_log import WrittenLog, WrittenTable
from binlake.config import PipelineConfig
from binlake.errors import TableError
from binlake.lease import lease
from binlake.lease.lease import OpenBatch
from binlake.phases import resume, withheld_columns
from binlake.position import Range
from binlake.records import decisions, watermarks
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import dumps
from binlake.source.catalog import SourceTable
from binlake.source.folder import Folder
from binlake.source.server import Source
from binlake.staging.masked_tables import WithheldColumns, tables_before
from binlake.store.metadata import metadata_of
from binlake.store.rows import ChunkRow
from no_session import NoSession

WHY = Reason("ada", "later")
T = TableName("shop", "t")


@dataclass
class Shop:
    """A source whose log is a folder: t has a column that is withheld, and a row."""

    folder: Path
    log: WrittenLog
    withheld: str

    @property
    def config(self) -> PipelineConfig:
        yaml = self.folder / "shop.yaml"
        yaml.write_text(
            f"source: {{name: shop, connection: '{(self.folder / 'log').as_uri()}'}}\n"
            f"tables: {{include: ['shop.*'], exclude: [shop.away]}}\nlake: {{path: ./lake}}\n{self.withheld}\n"
        )
        return config.load(yaml)

    def does(self, *changes: str | tuple[str, ...]) -> None:
        """Write a statement, or the columns of t and the values of a row that comes."""
        for change in changes:
            if isinstance(change, str):
                self.log.statement(change, database="shop")
                continue
            names, *values = change[0].split(), *change[1:]
            made = WrittenTable(T, tuple(Column(name, "int") for name in names), ("id",))
            with self.log.transaction() as transaction:
                transaction.insert(made, [dict(zip(names, map(int, values), strict=True))])

    def sync(self) -> None:
        pipeline.sync(self.config, Folder(self.folder / "log"), NoSession(), Report(quiet=True))

    def missing(self, *changes: str | tuple[str, ...]) -> None:
        """Write changes that t misses, as it is paused."""
        decisions.pause(self.config, T, WHY)
        self.does(*changes)
        self.sync()

    def resume(self) -> None:
        resume.resume(self.config, Folder(self.folder / "log"), NoSession(), Report(quiet=True), T, WHY)

    def rows(self) -> list[tuple[Any, ...]]:
        lake = DeltaTable(self.config.table_path(T))
        read = pa.table(QueryBuilder().register("t", lake).execute("SELECT * FROM t ORDER BY id").read_all())
        return [tuple(read.column_names), *(tuple(row.values()) for row in read.to_pylist())]


@pytest.fixture
def file_mb() -> float:
    return 256


@pytest.fixture
def shop(tmp_path: Path, file_mb: float) -> Iterator[Callable[[str], Shop]]:
    with binlog.write(tmp_path / "log", flavour="mysql", file_mb=file_mb) as log:

        def make(withheld: str) -> Shop:
            made = Shop(tmp_path, log, withheld)
            made.does("CREATE TABLE t (id INT PRIMARY KEY, pin INT)", ("id pin", "1", "99"))
            pipeline.bootstrap(made.config, Folder(tmp_path / "log"), NoSession(), Report(quiet=True))
            made.sync()
            return made

        yield make


EXCLUDED, MASKED = "columns: [{columns: shop.t.pin, exclude: true}]", "columns: [{columns: shop.t.pin, null: true}]"


def test_a_masked_table_catches_up_through_another_change(shop: Callable[[str], Shop]) -> None:
    made = shop(MASKED)
    made.missing("ALTER TABLE t ADD n INT", ("id pin n", "2", "98", "5"))
    made.resume()
    assert made.rows() == [("id", "pin", "n"), (1, None, None), (2, None, 5)]


@pytest.mark.parametrize("withheld", [EXCLUDED, MASKED], ids=["excluded", "masked"])
def test_a_withheld_column_that_gets_another_name_stops_a_table_that_catches_up(
    shop: Callable[[str], Shop], withheld: str
) -> None:
    made = shop(withheld)
    before = made.rows()
    made.missing("ALTER TABLE t RENAME COLUMN pin TO code")
    made.does(("id code", "2", "98"))
    made.sync()
    with pytest.raises(TableError, match="the column 'pin', which the YAML masks or excludes, is called code now"):
        made.resume()
    assert made.rows() == before


@pytest.mark.parametrize("file_mb", [0.0001], ids=["a file for each transaction"])
def test_a_masked_table_follows_statements_of_other_files_of_a_batch(shop: Callable[[str], Shop]) -> None:
    made = shop(MASKED)
    made.does("ALTER TABLE t ADD n INT", ("id pin n", "2", "98", "5"))
    made.does("ALTER TABLE t RENAME COLUMN n TO m", ("id pin m", "3", "97", "6"))
    made.sync()
    assert made.rows() == [("id", "pin", "m"), (1, None, None), (2, None, 5), (3, None, 6)]


@pytest.mark.parametrize(("name", "column"), [("near", "pin"), ("near", "code"), ("t", "code")])
@pytest.mark.parametrize("withheld", [EXCLUDED, MASKED], ids=["excluded", "masked"])
def test_a_table_that_comes_back_in_a_later_batch_with_a_name_that_withholds_nothing_is_not_read(
    shop: Callable[[str], Shop], withheld: str, name: str, column: str
) -> None:
    made = shop(withheld)
    made.does("RENAME TABLE t TO away")
    made.sync()
    position = lease.read(metadata_of(made.config)).position
    assert position is not None
    plan = OpenBatch(9, Range(position, position, ()), planned_us=0)
    reads = WithheldColumns(made.config, tables_before(made.config, metadata_of(made.config), plan))
    reads.follow(Statement("binlog.000009", 4, 0, 0, None, "shop", 0, f"RENAME TABLE away TO {name}", has_xid=True))
    with pytest.raises(Undecodable, match="can't be distinguished from masked or excluded ones"):
        reads(TableName("shop", name), (Column("id", "int"), Column(column, "int")))


NEAR, T2 = TableName("shop", "near"), TableName("shop", "t2")


@pytest.mark.parametrize(
    ("batches", "name", "columns", "refused"),
    [
        ((["ALTER TABLE t RENAME COLUMN pin TO code"],), T, "id code", "may have another name since a statement"),
        ((["UPDATE t SET id = 5"],), T, "id code", "may have another name since a statement"),
        ((["UPDATE t SET id = 5"],), T, "id pin", ""),
        ((["RENAME TABLE t TO t2"],), T2, "id pin", "a column of it was masked or excluded"),
        ((["RENAME TABLE t TO away"], ["RENAME TABLE away TO near"]), NEAR, "id pin", "it may be what shop.t was"),
        ((["RENAME TABLE t TO away"],), NEAR, "id pin", "it may be what shop.t was"),
        ((["RENAME TABLE t TO away"],), NEAR, "id code", "may be what shop.t was"),
        ((["RENAME TABLE t TO away"],), NEAR, "number code", ""),
        ((["RENAME TABLE t TO away"],), T, "id code", "may be what shop.t was"),
        ((["RENAME TABLE t TO away"],), T, "id pin code", ""),
        ((["RENAME TABLE t TO away"], ["RENAME TABLE away TO t"]), T, "id code", "may be what shop.t was"),
        ((["DROP TABLE t"],), T, "id code", ""),
        (([],), T, "id code", "may have another name since a statement"),
        (([],), T, "id pin code", ""),
    ],
    ids=[
        "renamed",
        "not read",
        "same",
        "table renamed",
        "came back",
        "comes back",
        "comes back renamed",
        "other",
        "is there renamed",
        "is there",
        "came back renamed",
        "dropped",
        "unread",
        "added",
    ],
)
@pytest.mark.parametrize("withheld", [EXCLUDED, MASKED], ids=["excluded", "masked"])
def test_a_table_that_nobody_names_is_not_copied_where_it_may_show_a_withheld_column(
    shop: Callable[[str], Shop], monkeypatch: pytest.MonkeyPatch, withheld: str, batches: tuple[list[str], ...],
    name: TableName, columns: str, refused: str,
) -> None:  # fmt: skip
    made = shop(withheld)
    for statements in batches:
        made.does(*statements)
        made.sync()
    shape = TableSchema(tuple(Column(column, "int") for column in columns.split()), ("id",), "primary")
    there = {name: SourceTable(name, "BASE TABLE", "InnoDB", 0, 0, shape)}
    monkeypatch.setattr(withheld_columns, "read_tables", lambda source, names, excluding: there)
    metadata, source = metadata_of(made.config), cast("Source", None)
    before = watermarks.read(metadata)
    refusal = withheld_columns.refusal_for_withheld(made.config, metadata, [name])
    errors = withheld_columns.refused_for_withheld(refusal, source, [name])
    assert (name in errors, refused in str(errors.get(name, ""))) == (bool(refused), True)
    withheld_columns.stop_refused(metadata, errors)
    assert watermarks.read(metadata) == before, "it is stopped already, or the log says what becomes of it"


@pytest.mark.parametrize(
    ("columns", "refused"),
    [("id code", True), ("pin id", True), ("id pin", False), ("id pin code", False)],
    ids=["renamed", "swapped", "same", "added"],
)
def test_a_table_whose_first_snapshot_did_not_end_is_compared_with_the_columns_that_it_began_with(
    shop: Callable[[str], Shop], columns: str, refused: bool
) -> None:
    made = shop("columns: [{columns: 'shop.*.pin', exclude: true}]")
    metadata, begun = metadata_of(made.config), TableSchema((Column("id", "int"), Column("pin", "int")), ("id",))
    row = ChunkRow(
        snapshot="it was killed", table_id=None, **vars(NEAR), chunk=0, state="planned", schema=dumps(begun),
        updated_us=1,
    )  # fmt: skip
    ChunkRow.replace(metadata, "snapshot = 'it was killed'", [row])
    refusal = withheld_columns.refusal_for_withheld(made.config, metadata, [NEAR])
    assert refusal is not None
    error = refusal(NEAR, TableSchema(tuple(Column(column, "int") for column in columns.split()), ("id",)))
    assert (error is not None) == refused
