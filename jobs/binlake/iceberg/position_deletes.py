"""Files of position deletes: the deleted rows of a data file by their numbers, as Iceberg's format 2 has them.

Source: Iceberg's specification, "Position Delete Files", which also has the ids of the two columns.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from binlake.storage import files

ENDING = ".parquet"


def _column(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={b"PARQUET:field_id": str(number).encode()})


FILE_PATH = 2147483546
"""The id of the column of data files' addresses."""
_SCHEMA = pa.schema([_column("file_path", pa.string(), FILE_PATH), _column("pos", pa.int64(), 2147483545)])


def write(path: str, address: str, positions: pa.Int64Array) -> int:
    """Write a file, and return its bytes. address: the data file's. positions: the numbers of its deleted rows,
    ascending. Raises OSError."""
    addresses = pa.repeat(address, len(positions))
    sink = io.BytesIO()
    table = pa.Table.from_arrays([addresses, positions], schema=_SCHEMA)
    pq.write_table(table, sink, compression="zstd", use_dictionary=["file_path"])
    files.write_bytes(path, sink.getvalue())
    return sink.tell()


def read(path: str, address: str) -> list[int] | None:
    """Return the numbers of the rows in a file, in its order; None where it names another data file than address.
    Raises OSError, ValueError."""
    with files.opened(path) as source:
        table = pq.read_table(source, schema=_SCHEMA)
    if any(each != address for each in table["file_path"].unique().to_pylist()):
        return None
    positions: list[int] = table["pos"].to_pylist()
    return positions
