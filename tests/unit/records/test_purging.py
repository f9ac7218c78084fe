"""Which rows and texts of metadata a purge takes values from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binlake.planner.steps import Life
from binlake.position import Position
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedLimits
from binlake.records.purging import RowsBefore, Taken
from binlake.schema.table import TableName, TableSchema
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import (
    DecisionRow,
    FeedRow,
    FollowerStopRow,
    MergedRow,
    OmissionRow,
    QuarantineRow,
    StatementRow,
)
from binlake.store.run_rows import RunRow, VerificationRow

HERE = Position("s", "b.000001", 4, 1)
NAME, OLD, OTHER = TableName("d", "t"), TableName("d", "old"), TableName("d", "other")
QUOTED = "a text with former in it"


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    metadata = Metadata(str(tmp_path / "m"))
    statement: dict[str, Any] = {"batch": 1, "file": "b.000001", "offset": 4, "position": str(HERE), "committed_us": 1}
    said = "ALTER TABLE t ADD c INT DEFAULT 'former'"
    StatementRow.append(
        metadata,
        [StatementRow(**statement, database="d", table="t", table_id="o", statement=said, kind="ALTER", action="")],
    )
    return metadata


def before(
    metadata: Metadata, names: tuple[TableName, ...] = (NAME,), taken: Mapping[TableName, Taken] | None = None
) -> RowsBefore:
    life = Life("a", NAME, TableSchema((), ()), HERE, HERE)
    return RowsBefore(metadata, life, names, {"o"}, {"b"}, taken or {}, now_us(), ())


def test_a_row_of_an_older_binlake_loses_what_it_quotes(metadata: Metadata) -> None:
    run = RunRow(run="r", kind="sync", outcome="failed", message=QUOTED)
    metadata.append("runs", [{**run.values(), "why_spark": None, "mutations": None}])
    before(metadata).purge()
    assert [row.message for row in RunRow.read(metadata)] == ["a text with *** in it"]


def test_texts_of_all_kinds_lose_what_they_quote(metadata: Metadata) -> None:
    FollowerStopRow.append(metadata, [FollowerStopRow(at_us=1, holder="h", since_us=1, how="failed", message=QUOTED)])
    MergedRow.append(metadata, [MergedRow(database="m", table="m", reason=QUOTED, remedy=QUOTED, at_us=1)])
    of_feed: dict[str, Any] = {"feed": "f", "layer": "l", "place": "", "events": 1, "mutations": 1}
    OmissionRow.append(metadata, [OmissionRow(**of_feed, table="t", at_us=1, reason=QUOTED)])
    of_table: dict[str, Any] = {"database": "d", "table": "t", "table_id": "a"}
    QuarantineRow.append(metadata, [QuarantineRow(batch=1, **of_table, reason="", remedy=QUOTED, at_us=1 << 60)])
    feed_watermarks.register(metadata, "f", FeedLimits(1, 24))
    FeedRow.replace(metadata, "true", [replace(row, reason=QUOTED, remedy=QUOTED) for row in FeedRow.read(metadata)])
    before(metadata).purge()
    kinds = (FollowerStopRow, MergedRow, OmissionRow, QuarantineRow, FeedRow)
    texts = [text for kind in kinds for row in kind.read(metadata) for text in row.values().values()]
    assert not [text for text in texts if "former" in str(text)]
    assert texts.count("a text with *** in it") == 7


def test_texts_about_other_tables_stay(metadata: Metadata) -> None:
    decision: dict[str, Any] = {"at_us": 1, "who": "ann", "why": "", "action": "skip", "result": QUOTED}
    DecisionRow.append(metadata, [DecisionRow(**decision, **vars(name)) for name in (NAME, OTHER)])
    tables = [{"table": str(name), "reason": QUOTED} for name in (NAME, OTHER)]
    RunRow.append(metadata, [RunRow(run="r", kind="sync", outcome="failed", tables=json.dumps(tables))])
    before(metadata).purge()
    texts = ["a text with *** in it", QUOTED]
    assert {row.table: row.result for row in DecisionRow.read(metadata)} == dict(
        zip(("t", "other"), texts, strict=True)
    )
    (run,) = RunRow.read(metadata)
    assert [table["reason"] for table in run.noted] == texts


def test_comparisons_of_another_table_of_a_former_name_stay(metadata: Metadata) -> None:
    compared: dict[str, Any] = {"verification": "v", "at_us": 1, "batch": 1}
    VerificationRow.append(metadata, [VerificationRow(**compared, **vars(name)) for name in (NAME, OLD, OTHER)])
    later = VerificationRow(**{**compared, "at_us": 3}, **vars(OTHER))
    VerificationRow.append(metadata, [later])
    before(metadata, (NAME, OLD, OTHER), {OTHER: Taken(1, 2)}).purge()
    assert [(row.table, row.at_us) for row in VerificationRow.read(metadata)] == [("other", 3)]
