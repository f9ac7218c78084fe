"""A snapshot's first commit, which is written without Delta's transaction, is the one that Delta would have made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from binlake.delta.delta_log import overtaking
from binlake.delta.delta_schema import DeltaSchema
from binlake.merge.lake_table import LakeTable, NewTable
from binlake.spark import data_files
from binlake.spark.session import of_this_thread
from binlake.spark.transaction import OptimisticTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = (("id", "bigint"), ("name", "string"))
TIMES = (("id", "bigint"), ("at", "timestamp_ntz"), ("seen", "timestamp"), ("price", "decimal(20,4)"))
ODD = (("i d", "bigint"), ("a.b`c", "string"), ("ü漢=;{}", "binary"))
_OWN = {"id", "createdTime", "timestamp", "txnId", "engineInfo", "path", "modificationTime", "lastUpdated", "tags"}
"""What differs from commit to commit; tags are empty where they are written."""


def written(session: SparkSession, path: str, columns: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    """The actions by which a snapshot of two rows begins a table, without what differs each time."""
    schema = DeltaSchema(columns, "snapshot")
    quoted = [f"`{name.replace('`', '``')}`" for name, _ in columns]
    values = ", ".join(f"CAST(id AS STRING)::{kind} AS {name}" if kind != "timestamp_ntz" and kind != "timestamp"
                       else f"TIMESTAMP_SECONDS(id)::{kind} AS {name}"
                       for name, (_, kind) in zip(quoted, columns, strict=True))  # fmt: skip
    rows = session.sql(f"SELECT {values} FROM range(0, 2, 1, 1)")
    files = data_files.write(session, path, "snapshot-1", schema, rows, rows_per_file=100)
    life = LakeTable(path, "binlake:shop:life")
    life.begin(session, NewTable(schema, files), 4, {"binlake": {"snapshot": "snapshot"}}, lambda: None)
    assert life.recorded() == overtaking(4) + 1
    assert life.version() == 0
    assert session.read.format("delta").load(path).count() == 2
    lines = (Path(path) / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    actions = sorted((json.loads(line) for line in lines), key=lambda action: min(action))
    return [
        {kind: {name: value for name, value in told.items() if name not in _OWN} for kind, told in action.items()}
        for action in actions
    ]


@pytest.mark.parametrize("columns", [PLAIN, TIMES, ODD], ids=["plain", "times", "odd names"])
def test_it_says_what_deltas_own_says(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, columns: tuple[tuple[str, str], ...]
) -> None:
    session = of_this_thread(spark)
    ours = written(session, str(lake / "ours"), columns)
    assert not (lake / "ours" / "_delta_log" / f"{0:020}.crc").exists()  # which Delta's leaves
    monkeypatch.setattr(OptimisticTransaction, "_starts_plainly", lambda self: False)
    theirs = written(session, str(lake / "theirs"), columns)
    assert (lake / "theirs" / "_delta_log" / f"{0:020}.crc").exists()
    for our, their in zip(ours, theirs, strict=True):
        assert our == their


def test_what_else_a_new_table_shall_have_is_left_to_delta(spark: SparkSession, lake: Path) -> None:
    session = of_this_thread(spark)
    session.conf.set("spark.databricks.delta.properties.defaults.enableRowTracking", "true")
    actions = written(session, str(lake / "t"), PLAIN)
    (protocol,) = [action["protocol"] for action in actions if "protocol" in action]
    assert "rowTracking" in protocol["writerFeatures"]
    (added,) = [action["add"] for action in actions if "add" in action]
    assert added["baseRowId"] == 0
