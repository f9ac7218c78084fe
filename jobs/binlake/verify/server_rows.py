"""A table's rows as the server has them in a read view, with the lake's columns and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pymysql

from binlake.errors import ConnectionFailed, SourceError
from binlake.schema.invalid import KEEP_ALL
from binlake.snapshot import cutting, jdbc, resultset
from binlake.snapshot.restore_arrow import NoText, NoValue, Restored
from binlake.source.catalog import SourceTable
from binlake.source.connection import translate
from binlake.source.server import Source
from binlake.verify.key_cells import KeyCells
from binlake.verify.lake_rows import Unreadable
from binlake.verify.pace import Pace

_CHUNKS_PER_QUERY = 5
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


def of_all(table: SourceTable, cells: KeyCells) -> list[str]:
    """Return queries that together read each row once: some chunks each, where chunks are ranges."""
    if cells.edges is None:
        return [jdbc.chunk_query(table.name, table.schema, None, None)]
    chunks = cells.bounds()
    groups = [chunks[at : at + _CHUNKS_PER_QUERY] for at in range(0, len(chunks), _CHUNKS_PER_QUERY)]
    return [jdbc.chunk_query(table.name, table.schema, group[0][0], group[-1][1]) for group in groups]


def of_chunks(table: SourceTable, cells: KeyCells, numbers: Sequence[int]) -> list[str]:
    """Return the queries that read the rows of some chunks; more where chunks are no ranges."""
    if cells.edges is None:
        return [jdbc.chunk_query(table.name, table.schema, None, None)]
    chunks = cells.bounds()
    return [jdbc.chunk_query(table.name, table.schema, *chunks[number]) for number in numbers]


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
        column = table.schema.mirrored[error.number].name
        raise Unreadable(f"column {column!r} holds text that isn't valid in its character set") from None
    except NoValue as error:
        raise SourceError(f"{table.name}: {error}", remedy="run binlake doctor") from None
