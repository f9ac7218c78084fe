"""Data files of a table's plain columns, written from Arrow: a file costs no Spark job."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from binlake.lake.delta_schema import needs_column_mapping
from binlake.schema.lake_columns import LakeColumn
from binlake.state import files
from binlake.state.attempts import DataFile
from binlake.state.delta_actions import DeltaAction
from binlake.versions import SPARK

_DELTA_TYPES = {
    "TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long", "FLOAT": "float", "DOUBLE": "double",
    "STRING": "string", "BINARY": "binary", "DATE": "date", "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz", "BOOLEAN": "boolean",
}  # fmt: skip
"""Spark's names of types → Delta's."""
_WRITTEN_BY = {"org.apache.spark.version": SPARK}
"""Else older readers of Spark's refuse days before 1582 in files of which they don't know the calendar."""


def delta_type(column: LakeColumn) -> str | None:
    """None of what isn't known here, which no table has."""
    kind = column.delta.upper()
    return kind.lower().replace(" ", "") if kind.startswith("DECIMAL(") else _DELTA_TYPES.get(kind)


def can_hold(columns: Sequence[LakeColumn]) -> bool:
    """Whether a new table of these is written as it stands, without names of its own below the columns'."""
    return not needs_column_mapping([one.name for one in columns]) and all(map(delta_type, columns))


def write(table_path: str, folder: str, rows: pa.Table) -> tuple[DataFile, ...]:
    """A data file below ``table_path``/``folder``; none where there is no row. Raises OSError."""
    if not rows.num_rows:
        return ()
    files.make_readers_folder(f"{table_path}/{folder}")
    added = added_file(table_path, rows, f"{folder}/")
    return (DataFile(added["path"], added["size"], rows.num_rows, json.dumps({"add": added})),)


def added_file(table_path: str, rows: pa.Table, below: str = "") -> DeltaAction:
    """Writes a data file, and gives what Delta's log says of it. below: ``folder/``. Raises OSError."""
    name = f"{below}part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    size = files.write_parquet(f"{table_path}/{name}", rows.replace_schema_metadata(_WRITTEN_BY))
    return {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": time.time_ns() // 1_000_000,
        "dataChange": True,
        "stats": _statistics(rows),
    }


def _statistics(rows: pa.Table) -> str:
    """Delta's of a data file: the bounds of whole numbers, by which keys are looked for."""
    bounds = {name: pc.min_max(rows[name]).as_py() for name in rows.column_names if _is_whole(rows[name].type)}
    known = {name: one for name, one in bounds.items() if one["min"] is not None}
    return json.dumps(
        {
            "numRecords": rows.num_rows,
            "minValues": {name: int(one["min"]) for name, one in known.items()},
            "maxValues": {name: int(one["max"]) for name, one in known.items()},
            "nullCount": {name: rows[name].null_count for name in rows.column_names},
        }
    )


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))
