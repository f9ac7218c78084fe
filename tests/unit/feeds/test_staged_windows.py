"""A batch's staged files are merged in log order, in few windows: each piece of each window costs a format much."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from binlake.binlog.border import INSERT, Mutations
from binlake.binlog.staged_schema import staged_schema
from binlake.config.feed_config import DebeziumFormat
from binlake.feeds import staged
from binlake.feeds.contract import FeedContext, FeedTable
from binlake.feeds.formats.connect_json import JsonWriter
from binlake.feeds.formats.debezium import Debezium
from binlake.feeds.source_transactions import SourceTransactions
from binlake.feeds.staged import LogWindow, StagedBatch
from binlake.planner.manifest import Manifest, StagedSlice
from binlake.position import Position, Range, Slice
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName
from binlake.staging.staged_files import SliceWriter

COLUMNS = (Column("id", "int", nullable=False),)
CONTEXT = FeedContext("f", "s", "server", "mysql")
START = Position.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562/binlog.000001:4@1700000000")


def batch(folder: Path, rows: dict[str, list[int]]) -> StagedBatch:
    """A batch with a file for each table, which has a row at each of these offsets."""
    folder.mkdir(exist_ok=True)
    writer = SliceWriter(str(folder), 0, FAIL)
    for table, offsets in rows.items():
        values: list[dict[str, Any]] = [
            {"op": INSERT, "file": 1, "offset": offset, "row": 0, "committed_us": offset, "gtid": f"g:{offset}",
             "xid": None, "before": None, "after": {"id": offset}}
            for offset in offsets
        ]  # fmt: skip
        made = pa.RecordBatch.from_pylist(values, staged_schema(COLUMNS, FAIL))
        writer.write(Mutations(TableName("db", table), COLUMNS, ("id",), 0, made))
    part = StagedSlice(0, writer.finish(), (), ())
    return StagedBatch(
        Manifest(1, "attempt", (part,)),
        Range(START, START, (Slice("binlog.000001", 4, 1 << 30, 0, whole=False),)),
        (),
        lambda file: FeedTable(file.name, file.columns, file.key),
        lambda table, rows: rows,
    )


def windows(read: StagedBatch, after: Any = None) -> list[LogWindow]:
    return [item for item in read.read(after) if isinstance(item, LogWindow)]


def offsets_of(window: LogWindow) -> list[int]:
    """The offsets of a window's rows in its order, by its rows; its places tell the same."""
    flat = [offset for part in window.parts for offset in part.rows.column("offset").to_pylist()]
    ordered = [flat[number] for number in window.order.tolist()]
    assert ordered == [window.place(number)[2] for number in range(len(window))]
    return ordered


def interleaved(chance: random.Random, tables: int, count: int) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {f"t{number}": [] for number in range(tables)}
    for offset in range(100, 100 + count):
        rows[f"t{chance.randrange(tables)}"].append(offset)
    return {name: offsets for name, offsets in rows.items() if offsets}


def test_small_files_are_one_window(tmp_path: Path) -> None:
    rows = interleaved(random.Random(1), 40, 900)
    (window,) = windows(batch(tmp_path, rows))
    assert offsets_of(window) == list(range(100, 1000))
    assert len(window.parts) == len(rows)


@pytest.mark.parametrize("most", [1, 60, 10_000])
def test_rows_come_in_log_order_however_many_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(staged, "_FEWEST_ROWS", 7)
    monkeypatch.setattr(staged, "_MOST_ROWS", most)
    for seed in range(6):
        chance = random.Random(seed)
        rows = interleaved(chance, 1 + seed * 3, 300)
        rows["later"] = list(range(1000, 1020))
        read = batch(tmp_path / str(seed), rows)
        everything = [*range(100, 400), *range(1000, 1020)]
        assert [offset for window in windows(read) for offset in offsets_of(window)] == everything
        after = chance.choice(everything)
        rest = [offset for window in windows(read, (0, 0, after, 0, 0)) for offset in offsets_of(window)]
        assert rest == [offset for offset in everything if offset > after]


def test_no_more_files_are_opened_than_rows_may_be_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "_MOST_ROWS", 50)
    rows = {f"t{number}": list(range(number * 1000, number * 1000 + 30)) for number in range(1, 9)}
    read = windows(batch(tmp_path, rows))
    assert max(len(window) for window in read) <= 60
    assert sum(len(window) for window in read) == 240


@pytest.mark.parametrize("count", range(1, 7))
def test_the_first_rows_of_a_window_are_numbered_in_their_transactions(tmp_path: Path, count: int) -> None:
    """A feed that stops at a time sends them, by a format that tells transactions."""
    (window,) = windows(batch(tmp_path, {"a": [100, 101, 104], "b": [102, 103, 105]}))
    first = window.first(count)
    assert offsets_of(first) == list(range(100, 100 + count))
    form = Debezium(DebeziumFormat(type="debezium", transactions=True), CONTEXT, JsonWriter())
    transactions = SourceTransactions(form)
    sent = [message for part in transactions.number(first) for messages in form.changes(part) for message in messages]
    told = [json.loads(message.value or b"") for message in sent]
    assert sorted((value["source"]["pos"], value["transaction"]["id"]) for value in told) == [
        (offset, f"g:{offset}") for offset in range(100, 100 + count)
    ]
