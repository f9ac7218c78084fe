"""What Spark makes of staged rows is what the process itself makes of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.binlog.staged_schema import staged_schema
from binlake.binlog.versioned_rows import NO_END
from binlake.config import PipelineConfig
from binlake.delta import layout, plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.plain_tables import StepCommit
from binlake.merge import log_table
from binlake.merge.arrow_mutations import StagedMutations
from binlake.merge.engine import in_process
from binlake.merge.engine.by_spark import merge_by_spark
from binlake.merge.lake_images import LakeImages
from binlake.merge.lake_table import LakeTable
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.mutations import staged_rows
from binlake.merge.shared_reads import SharedReads
from binlake.planner.manifest import StagedFile
from binlake.planner.steps import Life, MergeStep, RowsBeside, XaCommit
from binlake.position import Position
from binlake.schema.invalid import FAIL
from binlake.schema.lake_columns import columns_of, lake_columns, mirror_columns
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import query

NAME, START = TableName("d", "t"), Position("s", "b.000001", 4, 1)
PROPERTIES: dict[str, str | None] = {}
"""Of the tables that are made here."""
Rows = Sequence[tuple[int, Any, Any]]
"""Mutations: what happened, the row before and the row after."""


def staged(path: Path, columns: tuple[Column, ...], rows: Rows, xid: str | None = None) -> StagedFile:
    """A staged file of mutations, all in one event."""
    row = {"file": 1, "offset": 100, "committed_us": 0, "gtid": None, "xid": xid}
    table = [row | {"row": n, "op": op, "before": old, "after": new} for n, (op, old, new) in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(table, staged_schema(columns, FAIL)), path)
    counts = tuple(sum(op == kind for op, _, _ in rows) for kind in (INSERT, UPDATE, DELETE))
    inserted, updated, deleted = (0, 0, 0) if xid else counts
    first, last = (1, 100, 0), (1, 100, len(rows) - 1)
    xids = {xid: counts} if xid else {}
    size = path.stat().st_size
    return StagedFile(
        str(path), NAME, columns, (), 0, 0, inserted, updated, deleted, first, last, size, "", {}, xids
    )  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["d.*"]},
            "lake": {"path": str(tmp_path / "lake")},
        }
    )


def merged_by_spark(
    spark: SparkSession, config: PipelineConfig, schema: TableSchema, file: StagedFile, there: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of a table, with those that are there, behind the mutations of a staged file."""
    table = LakeLog.of(config, NAME, "life")
    lake = lake_columns(schema, FAIL)
    fields = [(column.name, column.arrow) for column in (*lake, *columns_of(schema.kept, FAIL))]
    write_deltalake(table.path, pa.Table.from_pylist(there, pa.schema(fields)), configuration=PROPERTIES)
    life = Life("life", NAME, schema, START, START)
    step = MergeStep(schema, (file,))
    merge_by_spark(spark, LakeTable(table.path, table.app), MirrorEpoch(table, life, step, lake, config, 1, {}))
    return [row.asDict() for row in spark.read.format("delta").load(table.path).collect()]


def test_values_of_a_table_without_a_key_keep_the_signs_of_zeros(
    tmp_path: Path, spark: SparkSession, config: PipelineConfig
) -> None:
    columns = Column("d", "double"), Column("f", "float"), Column("v", "vector", length=2), Column("n", "int")
    schema = TableSchema(columns)

    def row(zero: float, n: int | None = 1) -> dict[str, Any]:
        return {"d": zero, "f": zero, "v": [zero, 1.0], "n": n}

    changes = [(UPDATE, row(0.0), row(-0.0)), (INSERT, None, row(-0.0, 2)), (DELETE, row(-0.0, None), None)]
    there = [row(0.0), row(0.0), row(-0.0, None), row(0.0, None)]
    merged = merged_by_spark(spark, config, schema, staged(tmp_path / "staged.parquet", columns, changes), there)
    assert sorted(map(str, merged)) == sorted(map(str, [row(0.0), row(-0.0), row(-0.0, 2), row(0.0, None)]))


