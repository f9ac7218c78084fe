"""Tables of one shape share a decoder where the same is shown of them, and have their own where it isn't."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from binlake.binlog.border import INSERT, Mutations, Withheld
from binlake.binlog.reader import read
from binlake.binlog.staged_schema import staged_schema
from binlake.binlog.transport import FileTransport
from binlake.binlog_writer import table_map_bytes
from binlake.binlog_writer.log_writer import BinlogWriter, Head, RowEvent
from binlake.binlog_writer.row_bytes import RowImages
from binlake.position import FIRST_OFFSET, Slice
from binlake.schema.invalid import FAIL
from binlake.schema.lake_forms import AS_SERVED, LakeForm
from binlake.schema.mask import Mask
from binlake.schema.table import Column, TableName

COLUMNS = (Column("id", "int"), Column("created", "bigint", unsigned=True))
NAMES = [TableName(f"tenant_{number}", "orders") for number in range(3)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with a row of each table."""
    schema = staged_schema(COLUMNS, FAIL)
    place = {"op": INSERT, "file": 1, "offset": 4, "row": 0, "committed_us": 0}
    batch = pa.RecordBatch.from_pylist([{**place, "after": {"id": 7, "created": 5}}], schema)
    fields = table_map_bytes.fields_of(COLUMNS)
    images = [
        image for image in RowImages(Mutations(NAMES[0], COLUMNS, ("id",), 0, batch), fields, FAIL).after if image
    ]
    out = io.BytesIO()
    writer = BinlogWriter.begun(out, "mysql", server_id=1, created_us=1)
    for number, name in enumerate(NAMES):
        body = table_map_bytes.table_map(number + 1, name, fields, ("id",), "mysql")
        writer.transaction(Head(number + 1), [RowEvent(INSERT, body, len(fields), images)])
    writer.close("binlog.000002")
    path = tmp_path / "binlog.000001"
    path.write_bytes(out.getvalue())
    return path


def read_by_table(log: Path, forms: dict[TableName, LakeForm], masks: dict[TableName, Mask]) -> dict[str, Mutations]:
    part = Slice(log.name, FIRST_OFFSET, log.stat().st_size, 0, True)

    def masking(name: TableName, columns: tuple[Column, ...]) -> Withheld:
        return Withheld(masks={"created": masks[name]} if name in masks else {})

    def forming(name: TableName) -> LakeForm:
        return forms.get(name, AS_SERVED)

    items = read(FileTransport(log), part, lambda database, table: True, masking=masking, forming=forming)
    return {str(item.name): item for item in items if isinstance(item, Mutations)}


def test_a_name_and_a_type_of_the_same_text_are_two(log: Path) -> None:
    named, typed, plain = NAMES
    read = read_by_table(
        log, {named: LakeForm({"created": "bigint"}, {}), typed: LakeForm({}, {"created": "bigint"})}, {}
    )
    shown = {name: item.batch.schema.field("after").type for name, item in read.items()}
    assert [field.name for field in shown[str(named)]] == ["id", "bigint"]
    assert (
        [field.name for field in shown[str(typed)]] == [field.name for field in shown[str(plain)]] == ["id", "created"]
    )
    assert shown[str(typed)].field("created").type == pa.int64()
    assert shown[str(plain)].field("created").type == shown[str(named)].field("bigint").type != pa.int64()


def test_each_table_has_its_own_masks_and_its_own_name(log: Path) -> None:
    masked, *others = NAMES
    items = read_by_table(log, {}, {masked: Mask("nothing")})
    assert items[str(masked)].batch.column("after").to_pylist() == [{"id": 7, "created": None}]
    for name in others:
        assert items[str(name)].name == name
        assert items[str(name)].batch.column("after").to_pylist() == [{"id": 7, "created": 5}]
