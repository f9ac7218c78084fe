"""Each reason for which an epoch is left to Spark is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from binlake.binlog.border import UPDATE
from binlake.binlog.staged_schema import staged_schema
from binlake.config import PipelineConfig
from binlake.delta import layout, log_files, plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.errors import LeftToSpark, SparkNeeded
from binlake.merge import mirror_epoch
from binlake.merge.engine import in_process
from binlake.merge.engine.engine_choice import Engines
from binlake.merge.foreign_keys import derived_in_process
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.planner.manifest import StagedFile
from binlake.planner.steps import Life, MergeStep, ParentMutations
from binlake.position import Position
from binlake.schema.cascades import Cascade
from binlake.schema.invalid import FAIL
from binlake.schema.lake_columns import lake_columns
from binlake.schema.table import Column, TableName, TableSchema
from binlake.spark.starting import no_session
from binlake.storage import files, parquet_files

Patch = Callable[[pytest.MonkeyPatch], None]
NAME = TableName("d", "t")
COLUMNS = (Column("id", "int", nullable=False), Column("v", "varchar", length=9, charset="utf8mb4"))
SCHEMA = TableSchema(COLUMNS, ("id",), "primary")
START = Position("s", "b.000001", 4, 1)
ROW = {"id": 1, "v": "a"}
CLEANED = "delta.enableExpiredLogCleanup"
"""A setting of plain tables whose value is true, as that of deletion vectors would be."""


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["d.*"]},
            "lake": {"path": str(tmp_path / "lake")},
        }
    )


@pytest.fixture
def step(tmp_path: Path) -> MergeStep:
    """One update of one row."""
    row = {"op": UPDATE, "file": 1, "offset": 100, "row": 0, "committed_us": 0, "gtid": "g", "xid": None}
    path = tmp_path / "staged.parquet"
    pq.write_table(pa.Table.from_pylist([row | {"before": ROW, "after": ROW}], staged_schema(COLUMNS, FAIL)), path)
    place, size = (1, 100, 0), path.stat().st_size
    file = StagedFile(str(path), NAME, COLUMNS, ("id",), 0, 0, 0, 1, 0, place, place, size, "", {})
    return MergeStep(SCHEMA, (file,))


def merge(config: PipelineConfig, step: MergeStep, types: tuple[pa.DataType, ...] = (pa.int32(), pa.string())) -> None:
    """Merge the step into a table of one row, which lies in one data file."""
    table = LakeLog.of(config, NAME, "life")
    rows = pa.table([pa.array([value], kind) for value, kind in zip((1, "a"), types, strict=True)], names=["id", "v"])
    write_deltalake(table.path, rows, configuration={CLEANED: "true"})
    columns = lake_columns(step.schema, config.invalid)
    life = Life("life", NAME, step.schema, START, START)
    epoch = MirrorEpoch(table, life, step, columns, config, version=1, note={})
    Engines(config, left_to_spark).change(lambda engine: engine.merge(epoch))


def left_to_spark(why: str) -> NoReturn:
    raise LeftToSpark(why)


def reason(config: PipelineConfig, step: MergeStep, *types: pa.DataType) -> str:
    with pytest.raises(LeftToSpark) as left:
        merge(config, step, *((types,) if types else ()))
    return str(left.value)


def test_a_plain_epoch_is_merged(config: PipelineConfig, step: MergeStep) -> None:
    merge(config, step)
    assert LakeLog.of(config, NAME, "life").recorded() == 1


def file_with(**changed: Any) -> Callable[[MergeStep], MergeStep]:
    return lambda step: replace(step, files=(replace(step.files[0], **changed),))


def schema_with(**changed: Any) -> Callable[[MergeStep], MergeStep]:
    return lambda step: replace(step, schema=replace(step.schema, **changed))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (schema_with(sequence=True), "it is a sequence"),
        (
            schema_with(columns=(Column("id", "float", nullable=False), COLUMNS[1])),
            "its key has floating-point numbers",
        ),
        (file_with(inserted=5_000_000), "5,000,001 mutations are staged, more than 5,000,000"),
        (file_with(bytes=900_000_000), "900.0 MB are staged, above merge.without_spark_mb"),
    ],
)
def test_an_epoch_of_other_than_plain_rows(
    config: PipelineConfig, step: MergeStep, changed: Callable[[MergeStep], MergeStep], expected: str
) -> None:
    assert reason(config, changed(step)) == expected


def cascading(step: MergeStep, referred: Column = COLUMNS[0]) -> MergeStep:
    """The step with two foreign keys that the update acts by: of the table to itself, and to another of one column."""
    parent_schema = TableSchema((referred,), ("id",), "primary")
    parent = Life("parent", TableName("d", "p"), parent_schema, START, START)
    own, other = (
        Cascade(NAME, name, "k", ("id",), ("id",), "CASCADE", "CASCADE") for name in (NAME, TableName("d", "p"))
    )
    parents = ParentMutations(own), ParentMutations(other, parent, MergeStep(parent_schema, ()))
    return replace(step, parents=parents)


def test_what_is_derived_of_an_unknown_version(config: PipelineConfig, step: MergeStep) -> None:
    assert reason(config, cascading(step)) == "it isn't known how its rows were before the batch"


def test_what_is_derived_of_other_types(config: PipelineConfig, step: MergeStep) -> None:
    asked = cascading(step, Column("id", "bigint"))
    assert reason(config, asked) == "the foreign key 'k' joins columns of two types"


def test_what_is_derived_of_many_rows(config: PipelineConfig, step: MergeStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_in_process, "MOST_PLAYED", 0)
    row = {"op": UPDATE, "file": 1, "offset": 100, "row": 0, "committed_us": 0, "gtid": "g", "xid": None}
    moved = pa.Table.from_pylist([row | {"before": ROW, "after": ROW | {"id": 2}}], staged_schema(COLUMNS, FAIL))
    pq.write_table(moved, step.files[0].path)
    expected = "foreign keys below the log concern more than 0 of its rows"
    assert reason(config, cascading(step)) == expected


def test_a_key_that_may_hold_invalid_dates(config: PipelineConfig, step: MergeStep) -> None:
    keeping = config.model_copy(update={"invalid_dates": "keep_text"})
    dated = replace(step, schema=TableSchema((Column("id", "date", nullable=False), COLUMNS[1]), ("id",), "primary"))
    assert reason(keeping, dated) == "its key may hold invalid values"


def test_all_tables_where_the_yaml_says_so(config: PipelineConfig, step: MergeStep) -> None:
    asked = config.model_copy(update={"merge": config.merge.model_copy(update={"without_spark_mb": 0})})
    assert reason(asked, step) == "merge.without_spark_mb is 0"


def test_a_store_in_which_two_writers_are_not_kept_apart(
    config: PipelineConfig, step: MergeStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "writes_if_absent", lambda path: False)
    assert reason(config, step) == "two concurrent writers can't be excluded in this store without it"


def test_a_table_of_other_types(config: PipelineConfig, step: MergeStep) -> None:
    assert reason(config, step, pa.int64(), pa.string()) == "the type of 'id' isn't written here"


def features(*names: str) -> SimpleNamespace:
    return SimpleNamespace(reader_features=names, writer_features=names)


@pytest.mark.parametrize(
    ("protocol", "configuration", "partitions", "fields", "expected"),
    [
        (features("typeWidening"), {}, [], [], "the table has typeWidening"),
        (features(), {"delta.enableChangeDataFeed": "true"}, [], [], "the table has delta.enableChangeDataFeed"),
        (features(), {}, ["v"], [], "the table has partitions"),
        (features(), {}, [], [{"nullable": False}], "column 'v' isn't as binlake makes it"),
        (features(), {}, [], [{"metadata": {"note": "kept"}}], "column 'v' isn't as binlake makes it"),
    ],
)
def test_a_table_with_more_than_plain_rows(
    protocol: Any, configuration: Any, partitions: Any, fields: list[dict[str, Any]], expected: str
) -> None:
    whole = [{"name": "v", "type": "string", "nullable": True, "metadata": {}, **field} for field in fields]
    log: Any = SimpleNamespace(
        protocol=lambda: protocol,
        metadata=lambda: SimpleNamespace(configuration=configuration, partition_columns=partitions),
        schema=lambda: SimpleNamespace(to_json=lambda: json.dumps({"fields": whole})),
    )
    with pytest.raises(LeftToSpark, match=f"^{re.escape(expected)}$"):
        plain_tables.check_is_plain(log)


def of_data_files(answer: Callable[[pa.Table], pa.Table | None]) -> Patch:
    """What is read of data files, and not of staged ones."""
    read = parquet_files.read_within

    def rows(path: str, *options: Any, **named: Any) -> pa.Table | None:
        table = read(path, *options, **named)
        return table if "staged" in path or table is None else answer(table)

    return lambda patch: patch.setattr(parquet_files, "read_within", rows)


def large_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(layout, "FEW_BYTES", 0)


def huge_files(patch: pytest.MonkeyPatch) -> None:
    """Files that take more than may be written again without Spark."""
    large_files(patch)
    with_actions(patch, size=10**15)


def uncounted(patch: pytest.MonkeyPatch) -> None:
    """Files that are large, in a table with deletion vectors, of which the log counts no rows."""
    large_files(patch)
    patch.setattr(plain_tables, "HAS_VECTORS", CLEANED)
    with_actions(patch, stats="{}")


def with_actions(patch: pytest.MonkeyPatch, **values: object) -> None:
    """Let the actions of the log that add data files have these values."""
    actions_of = plain_tables.actions_of
    patch.setattr(plain_tables, "actions_of", lambda *log: [{**add, **values} for add in actions_of(*log)])


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (lambda patch: patch.setattr(in_process, "MOST_FILES", 0), r"1 data files may hold changed rows, more than 0"),
        (
            lambda patch: patch.setattr(plain_tables, "_PLAIN_PATH", re.compile("no path")),
            r"1 data files have paths that Delta's log encodes",
        ),
        (
            lambda patch: patch.setattr(log_files, "added", lambda *log: None),
            r"its log is in a form that isn't read here",
        ),
        (
            lambda patch: patch.setattr(mirror_epoch, "UNPACKED", 0),
            r"the staged rows take more than 0 MB of memory",
        ),
        (of_data_files(lambda rows: None), r"data files that may hold changed rows take more than 1,024 MB of memory"),
        (
            of_data_files(lambda rows: rows.cast(pa.schema([("id", pa.int64()), ("v", pa.string())]))),
            r"a data file has other types than its table",
        ),
        (huge_files, r"1,000,000,000\.0 MB of data files may hold changed rows, without deletion vectors"),
        (uncounted, r"a data file's statistics don't count its rows"),
    ],
)
def test_data_files_that_are_too_many_or_too_large_or_odd(
    config: PipelineConfig, step: MergeStep, monkeypatch: pytest.MonkeyPatch, patch: Patch, expected: str
) -> None:
    patch(monkeypatch)
    assert re.fullmatch(expected, reason(config, step))


def test_a_step_without_spark_that_needs_it_says_why() -> None:
    with pytest.raises(SparkNeeded, match=r"^Spark is needed: d\.t: it has no key$"):
        no_session("d.t: it has no key")
