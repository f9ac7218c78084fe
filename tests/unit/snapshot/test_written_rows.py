"""Rows of the server's text protocol in, data files out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COPY = """
import sys
from binlake.kernels import arrays
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableSchema
from binlake.snapshot import direct
import pyarrow as pa

columns = {
    "id": (Column("id", "bigint", unsigned=True), ["18446744073709551615", "1"]),
    "day": (Column("day", "date"), ["0000-00-00", "2020-02-29"]),
    "at": (Column("at", "datetime", fraction=6), ["2020-01-02 03:04:05.000006", None]),
    "stamp": (Column("stamp", "timestamp"), ["1970-01-01 00:00:01", "2038-01-19 03:14:07"]),
    "price": (Column("price", "decimal", precision=12, scale=2), ["-1.50", "0.01"]),
    "name": (Column("name", "varchar", length=9, charset="utf8mb4"), ["é", ""]),
}
schema = TableSchema(tuple(column for column, _ in columns.values()), ("id",), "primary", charset="utf8mb4")
rows = [arrays.texts(values).cast(pa.binary()) for _, values in columns.values()]
copied = direct.copied([rows], direct.DataFiles(sys.argv[1], "attempt", schema, FAIL, 1000))
print([file.rows for file in copied.files], copied.invalid_dates, "pandas" in sys.modules)
"""


def test_pandas_isnt_imported_for_them(tmp_path: Path) -> None:
    """It would be a tenth of the time that copying a small source takes."""
    ended = subprocess.run([sys.executable, "-c", COPY, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert ended.stdout == "[2] {'day': 1} False\n", ended.stderr
