"""JSON: in the lake the text that the server shows. (MariaDB's JSON is a LONGTEXT.)"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from binlake.schema.table import Column
from binlake.schema.types.connect_form import ConnectType, always, as_texts
from binlake.schema.types.datatype import DataType, lake_sha, server_char, server_sha
from binlake.schema.types.jsonbinary import binary_json
from binlake.schema.types.log_form import (
    FilledBuffers,
    LogForm,
    Wire,
    behind_length,
    finished,
    its_size,
    mapped,
    prefixed,
)
from binlake.schema.types.text_sizes import UNICODE


def _json_values(
    wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int
) -> pa.Array:
    from binlake.schema import strings

    assert column.offsets is not None
    offsets, data = strings.json(column.offsets[: rows + 1], column.data, column.validity if nulls else None)
    return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)


_JSON_LOG = LogForm(
    Wire.JSON,
    lambda column: 4,
    behind_length,
    finished(_json_values),
    lambda field: lambda array: prefixed(mapped(array, binary_json), field.size),
    alone=(Wire.JSON,),
    metadata=its_size,
)


def _converts(before: Column, after: Column, strict: bool) -> bool:
    return after.type == "json" or (after.type == "longtext" and (strict or after.charset in UNICODE))


JSON = DataType(
    log=_JSON_LOG,
    arrow=lambda column: pa.string(),
    delta=lambda column: "STRING",
    select=server_char,
    server_text=lambda column: server_sha(server_char(column)),
    lake_text=lake_sha,
    has_default=False,
    never_empty=True,
    connect=always(ConnectType("string", as_texts, "io.debezium.data.Json")),
    implicit_default=lambda column: "null",
    converts=_converts,
)
