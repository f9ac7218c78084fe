"""SQL functions of our own, for what Spark SQL can't say: the server's text of a double, and those of types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas import functions

from binlake.schema.datatypes import REGISTRY
from binlake.schema.doubles import double_texts

_arrow_udf: Any = functions.arrow_udf  # its stub demands an argument that has a default


def register(session: SparkSession) -> None:
    """Make known to ``session``'s SQL:

    - ``binlake_double_text(DOUBLE)``: text as the server prints it,
    - those of the types (DataType.functions), such as ``binlake_vector(BINARY)``: a VECTOR's bytes as ARRAY<FLOAT>.
    """
    session.udf.register("binlake_double_text", _arrow_udf(_double_text, "string"))
    for entry in REGISTRY.values():
        for name, (function, returned) in entry.functions.items():
            session.udf.register(name, _arrow_udf(function, returned))


def _double_text(values: pa.Array) -> pa.Array:
    return pa.array(double_texts(values.to_pylist()), pa.string())
