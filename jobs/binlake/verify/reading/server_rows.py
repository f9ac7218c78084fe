"""A table's rows as the server has them in a read view, with the lake's columns and values."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pymysql

from binlake.errors import ConnectionFailed, SourceError
from binlake.schema.invalid import KEEP_ALL
from binlake.snapshot import cutting, jdbc, restore, resultset
from binlake.snapshot.restore_arrow import NoText, NoValue, Restored
from binlake.source.catalog import SourceTable, read_partitions
from binlake.source.connection import translate
from binlake.source.server import Source
from binlake.verify.pace import Pace
from binlake.verify.reading.key_cells import KeyCells
from binlake.verify.reading.lake_rows import Unreadable
from binlake.verify.reading.row_checksums import Flags

CHUNKS_PER_QUERY = 5
_MOST_RANGES = 100
"""The most ranges of keys in a query's condition; beyond them a partitioned table is read as a whole."""
_FEWEST_ROWS = 200_000
"""The fewest rows for which a table without ranges is read by several connections."""


@dataclass(frozen=True)
class ServerPart:
    """Rows that are read from the server by one query. chunks: which are in it."""

    chunks: slice
    future: Future[None]


def parts_without_ranges(table: SourceTable, cells: KeyCells, connections: int) -> int:
    """Return how many parts the server is to find for a table whose chunks are no ranges; 1 where it needn't."""
    if not table.has_read_views:
        return 1
    if table.partitions:
        return max(1, min(connections, table.rows // _FEWEST_ROWS, len(table.partitions)))
    if cells.edges is not None or not table.schema.key:
        return 1
    return max(1, min(connections, table.rows // _FEWEST_ROWS))


def of_parts(source: Source, table: SourceTable, parts: int) -> list[str]:
    """Return queries that together read each row once, cut where the server finds bounds, or into whole partitions.
    source: has a read view by now, so that its rows are in the partitions that the table has now. Raises SourceError.
    """
    if table.partitions:
        there = [partition.name for partition in read_partitions(source, [table.name]).get(table.name, ())]
        shares = [there[first::parts] for first in range(min(parts, len(there)))] or [[]]
        return [jdbc.chunk_query(table.name, table.schema, None, None, partitions=share) for share in shares]
    inner = cutting.cut(source, table.name, table.schema, -(-table.rows // parts), parts)
    return [jdbc.chunk_query(table.name, table.schema, *ends) for ends in pairwise([None, *inner, None])]


def of_wanted(
    table: SourceTable, cells: KeyCells, wanted: Flags, each: int = CHUNKS_PER_QUERY, *, beyond: bool = False
) -> list[tuple[slice, str]]:
    """Return queries that together read each row of wanted chunks once, each with the chunks that it reads: some that
    follow each other, ``each`` at most, where chunks are ranges, else all. Of a partitioned table one query reads all.
    wanted: a flag for each chunk. beyond: of the rows that a snapshot doesn't copy, see ``jdbc.between``."""
    if cells.edges is None:
        whole = slice(0, cells.chunks), jdbc.chunk_query(table.name, table.schema, None, None, beyond=beyond)
        return [whole] if wanted.any() else []
    if table.partitions:
        return _unpruned(table, cells, wanted, beyond=beyond)
    bounds, queries = cells.bounds(), []
    first = 0
    while first < len(bounds):
        behind = first
        while behind < len(bounds) and wanted[behind] and behind - first < each:
            behind += 1
        if behind > first:
            ends = bounds[first][0], bounds[behind - 1][1]
            queries.append((slice(first, behind), jdbc.chunk_query(table.name, table.schema, *ends, beyond=beyond)))
        first = max(behind, first + 1)
    return queries


def _unpruned(table: SourceTable, cells: KeyCells, wanted: Flags, *, beyond: bool) -> list[tuple[slice, str]]:
    """Return the query of a partitioned table's rows in wanted chunks, wherever they are; none if no chunk is."""
    if not wanted.any():
        return []
    edges = np.flatnonzero(np.diff(np.concatenate(([0], wanted.astype(np.int8), [0]))))
    bounds = cells.bounds()
    ranges = [(bounds[first][0], bounds[behind - 1][1]) for first, behind in edges.reshape(-1, 2).tolist()]
    conditions = [jdbc.within(table.schema, *ends) for ends in ranges]
    whole = jdbc.chunk_query(table.name, table.schema, None, None, beyond=beyond)
    if table.schema.without_rows or len(ranges) > _MOST_RANGES or not all(conditions):
        return [(slice(0, cells.chunks), whole)]
    every = replace(table.schema, where="", snapshot_where="")
    chosen = jdbc.chunk_query(table.name, every, None, None)
    chosen += jdbc.in_ranges(table.schema, conditions, beyond=beyond)
    return [(slice(0, cells.chunks), chosen)]


def read(source: Source, table: SourceTable, query: str, pace: Pace) -> Iterator[pa.RecordBatch]:
    """Yield a query's rows, with the lake's columns and all side columns.

    Raises SourceError, and Unreadable for rows whose values can't be restored here.
    """
    restored = Restored(table.schema, KEEP_ALL)
    try:
        for columns in resultset.answer(source.connection, query, len(table.schema.mirrored)):
            batch = restored.batch(columns)
            yield batch
            pace.wait(batch.num_rows)
    except resultset.Refused as error:
        refused = pymysql.err.OperationalError(error.code, error.text)
        raise translate(refused, source.endpoint) from refused
    except pymysql.err.MySQLError as error:
        raise translate(error, source.endpoint) from error
    except (resultset.Truncated, OSError) as error:
        raise ConnectionFailed(f"{source.endpoint.address}: {error}", remedy="run verify again") from error
    except NoText as error:
        column = table.schema.mirrored[error.number]
        what = "a value" if column.lake_type else "text"
        raise Unreadable(f"column {column.name!r} holds {what} that {restore.why_no_text(column)}") from None
    except NoValue as error:
        raise SourceError(f"{table.name}: {error}", remedy="run binlake doctor") from None
