"""SQL functions of our own, for what Spark SQL can't say: the server's text of a double, and vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas import functions

from binlake.schema.doubles import double_texts
from binlake.schema.render import RENDERERS, Renderer, vectors

_arrow_udf: Any = functions.arrow_udf  # its stub demands an argument that has a default


def register(session: SparkSession) -> None:
    """Make known to ``session``'s SQL:

    - ``binlake_double_text(DOUBLE)``: text as the server prints it,
    - ``binlake_vector_hex(ARRAY<FLOAT>)``: hexadecimal of the little-endian floats, as the server stores a VECTOR,
    - ``binlake_vector(BINARY)``: the stored bytes of a VECTOR as ARRAY<FLOAT>; every bit stays as it is,
    - ``binlake_uuid(BINARY)``, ``binlake_inet4``, ``binlake_inet6``: MariaDB's stored bytes as text.
    """
    session.udf.register("binlake_double_text", _arrow_udf(_double_text, "string"))
    session.udf.register("binlake_vector_hex", _arrow_udf(_vector_hex, "string"))
    session.udf.register("binlake_vector", _arrow_udf(vectors, "array<float>"))
    for kind, render in RENDERERS.items():
        session.udf.register(f"binlake_{kind}", _arrow_udf(_rendering(render), "string"))


def _rendering(render: Renderer) -> Callable[[pa.Array], pa.Array]:
    def rendered(stored: pa.Array) -> pa.Array:
        return pa.array([None if data is None else render(data) for data in stored.to_pylist()], pa.string())

    return rendered


def _double_text(values: pa.Array) -> pa.Array:
    return pa.array(double_texts(values.to_pylist()), pa.string())


def _vector_hex(vectors: pa.Array) -> pa.Array:
    # An element that is NULL isn't a vector's: its bits would be arbitrary, so it is told apart.
    texts: list[str | None] = []
    for vector in vectors:
        if not vector.is_valid:
            texts.append(None)
        elif vector.values.null_count:
            texts.append("NULL inside")
        else:
            texts.append(vector.values.to_numpy(zero_copy_only=False).astype("<f4").tobytes().hex().upper())
    return pa.array(texts, pa.string())
