"""The Arrow schema of staged mutations; border.py says what its columns mean."""

from __future__ import annotations

import pyarrow as pa

from binlake.caches import remembered
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import columns_of
from binlake.schema.table import Column


@remembered("schemas of staged files")
def staged_schema(columns: tuple[Column, ...], invalid: InvalidValues) -> pa.Schema:
    """Return the Arrow schema of ``Mutations.batch`` and of a staged file."""
    image = pa.struct([pa.field(column.name, column.arrow) for column in columns_of(columns, invalid)])
    return pa.schema(
        [
            pa.field("op", pa.int8(), nullable=False),
            pa.field("file", pa.int64(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("row", pa.int64(), nullable=False),
            pa.field("committed_us", pa.int64(), nullable=False),
            pa.field("gtid", pa.string()),
            pa.field("xid", pa.string()),
            pa.field("before", image),
            pa.field("after", image),
        ]
    )
