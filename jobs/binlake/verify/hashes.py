"""SQL expressions that hash rows, with the same results on the server and in the lake.

A row is written as the canonical texts of its columns (``schema.datatypes``) joined by commas, which no canonical text
contains; NULL is ``N``. Its hash is SHA-256, cut to 64 bits for the sum of a chunk. A row's chunk is the CRC-32 of its
key's text, or of the whole row's if there is no key, modulo the number of chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from binlake.names import mysql_quote, spark_quote
from binlake.schema import datatypes
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import Column, TableSchema

ROWS_PER_CHUNK = 1_000
MOST_CHUNKS = 1 << 14
SHOWN_CHARACTERS = 100
"""The most characters of a key's value in a message."""


class ChunkSum(NamedTuple):
    """The number of rows of a chunk, and the sum of the first 64 bits of their hashes."""

    rows: int
    total: int


Chunks = dict[int, ChunkSum]
"""Chunks by number; one without rows has no entry."""


def chunk_count(rows: int) -> int:
    """Return the number of chunks for an estimated number of rows."""
    return max(1, min(MOST_CHUNKS, rows // ROWS_PER_CHUNK))


@dataclass(frozen=True)
class TableHashes:
    """The expressions for one table. chunks: their number. side: the lake's columns that keep invalid values."""

    schema: TableSchema
    chunks: int
    side: tuple[LakeColumn, ...] = ()

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.schema.column(name) for name in self.schema.key)

    def _chunked(self) -> Sequence[Column]:
        return self.key_columns or self.schema.mirrored

    def server_text(self, columns: Iterable[Column]) -> str:
        return _joined(server_value(column) for column in columns)

    def lake_text(self, columns: Iterable[Column]) -> str:
        return _joined(self.lake_value(column) for column in columns)

    @property
    def server_key(self) -> str:
        return self.server_text(self._chunked())

    @property
    def lake_key(self) -> str:
        return self.lake_text(self._chunked())

    @property
    def server_chunk(self) -> str:
        return f"CRC32({self.server_key}) % {self.chunks}"

    @property
    def lake_chunk(self) -> str:
        return f"CRC32(CAST({self.lake_key} AS BINARY)) % {self.chunks}"

    @property
    def server_hash(self) -> str:
        return f"SHA2({self.server_text(self.schema.mirrored)}, 256)"

    @property
    def lake_hash(self) -> str:
        return f"SHA2(CAST({self.lake_text(self.schema.mirrored)} AS BINARY), 256)"

    def lake_value(self, column: Column) -> str:
        name = spark_quote(column.name)
        missing = "'N'"
        for side in self.side:
            if side.source == column:
                kept = spark_quote(side.name)
                if side.holds == "bytes":
                    kept = datatypes.lake_bytes_text(column, kept)
                else:
                    kept = f"CONCAT({kept}, '{datatypes.fraction_padding(column)}')"
                missing = f"COALESCE({kept}, 'N')"
        return f"IF({name} IS NULL, {missing}, COALESCE({datatypes.entry(column).lake_text(column)}, '?'))"


def server_value(column: Column) -> str:
    """Return SQL of a value's canonical text, never NULL; ``!`` if the server can't make it (max_allowed_packet)."""
    text = datatypes.entry(column).server_text(column)
    return f"IF({mysql_quote(column.name)} IS NULL, 'N', COALESCE({text}, '!'))"


def _joined(texts: Iterable[str]) -> str:
    return f"CONCAT_WS(',', {', '.join(texts)})"


def server_shown(column: Column) -> str:
    """Return the server's SQL that shows a key's value in messages."""
    name = mysql_quote(column.name)
    if datatypes.is_text(column):
        return f"LEFT(CONVERT({name} USING utf8mb4), {SHOWN_CHARACTERS})"
    if pa.types.is_binary(datatypes.arrow_type(column)):
        return f"CONCAT('0x', HEX(LEFT({name}, {SHOWN_CHARACTERS // 2})))"
    if column.type in ("uuid", "inet4", "inet6"):
        return f"CAST({name} AS CHAR)"
    return datatypes.entry(column).server_text(column)


def lake_shown(column: Column) -> str:
    """Return Spark SQL that shows a key's value in messages."""
    name = spark_quote(column.name)
    if datatypes.is_text(column) or column.type in ("uuid", "inet4", "inet6"):
        return f"LEFT({name}, {SHOWN_CHARACTERS})"
    if pa.types.is_binary(datatypes.arrow_type(column)):
        return f"CONCAT('0x', HEX(SUBSTRING({name}, 1, {SHOWN_CHARACTERS // 2})))"
    return datatypes.entry(column).lake_text(column)
