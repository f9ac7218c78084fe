"""What a server logged, written again and read again, is the same: rows, statements, GTIDs and shapes."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

import logs

from binlake.binlog.border import Mutations, Statement
from binlake.binlog.reader import Emitted, read
from binlake.binlog.transport import FileTransport
from binlake.errors import BinlogError
from binlake.position import FIRST_OFFSET, Flavour, Slice
from binlake.schema.invalid import KEEP_ALL
from written_again import written_again

PARTIAL = {"metadata", "minimal", "noblob", "partial"}
"""In the names of logs whose shapes or rows aren't whole."""
WHOLE = [name for name in logs.NAMES if not PARTIAL & set(name.split("-"))]


def everything(path: Path) -> list[Emitted]:
    part = Slice(path.name, FIRST_OFFSET, path.stat().st_size, 0, True)
    return list(read(FileTransport(path), part, lambda database, table: True, invalid=KEEP_ALL))


def rows_of(emitted: list[Emitted]) -> dict[str, pa.Table]:
    """By table, without the places in the log."""
    by_table: dict[str, list[pa.RecordBatch]] = {}
    for item in emitted:
        if isinstance(item, Mutations):
            images = item.batch.select(["op", "gtid", "before", "after"])
            by_table.setdefault(f"{item.name} {item.columns} {item.key}", []).append(images)
    return {name: pa.Table.from_batches(batches) for name, batches in by_table.items()}


def statements_of(emitted: list[Emitted]) -> list[tuple[object, ...]]:
    return [
        (it.text, it.database, it.sql_mode, it.server_charset, it.error, it.has_xid, it.gtid, it.session)
        for it in emitted
        if isinstance(it, Statement)
    ]


@pytest.mark.parametrize("name", WHOLE)
def test_a_log_written_anew_tells_the_same(name: str, tmp_path: Path) -> None:
    flavour: Flavour = "mariadb" if name.startswith("mariadb") else "mysql"
    original = everything(logs.log(name).path)
    path = tmp_path / "binlog.000001"
    path.write_bytes(written_again(original, flavour))
    again = everything(path)
    assert rows_of(again) == rows_of(original)
    assert statements_of(again) == statements_of(original)
    assert written_again(again, flavour) == path.read_bytes()


def test_a_damaged_byte_is_found_by_its_checksum(tmp_path: Path) -> None:
    data = bytearray(written_again(everything(logs.log("mysql-plain").path), "mysql"))
    data[len(data) // 2] ^= 1
    path = tmp_path / "binlog.000001"
    path.write_bytes(data)
    with pytest.raises(BinlogError):
        everything(path)
