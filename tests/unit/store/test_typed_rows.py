"""Rows of metadata tables as dataclasses."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any, cast

import pytest

from binlake.store.conditions import Newest
from binlake.store.metadata import Metadata
from binlake.store.rows import PinRow, WatermarkRow
from binlake.store.run_rows import RunRow
from binlake.store.typed_rows import ROWS

PIN = PinRow(name="kept", batch=3, who="ada", why="audit", at_us=5)


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(str(tmp_path / "_binlake"))


def test_what_is_written_is_read(metadata: Metadata) -> None:
    PinRow.append(metadata, [PIN, replace(PIN, name="other", batch=4)])
    assert PinRow.read(metadata, where="name = 'kept'") == [PIN]
    assert PinRow.first(metadata, newest=Newest("batch", 1)) == replace(PIN, name="other", batch=4)
    PinRow.replace(metadata, "batch = 4")
    assert PinRow.read(metadata) == [PIN]
    assert PinRow.count(metadata) == 1


def test_a_column_that_was_not_read_has_no_value(metadata: Metadata) -> None:
    RunRow.append(metadata, [RunRow(run="r", kind="sync", outcome="recorded", message="done")])
    (row,) = RunRow.read(metadata, "run", "batch")
    assert (row.run, row.batch) == ("r", None)
    with pytest.raises(AttributeError, match="message"):
        _ = row.message
    with pytest.raises(AttributeError):
        RunRow.append(metadata, [row])
    with pytest.raises(AttributeError):
        replace(row, run="another")
    assert "message='(not read)'" in repr(row)


def test_a_null_reads_as_the_default_of_its_field(metadata: Metadata) -> None:
    metadata.append("runs", [{"run": "r"}])
    (row,) = RunRow.read(metadata)
    assert (row.bytes, row.message, row.did, row.seconds, row.position) == (0, "", (), {}, None)


def test_a_row_needs_its_columns_and_has_no_others_and_stays_as_it_is() -> None:
    with pytest.raises(TypeError, match="PinRow needs who"):
        PinRow(name="kept", batch=3, why="audit", at_us=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="PinRow has no color"):
        PinRow(**PIN.values(), color="red")  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        cast("Any", PIN).batch = 4
    assert replace(PIN) != replace(PIN, batch=4)


def test_columns_of_a_table_stand_in_the_order_of_the_fields() -> None:
    assert ROWS["watermarks"] is WatermarkRow
    row = WatermarkRow(table_id="a", database="d", table="t", status="paused", batch=1, position="p", updated_us=9)
    assert list(row.values())[:6] == ["table_id", "database", "table", "status", "batch", "position"]
    assert str(row.name) == "d.t"


@pytest.mark.parametrize("frozen", [None, False])
def test_a_no_that_an_older_binlake_wrote_is_in_its_reason(frozen: bool | None) -> None:
    """A newer one may have recorded the batch in which it did."""
    row = WatermarkRow(
        table_id="a", database="d", table="t", status="stopped", batch=1, position="p", updated_us=9, frozen=frozen
    )
    assert not replace(row, reason="binlog.000001:4: it adds 'n' int").is_frozen
    assert replace(row, reason="binlog.000001:4: it adds 'n' int, and the answer is no").is_frozen
