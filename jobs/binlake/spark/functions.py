"""SQL functions of our own, for what Spark SQL can't say: the server's text of a double, and those of types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.pandas import functions

from binlake.schema.datatypes import REGISTRY
from binlake.schema.doubles import double_texts
from binlake.schema.types.datatype import ArrowFunction


def register(session: SparkSession) -> None:
    """Make known to ``session``'s SQL:

    - ``binlake_double_text(DOUBLE)``: text as the server prints it,
    - those of the types (DataType.functions), such as ``binlake_vector(BINARY)``: a VECTOR's bytes as ARRAY<FLOAT>.
    """
    session.udf.register("binlake_double_text", _as_sql(_double_text, "string"))
    for entry in REGISTRY.values():
        for name, (function, returned) in entry.functions.items():
            session.udf.register(name, _as_sql(function, returned))


def _as_sql(function: ArrowFunction, returned: str) -> Any:
    """Return a function of Arrow's arrays as one of SQL; row by row on Spark 4.0, which has no functions of arrays."""
    arrow_udf: Any = getattr(functions, "arrow_udf", None)  # its stub demands an argument that has a default
    return arrow_udf(function, returned) if arrow_udf else udf(of_value(function), returned)


def of_value(function: ArrowFunction) -> Callable[[Any], Any]:
    """Return a function of one value that gives what ``function`` does with an array of it; NULL stays NULL."""

    def of(value: Any) -> Any:
        return None if value is None else function(pa.array([value]))[0].as_py()

    return of


def _double_text(values: pa.Array) -> pa.Array:
    return pa.array(double_texts(values.to_pylist()), pa.string())