def test_copies_of_rows_without_a_key_keep_what_the_server_dropped(
    tmp_path: Path, spark: SparkSession, config: PipelineConfig
) -> None:
    columns = (Column("n", "int"),)
    schema = TableSchema(columns, kept=(Column("old", "int"),))
    one, two, none = ({"n": n} for n in (1, 2, None))
    changes = [(INSERT, None, one), (DELETE, two, None), (DELETE, none, None), (UPDATE, none, one)]
    there = [(1, 10), (1, 11), (2, 20), (2, 21), (2, 22), (None, 30), (None, 31), (3, 40)]
    merged = merged_by_spark(spark, config, schema, staged(tmp_path / "staged.parquet", columns, changes), [
        {"n": n, "old": old} for n, old in there
    ])  # fmt: skip
    rows = [(row["n"], row["old"]) for row in merged]
    assert Counter(n for n, _ in rows) == {1: 4, 2: 2, 3: 1}
    assert {(1, 10), (1, 11), (3, 40)} <= set(rows)
    assert len({(2, 20), (2, 21), (2, 22)} & set(rows)) == 2


def test_rows_that_only_come_are_written_by_tasks_as_the_process_writes_them(
    tmp_path: Path, spark: SparkSession, config: PipelineConfig
) -> None:
    names = ("id", "text", "a, b;", "amount", "at", "raw", "marks", "v", "g")
    kinds = (
        Column("id", "bigint", nullable=False), Column("text", "varchar", length=20, charset="latin1"),
        Column("a, b;", "int", unsigned=True), Column("amount", "decimal", precision=20, scale=3),
        Column("at", "datetime", fraction=6), Column("raw", "varbinary", length=9),
        Column("marks", "set", values=("x", "y"), charset="utf8mb4"), Column("v", "vector", length=2),
    )  # fmt: skip
    columns, own = (*kinds, Column("g", "double")), ("batch", "committed", "position")
    schema = TableSchema(columns, ("id",), "primary", row_metadata=own)
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    full = (7, "é", 4_000_000_000, Decimal("12345678901234567.125"), at, b"\xff\x00", "x,y", [1.5, -0.0], -0.0)
    rows = [dict(zip(names, (number, *full[1:]), strict=True)) for number in range(1, 40)]
    rows.append({**dict.fromkeys(names), "id": 99})
    file = staged(tmp_path / "staged.parquet", schema.columns, [(INSERT, None, row) for row in rows])
    step, life = MergeStep(schema, (file,)), Life("life", NAME, schema, START, START)
    made, engines = [], []
    for folder in ("spark", "process"):
        there = config.model_copy(update={"lake": config.lake.model_copy(update={"path": str(tmp_path / folder)})})
        table, columns = LakeLog.of(there, NAME, "life"), mirror_columns(schema, FAIL)
        empty = pa.schema([(column.name, column.arrow) for column in columns]).empty_table()
        shape = DeltaSchema(tuple((column.name, column.delta) for column in columns), table.path)
        plain_tables.create(table, shape, StepCommit(1, {}).own("CREATE"), empty)
        epoch = MirrorEpoch(table, life, step, columns, there, 2, {})
        if folder == "spark":
            merge_by_spark(spark, LakeTable(table.path, table.app), epoch)
        else:
            in_process.merge(epoch)
        made.append(sorted(map(str, query(table.path).to_pylist())))
        engines.append(table.opened().history(1)[0]["engineInfo"])
    assert made[0] == made[1]
    assert len(made[0]) == len(rows)
    assert engines[0] == engines[1]


OF_MERGE = ("_row_id_", "_FILE_NAME_", "_row_dropped_", "_source_row_present_", "_target_row_present_")
OF_VECTORS = ("filePath", "deletionVectorId", "rowIndexCol", "_metadata")


def named(names: Sequence[str], n: int, value: int) -> dict[str, Any]:
    return {"id": n, **dict.fromkeys(names, value)}


