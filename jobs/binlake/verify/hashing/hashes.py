"""SQL expressions that hash rows, with the same results on the server and in the lake.

A row is written as the canonical texts of its columns (``schema.datatypes``) joined by commas, which no canonical text
contains; NULL is ``N``. Its hash is SHA-256, cut to 64 bits for the sum of a chunk. A row's chunk is the CRC-32 of its
key's text, or of the whole row's if there is no key, modulo the number of chunks. A large table is cut into ranges of
its key first, each with chunks of its own: what differs is looked for in its range alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from binlake.names import mysql_quote, spark_quote
from binlake.schema import datatypes
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.row_condition import server_condition
from binlake.schema.table import Column, TableSchema
from binlake.schema.types import temporal_types, text_types
from binlake.schema.types.datatype import in_lake, on_server

ROWS_PER_CHUNK = 1_000
MOST_CHUNKS = 1 << 14
SHOWN_CHARACTERS = 100
"""The most characters of a key's value in a message."""


class ChunkSum(NamedTuple):
    """The number of rows of a chunk, and the sum of the first 64 bits of their hashes."""

    rows: int
    total: int


NameOf = Callable[[Column], str]
"""Returns a column's name in the SQL of the server or of the lake: ``on_server``, ``in_lake``."""
Chunks = dict[int, ChunkSum]
"""Chunks by number; one without rows has no entry."""


