"""A snapshot's commit that is made without Delta's transaction is the one that Delta would have made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest

from binlake.config import PipelineConfig
from binlake.delta import plain_files
from binlake.delta.delta_actions import DataFile
from binlake.delta.delta_log import LakeLog, overtaking
from binlake.delta.delta_schema import DeltaSchema
from binlake.errors import LeftToSpark
from binlake.merge.engine import begin_in_process
from binlake.merge.lake_table import LakeTable, NewTable
from binlake.spark import data_files
from binlake.spark.session import of_this_thread
from binlake.spark.transaction import OptimisticTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Columns = tuple[tuple[str, str], ...]
Way = Literal["process", "spark"]
"""Who begins a table: this process, or a Spark session, whose first commit of a new table is our own, too."""
PLAIN = (("id", "bigint"), ("name", "string"))
TIMES = (("id", "bigint"), ("at", "timestamp_ntz"), ("seen", "timestamp"), ("price", "decimal(20,4)"))
ODD = (("i d", "bigint"), ("a.b`c", "string"), ("ü漢=;{}", "binary"))
_OWN = {"id", "createdTime", "timestamp", "txnId", "engineInfo", "path", "modificationTime", "lastUpdated", "tags",
        "deletionTimestamp", "readVersion"}  # fmt: skip
"""What differs from commit to commit; tags are empty where they are written."""
_SETTINGS: dict[str, Any] = {
    "source": {"name": "shop", "connection": "shop", "server_id": 1}, "tables": {"include": ["d.*"]},
    "lake": {"path": "/nowhere"},
}  # fmt: skip
CONFIG = PipelineConfig.model_validate(_SETTINGS)


def begin(
    session: SparkSession, path: str, columns: Columns, way: Way, *, batch: int = 4, life: str = "life"
) -> Sequence[DataFile]:
    """Begin a table of two rows, which lie in one data file."""
    files = copied(session, path, columns, life)
    schema = DeltaSchema(columns, "snapshot", {columns[1][0]: "of a 'column'"}, f"table of a {life}")
    begin_of(session, path, schema, files, way, batch=batch, life=life)
    return files


def copied(session: SparkSession, path: str, columns: Columns, life: str) -> Sequence[DataFile]:
    quoted = [f"`{name.replace('`', '``')}`" for name, _ in columns]
    values = ", ".join(f"CAST(id AS STRING)::{kind} AS {name}" if kind != "timestamp_ntz" and kind != "timestamp"
                       else f"TIMESTAMP_SECONDS(id)::{kind} AS {name}"
                       for name, (_, kind) in zip(quoted, columns, strict=True))  # fmt: skip
    rows = session.sql(f"SELECT {values} FROM range(0, 2, 1, 1)")
    schema = DeltaSchema(columns, "snapshot")
    return data_files.write(session, path, f"snapshot-{life}", schema, rows, rows_per_file=100)


def begin_of(
    session: SparkSession, path: str, schema: DeltaSchema, files: Sequence[DataFile], way: Way, *, batch: int, life: str
) -> None:
    app, note = f"binlake:shop:{life}", {"binlake": {"snapshot": "snapshot", "life": life}}
    if way == "spark":
        LakeTable(path, app).begin(session, NewTable(schema, files), batch, note, lambda: None)
    else:
        begin_in_process.begin(LakeLog(path, app), schema, files, CONFIG, batch=batch, note=note, is_ours=lambda: None)


def actions(path: str, version: int) -> list[dict[str, Any]]:
    """The actions of a commit, without what differs each time."""
    lines = (Path(path) / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    compared = [_without_own(json.loads(line)) for line in lines]
    return sorted(compared, key=lambda action: json.dumps(action, sort_keys=True))


def _without_own(action: dict[str, Any]) -> dict[str, Any]:
    ((kind, fields),) = action.items()
    kept = {name: value for name, value in fields.items() if name not in _OWN}
    for name in ("readerFeatures", "writerFeatures"):
        if name in kept:
            kept[name] = sorted(kept[name])
    for name in ("schemaString", "stats"):
        if name in kept:
            kept[name] = json.loads(kept[name])
    if "deletionVector" in kept:
        kept["deletionVector"] = kept["deletionVector"]["cardinality"]
    if kept.get("operation") == "Manual Update":
        del kept["isBlindAppend"]  # Delta says so of a commit without files; to say no is the careful answer
    return {kind: kept}


@pytest.mark.parametrize("columns", [PLAIN, TIMES, ODD], ids=["plain", "times", "odd names"])
def test_it_says_what_deltas_own_says(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, columns: Columns
) -> None:
    session = of_this_thread(spark)

    def written(name: str, way: Way) -> list[dict[str, Any]]:
        path = str(lake / name)
        begin(session, path, columns, way)
        life = LakeTable(path, "binlake:shop:life")
        assert life.recorded() == overtaking(4) + 1
        assert life.version() == 0
        assert session.read.format("delta").load(path).count() == 2
        return actions(path, 0)

    by_process, ours = written("process", "process"), written("ours", "spark")
    assert not (lake / "ours" / "_delta_log" / f"{0:020}.crc").exists()  # which Delta's leaves
    monkeypatch.setattr(OptimisticTransaction, "_starts_plainly", lambda self: False)
    theirs = written("theirs", "spark")
    assert (lake / "theirs" / "_delta_log" / f"{0:020}.crc").exists()
    assert ours == theirs
    assert by_process == theirs


MAPPED = "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


@pytest.mark.parametrize(
    ("columns", "changes"),
    [
        ((*PLAIN, ("price", "decimal(9,2)")), ["DELETE FROM {} WHERE id = 0"]),
        (PLAIN, [MAPPED, "ALTER TABLE {} RENAME COLUMN name TO title"]),
    ],
    ids=["marked rows and other columns", "mapped columns"],
)
def test_what_comes_in_a_tables_place_is_what_deltas_own_makes(
    spark: SparkSession, lake: Path, columns: Columns, changes: list[str]
) -> None:
    """The fence, and the commit behind it; two lives were there before."""
    session = of_this_thread(spark)
    session.conf.set("spark.databricks.delta.delete.deletionVectors.persistent", "true")
    there = two_lives(lake / "there")
    for change in changes:
        session.sql(change.format(f"delta.`{there}`"))
    before, third = LakeLog(str(there), "").version(), copied(session, str(there), columns, "third")

    def replaced(way: Way) -> tuple[list[Any], list[Any], list[Any]]:
        path = str(shutil.copytree(there, lake / way))
        begin_of(session, path, DeltaSchema(columns, "snapshot"), third, way, batch=4, life="third")
        assert LakeLog(path, "").version() == before + 2
        for life, version in (("first", 0), ("second", 0), ("third", 1)):
            assert LakeLog(path, f"binlake:shop:{life}").recorded() == overtaking(4) + version
        table = session.read.format("delta").load(path)
        return actions(path, before + 1), actions(path, before + 2), [table.dtypes, table.orderBy("id").collect()]

    assert replaced("process") == replaced("spark")


def two_lives(there: Path) -> Path:
    """Make a plain table which two lives began, one after the other."""
    rows = pa.table({"id": pa.array([0, 1]), "name": ["0", "1"]})
    for batch, life in enumerate(("first", "second"), start=2):
        log, note = LakeLog(str(there), f"binlake:shop:{life}"), {"binlake": {"snapshot": life, "life": life}}
        files = plain_files.write(str(there), f"snapshot-{life}", rows)
        begin_in_process.begin(
            log, DeltaSchema(PLAIN, "snapshot"), files, CONFIG, batch=batch, note=note, is_ours=lambda: None
        )
    return there


def test_a_feature_that_comes_with_the_columns_is_turned_on(spark: SparkSession, lake: Path) -> None:
    """By Spark's commit before it, or together with them."""
    session, made = of_this_thread(spark), {}
    there = two_lives(lake / "there")
    third = copied(session, str(there), TIMES, "third")
    ways: tuple[Way, ...] = ("process", "spark")
    for way in ways:
        path = str(shutil.copytree(there, lake / way))
        begin_of(session, path, DeltaSchema(TIMES, "snapshot"), third, way, batch=4, life="third")
        log = LakeLog(path, "").opened()
        protocol, table = log.protocol(), session.read.format("delta").load(path)
        features = set(protocol.reader_features or ()), set(protocol.writer_features or ())
        made[way] = features, log.metadata().configuration, table.dtypes, table.orderBy("id").collect()
    assert "timestampNtz" in made["process"][0][0]
    assert made["process"] == made["spark"]