@pytest.mark.parametrize("names", [OF_MERGE, OF_VECTORS], ids=["of MERGE", "of deletion vectors"])
@pytest.mark.parametrize("key", [("id",), ()], ids=["key", "no key"])
def test_columns_named_as_those_of_deltas_commands(
    key: tuple[str, ...], names: Sequence[str], tmp_path: Path, spark: SparkSession, config: PipelineConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    columns = Column("id", "int", nullable=False), *(Column(name, "int") for name in names)
    schema = TableSchema(columns, key, "primary" if key else "none", kept=(Column("old", "int"),))
    monkeypatch.setattr(layout, "FEW_BYTES", 0)  # with deletion vectors
    monkeypatch.setitem(PROPERTIES, "delta.enableDeletionVectors", "true")
    row = partial(named, names)
    changes = [(UPDATE, row(1, 10), row(1, 11)), (DELETE, row(2, 20), None), (INSERT, None, row(4, 40))]
    there = [{**row(n, 10 * n), "old": n} for n in (1, 2, 3)]
    merged = merged_by_spark(spark, config, schema, staged(tmp_path / "staged.parquet", columns, changes), there)
    old = 1 if key else None  # without a key an update is another row
    assert sorted(merged, key=lambda row: row["id"]) == [
        {**row(1, 11), "old": old}, {**row(3, 30), "old": 3}, {**row(4, 40), "old": None}
    ]  # fmt: skip


def test_mutations_of_xa_transactions_are_numbered_among_all_that_are_logged(
    tmp_path: Path, spark: SparkSession, config: PipelineConfig
) -> None:
    shown = Column("id", "int", nullable=False), Column("v", "int")
    hidden = tuple(Column(name, "timestamp", fraction=6) for name in ("row_start", "row_end"))
    schema = TableSchema(shown, ("id",), "primary", versioned=True)
    begin = datetime(1970, 1, 1, tzinfo=UTC)

    def row(v: int, end_us: int = NO_END[0]) -> dict[str, Any]:
        end = begin + timedelta(microseconds=end_us)
        return {"id": 1, "v": v, "row_start": begin, "row_end": end}

    changes = [(UPDATE, row(1), row(2)), (INSERT, None, row(1, 5)), (UPDATE, row(2), row(3)), (INSERT, None, row(2, 6))]
    file = staged(tmp_path / "staged.parquet", (*shown, *hidden), changes, "x")
    step = MergeStep(schema, (), ((file, XaCommit("x", 1, 4, 200, (1, 300))),))
    life = Life("life", NAME, schema, START, START)
    assert StagedMutations(life, step, FAIL, 10**9).ordered()["row"].to_pylist() == [0, 2]
    commit: Any = SimpleNamespace(config=config, batch=7, reads=SharedReads())
    rows, columns = RowsBeside(life, step), lake_columns(schema, FAIL)
    logged = [row["position"] for row in log_table._rows_by_tasks(rows, columns, commit).frame(spark).collect()]
    assert sorted(logged) == log_table._rows(rows, columns, commit)["position"].to_pylist()


MANY = 20_000


@pytest.mark.parametrize("held", [False, True], ids=["savepoints", "XA transactions of one id"])
def test_many_ranges_of_rows_take_no_longer_each(tmp_path: Path, spark: SparkSession, held: bool) -> None:
    """Of every two rows one was rolled back, or each was committed by a transaction of its own."""
    columns = (Column("id", "int", nullable=False),)
    rows: Rows = [(INSERT, None, {"id": number}) for number in range(2 * MANY)]
    file = staged(tmp_path / "staged.parquet", columns, rows, "x" if held else None)
    step = MergeStep(TableSchema(columns, ("id",), "primary"), (file,))
    if held:
        table = pq.read_table(file.path)
        table = table.set_column(table.column_names.index("offset"), "offset", pa.array(range(2 * MANY)))
        pq.write_table(table.cast(staged_schema(columns, FAIL)), file.path)
        ends = (XaCommit("x", 1, at - 1, at, (1, 10 * MANY + at), at) for at in range(1, 2 * MANY, 2))
        step = replace(step, files=(), xa=tuple((file, end) for end in ends))
    else:
        void = tuple((100, at, 100, at + 1) for at in range(0, 2 * MANY, 2))
        step = replace(step, files=(replace(file, void=void),))
    life = Life("life", NAME, step.schema, Position("s", "b.000001", 0, 1), START)
    wanted = list(range(1, 2 * MANY, 2))
    began = time.monotonic()
    assert [row["id"] for row in StagedMutations(life, step, FAIL, 10**9).ordered()["after"].to_pylist()] == wanted
    images = LakeImages.of(step.schema, lake_columns(step.schema, FAIL))
    rows_by_spark = staged_rows(spark, life, step, images, FAIL)
    assert rows_by_spark is not None
    in_order = rows_by_spark.orderBy("offset", "row").selectExpr("after.id").collect()
    assert [row["id"] for row in in_order] == wanted
    assert time.monotonic() - began < 60