def chunk_count(rows: int) -> int:
    """Return the number of chunks for an estimated number of rows."""
    return max(1, min(MOST_CHUNKS, rows // ROWS_PER_CHUNK))


@dataclass(frozen=True)
class KeyCuts:
    """The cuts of a table into ranges: values of its key's first column, an integer, in ascending order.

    column: None where it isn't cut.
    """

    column: Column | None = None
    values: tuple[int, ...] = ()

    @property
    def ranges(self) -> int:
        """Return the number of ranges."""
        return len(self.values) + 1

    def within(self, number: int, name_of: NameOf) -> str:
        """Return SQL that is true in one range, for the side that runs it."""
        name = name_of(self.column) if self.column else ""
        bounds = [f"{name} >= {self.values[number - 1]}"] if number else []
        bounds += [f"{name} < {self.values[number]}"] if number < len(self.values) else []
        return " AND ".join(bounds) or "TRUE"

    def number(self, name_of: NameOf) -> str:
        """Return SQL of the number of a row's range, for the side that runs it."""
        if self.column is None:
            return "0"
        name = name_of(self.column)
        cases = " ".join(f"WHEN {name} < {value} THEN {number}" for number, value in enumerate(self.values))
        return f"CASE {cases} ELSE {len(self.values)} END"


@dataclass(frozen=True)
class TableHashes:
    """The expressions for one table. in_range: the number of chunks of a range. side: the lake's columns that keep
    invalid values."""

    schema: TableSchema
    in_range: int
    cuts: KeyCuts = KeyCuts()
    side: tuple[LakeColumn, ...] = ()

    @property
    def chunks(self) -> int:
        """Return the number of chunks of all ranges."""
        return self.in_range * self.cuts.ranges

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return the key's columns; empty for a table without a key."""
        return tuple(self.schema.column(name) for name in self.schema.key)

    def _chunked(self) -> Sequence[Column]:
        return self.key_columns or self.schema.mirrored

    def server_text(self, columns: Iterable[Column]) -> str:
        """Return the server's SQL of a text of a row's values in these columns."""
        return _joined(server_value(column) for column in columns)

    def lake_text(self, columns: Iterable[Column]) -> str:
        """Return the lake's SQL of the same text as ``server_text``."""
        return _joined(self.lake_value(column) for column in columns)

    @property
    def server_key(self) -> str:
        """Return the server's SQL of the key's text; of the whole row's without a key."""
        return self.server_text(self._chunked())

    @property
    def lake_key(self) -> str:
        """Return the lake's SQL of the same text as ``server_key``."""
        return self.lake_text(self._chunked())

    @property
    def _server_place(self) -> str:
        return f"CRC32({self.server_key}) % {self.in_range}"

    @property
    def _lake_place(self) -> str:
        return f"CRC32(CAST({self.lake_key} AS BINARY)) % {self.in_range}"

    def server_chunk(self, range_number: int) -> str:
        """Return the server's SQL of the chunk's number of a row in a range."""
        return f"{range_number * self.in_range} + {self._server_place}"

    @property
    def lake_chunk(self) -> str:
        """Return the lake's SQL of the number of a row's chunk."""
        return f"{self.cuts.number(in_lake)} * {self.in_range} + {self._lake_place}"

    def server_range(self, range_number: int) -> str:
        """Return the server's SQL that is true in a range."""
        return self.cuts.within(range_number, on_server)

    @property
    def server_rows(self) -> str:
        """Return the server's SQL that is true for the rows that the lake has."""
        return server_condition(self.schema) or "TRUE"

    def server_where(self, chunks: Collection[int]) -> str:
        """Return the server's SQL that is true in some chunks."""
        return self._where(chunks, self._server_place, on_server)

    def lake_where(self, chunks: Collection[int]) -> str:
        """Return Spark SQL that is true in some chunks."""
        return self._where(chunks, self._lake_place, in_lake)

    def _where(self, chunks: Collection[int], place: str, name_of: NameOf) -> str:
        by_range = groupby(sorted(chunks), lambda chunk: chunk // self.in_range)
        return " OR ".join(
            f"({self.cuts.within(number, name_of)}"
            f" AND {place} IN ({', '.join(str(chunk % self.in_range) for chunk in some)}))"
            for number, some in by_range
        )

    @property
    def server_hash(self) -> str:
        """Return the server's SQL of a row's hash, 64 hexadecimal digits."""
        return f"SHA2({self.server_text(self.schema.mirrored)}, 256)"

    @property
    def lake_hash(self) -> str:
        """Return the lake's SQL of the same hash as ``server_hash``."""
        return f"SHA2(CAST({self.lake_text(self.schema.mirrored)} AS BINARY), 256)"

    def lake_value(self, column: Column) -> str:
        """Return the lake's SQL of a value's text, from a side column where that keeps an invalid value."""
        name = spark_quote(column.name)
        missing = "'N'"
        for side in self.side:
            if side.source == column:
                kept = spark_quote(side.name)
                if side.holds == "bytes":
                    kept = text_types.lake_bytes_text(column, kept)
                else:
                    kept = f"CONCAT({kept}, '{temporal_types.fraction_padding(column)}')"
                missing = f"COALESCE({kept}, 'N')"
        return f"IF({name} IS NULL, {missing}, COALESCE({datatypes.entry(column).lake_text(column)}, '?'))"


def server_value(column: Column) -> str:
    """Return SQL of a value's canonical text, never NULL; ``!`` if the server can't make it (max_allowed_packet)."""
    text = datatypes.entry(column).server_text(column)
    return f"IF({mysql_quote(column.served_name)} IS NULL, 'N', COALESCE({text}, '!'))"


def _joined(texts: Iterable[str]) -> str:
    return f"CONCAT_WS(',', {', '.join(texts)})"


def server_shown(column: Column) -> str:
    """Return the server's SQL that shows a key's value in messages."""
    name = mysql_quote(column.served_name)
    if datatypes.is_text(column):
        return f"LEFT(CONVERT({name} USING utf8mb4), {SHOWN_CHARACTERS})"
    if pa.types.is_binary(datatypes.arrow_type(column)):
        return f"CONCAT('0x', HEX(LEFT({name}, {SHOWN_CHARACTERS // 2})))"
    if datatypes.entry(column).longest_text is not None:
        return f"CAST({name} AS CHAR)"
    return datatypes.entry(column).server_text(column)


def lake_shown(column: Column) -> str:
    """Return Spark SQL that shows a key's value in messages."""
    name = spark_quote(column.name)
    if datatypes.is_text(column) or datatypes.entry(column).longest_text is not None:
        return f"LEFT({name}, {SHOWN_CHARACTERS})"
    if pa.types.is_binary(datatypes.arrow_type(column)):
        return f"CONCAT('0x', HEX(SUBSTRING({name}, 1, {SHOWN_CHARACTERS // 2})))"
    return datatypes.entry(column).lake_text(column)
