"""Row hashes computed by the server itself: no row leaves it, except the keys of differing rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from binlake.names import mysql_string
from binlake.schema.table import INTEGERS, TableName
from binlake.schema.types.datatype import on_server
from binlake.source.catalog import SourceTable
from binlake.source.server import Source
from binlake.verify.hashing.hashes import Chunks, ChunkSum, KeyCuts, TableHashes, server_shown, server_value

ROWS_PER_RANGE = 500_000
MOST_RANGES = 64


@dataclass(frozen=True)
class KeyedHash:
    """A row: its key's canonical text (empty without a key), its hash, and its key's values as shown in messages."""

    key: str
    row_hash: str
    shown: tuple[str, ...] = field(compare=False)


def cuts(source: Source, table: SourceTable) -> KeyCuts:
    """Return where a large table is cut by its key's first column, so that views work in parallel and differences are
    looked for in a part of it. Another table isn't cut, nor a partitioned one: see ``jdbc.as_unpruned``."""
    name, schema, rows = table.name, table.schema, table.rows
    if table.partitions:
        return KeyCuts()
    wanted = min(MOST_RANGES, rows // ROWS_PER_RANGE)
    if wanted < 2 or not schema.key or schema.column(schema.key[0]).type not in INTEGERS:
        return KeyCuts()
    column = schema.column(schema.key[0])
    first = on_server(column)
    ends = source.query(f"SELECT MIN({first}) AS low, MAX({first}) AS high FROM {name.quoted}")[0]
    if ends["low"] is None:
        return KeyCuts()
    low, high = int(ends["low"]), int(ends["high"])
    return KeyCuts(column, tuple(sorted({low + (high - low) * step // wanted for step in range(1, wanted)})))


def aggregate(source: Source, name: TableName, hashes: TableHashes, range_number: int = 0) -> Chunks:
    """Return the rows and the sum of hashes of each chunk of a range."""
    rows = source.query(
        f"SELECT {hashes.server_chunk(range_number)} AS chunk, COUNT(*) AS n,"
        f" SUM(CAST(CONV(LEFT({hashes.server_hash}, 16), 16, 10) AS UNSIGNED)) AS total"
        f" FROM {name.quoted} WHERE ({hashes.server_range(range_number)}) AND {hashes.server_rows} GROUP BY 1"
    )
    return {int(row["chunk"]): ChunkSum(int(row["n"]), int(row["total"])) for row in rows}


def keyed_hashes(source: Source, name: TableName, hashes: TableHashes, chunks: Collection[int]) -> list[KeyedHash]:
    """Return every row of the given chunks."""
    shown = [f"{server_shown(column)} AS k{index}" for index, column in enumerate(hashes.key_columns)]
    key = hashes.server_key if hashes.key_columns else "''"
    selected = ", ".join([f"{key} AS binlake_key", f"{hashes.server_hash} AS binlake_hash", *shown])
    rows = source.query(
        f"SELECT {selected} FROM {name.quoted} WHERE ({hashes.server_where(chunks)}) AND {hashes.server_rows}"
    )
    return [
        KeyedHash(row["binlake_key"], row["binlake_hash"], tuple(str(row[f"k{index}"]) for index in range(len(shown))))
        for row in rows
    ]


def values(
    source: Source, name: TableName, hashes: TableHashes, chunks: Collection[int], keys: Collection[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield (the key's text, the canonical text of every column) of the rows with these keys."""
    columns = [f"{server_value(column)} AS c{index}" for index, column in enumerate(hashes.schema.mirrored)]
    listed = ", ".join(mysql_string(key) for key in keys)
    rows = source.query(
        f"SELECT {hashes.server_key} AS binlake_key, {', '.join(columns)} FROM {name.quoted}"
        f" WHERE ({hashes.server_where(chunks)}) AND {hashes.server_rows} AND {hashes.server_key} IN ({listed})"
    )
    for row in rows:
        yield row["binlake_key"], [row[f"c{index}"] for index in range(len(columns))]
