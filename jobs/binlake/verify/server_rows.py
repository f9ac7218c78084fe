"""A table's rows as the server has them in a read view, with the lake's columns and values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pymysql

from binlake.errors import ConnectionFailed, SourceError
from binlake.schema.invalid import KEEP_ALL
from binlake.snapshot import cutting, jdbc, restore, resultset
from binlake.snapshot.restore_arrow import NoText, NoValue, Restored
from binlake.source.catalog import SourceTable
from binlake.source.connection import translate
from binlake.source.server import Source
from binlake.verify.key_cells import KeyCells
from binlake.verify.lake_rows import Unreadable
from binlake.verify.pace import Pace
from binlake.verify.row_checksums import Flags

CHUNKS_PER_QUERY = 5
_FEWEST_ROWS = 200_000
"""The fewest rows for which a table without ranges is read by several connections."""


def parts_without_ranges(table: SourceTable, cells: KeyCells, connections: int) -> int:
    """Return how many parts the server is to find for a table whose chunks are no ranges; 1 where it needn't."""
    if cells.edges is not None or not table.schema.key or not table.has_read_views:
        return 1
    return max(1, min(connections, table.rows // _FEWEST_ROWS))


def of_parts(source: Source, table: SourceTable, parts: int) -> list[str]:
    """Return queries that together read each row once, cut where the server finds bounds. Raises SourceError."""
    inner = cutting.cut(source, table.name, table.schema, -(-table.rows // parts), parts)
    return [jdbc.chunk_query(table.name, table.schema, *ends) for ends in pairwise([None, *inner, None])]


def of_wanted(
    table: SourceTable, cells: KeyCells, wanted: Flags, each: int = CHUNKS_PER_QUERY
) -> list[tuple[slice, str]]:
    """Return queries that together read each row of wanted chunks once, each with the chunks that it reads: some that
    follow each other, ``each`` at most, where chunks are ranges, else all. wanted: of each chunk, whether it is."""
    if cells.edges is None:
        whole = slice(0, cells.chunks), jdbc.chunk_query(table.name, table.schema, None, None)
        return [whole] if wanted.any() else []
    bounds, queries = cells.bounds(), []
    first = 0
    while first < len(bounds):
        behind = first
        while behind < len(bounds) and wanted[behind] and behind - first < each:
            behind += 1
        if behind > first:
            ends = bounds[first][0], bounds[behind - 1][1]
            queries.append((slice(first, behind), jdbc.chunk_query(table.name, table.schema, *ends)))
        first = max(behind, first + 1)
    return queries


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
        raise Unreadable(f"column {column.name!r} holds text that {restore.why_no_text(column)}") from None
    except NoValue as error:
        raise SourceError(f"{table.name}: {error}", remedy="run binlake doctor") from None
