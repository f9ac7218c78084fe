"""The shape of a table as its server has it now."""

from __future__ import annotations

from binlake.schema.table import TableName, TableSchema
from binlake.source.catalog import read_tables
from binlake.source.server import Source


def read_schema(source: Source, name: TableName) -> TableSchema:
    return read_tables(source, [name])[name].schema
