"""Masks of the rows that Spark reads: the same code as elsewhere, in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from binlake.schema import hash_key, masking
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import lake_columns, own_columns
from binlake.schema.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def masked(rows: DataFrame, schema: TableSchema, invalid: InvalidValues) -> DataFrame:
    """Return rows with the lake's columns of a shape, given those of its columns without masks."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StringType, StructField, StructType

    before, after = (lake_columns(shape, invalid) for shape in (schema.unmasked, schema))
    given = {field.name: field for field in rows.schema.fields}
    hashed = {name for name, mask in schema.masks.items() if mask.kind == "hash"}
    fields = [
        StructField(column.name, StringType()) if column.name.lower() in hashed else given[column.name]
        for column in (*after, *own_columns(schema))
    ]
    shape = StructType(fields)
    types, arrow = pa.schema([(column.name, column.arrow) for column in before]), to_arrow_schema(shape)
    keys = hash_key.keys_of(schema.masks.values())

    def mask_there(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hash_key.use(keys)
        for batch in batches:
            columns = [array.cast(kind) for array, kind in zip(batch.columns, types.types, strict=False)]
            made = masking.masked_rows(pa.RecordBatch.from_arrays(columns, schema=types), schema, invalid)
            everything = [*made.columns, *batch.columns[len(types) :]]
            cast = [array.cast(kind) for array, kind in zip(everything, arrow.types, strict=True)]
            yield pa.RecordBatch.from_arrays(cast, schema=arrow)

    return rows.mapInArrow(mask_there, shape)