def test_a_repetition_with_the_same_files_leaves_them(spark: SparkSession, lake: Path) -> None:
    """As after a kill between the commit and the record of it: a file must not come and go in one commit."""
    session, schema = of_this_thread(spark), DeltaSchema(PLAIN, "snapshot")
    files = begin(session, str(lake / "t"), PLAIN, "process")
    begin_of(session, str(lake / "t"), schema, files, "process", batch=4, life="life")
    kinds = [next(iter(action)) for action in actions(str(lake / "t"), 2)]
    assert sorted(kinds) == ["commitInfo", "metaData", "txn"]
    assert LakeLog(str(lake / "t"), "binlake:shop:life").recorded() == overtaking(4) + 2
    assert session.read.format("delta").load(str(lake / "t")).count() == 2


def test_what_else_a_new_table_shall_have_is_left_to_delta(spark: SparkSession, lake: Path) -> None:
    session = of_this_thread(spark)
    session.conf.set("spark.databricks.delta.properties.defaults.enableRowTracking", "true")
    begin(session, str(lake / "t"), PLAIN, "spark")
    first = actions(str(lake / "t"), 0)
    (protocol,) = [action["protocol"] for action in first if "protocol" in action]
    assert "rowTracking" in protocol["writerFeatures"]
    (added,) = [action["add"] for action in first if "add" in action]
    assert added["baseRowId"] == 0


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"spark": {"conf": {"spark.databricks.delta.properties.defaults.enableRowTracking": True}}}, "RowTracking"),
        ({"merge": {"without_spark_mb": 0}}, "without_spark_mb is 0"),
    ],
)
def test_what_asks_for_delta_isnt_begun_by_the_process(lake: Path, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(LeftToSpark, match=why):
        begin_in_process.check(
            LakeLog(str(lake / "t"), "binlake:shop:life"),
            DeltaSchema(PLAIN, "snapshot"),
            PipelineConfig.model_validate({**_SETTINGS, **settings}),
        )
