"""Iceberg tables as readers of others than binlake see them; those that aren't installed are left out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from binlake.delta import opened_tables
from binlake.iceberg import table_metadata
from binlake.iceberg.snapshot_differences import differences
from binlake.names import ansi_string

Rows = list[dict[str, Any]]
IcebergReader = Callable[[str, int], Rows]
"""Reads a snapshot of the table at a path."""


def metadata_file(path: str) -> str:
    metadata = table_metadata.newest(path)
    assert metadata is not None
    return f"{metadata.folder}/v{metadata.number}.metadata.json"


def ordered(table: pa.Table) -> Rows:
    return sorted(table.to_pylist(), key=repr)


@cache
def duckdb_connection() -> Any:
    import duckdb

    from binlake.lake.duckdb_views import load_extension

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for extension in ("avro", "iceberg", "delta"):
        load_extension(connection, extension)
    return connection


def by_duckdb(path: str, snapshot: int) -> Rows:
    return newest_by_duckdb(metadata_file(path), f", snapshot_from_id => {snapshot}")


def newest_by_duckdb(file: str, of_snapshot: str = "") -> Rows:
    query = f"FROM iceberg_scan({ansi_string(file)}{of_snapshot})"
    return ordered(pa.table(duckdb_connection().execute(query).arrow()))


def by_delta_extension(path: str) -> Rows:
    """The rows of a Delta table by DuckDB, where its extension is installed."""
    return ordered(pa.table(duckdb_connection().execute(f"FROM delta_scan({ansi_string(path)})").arrow()))


def by_pyiceberg(path: str, snapshot: int) -> Rows:
    return newest_by_pyiceberg(metadata_file(path), snapshot)


def newest_by_pyiceberg(file: str, snapshot: int | None = None) -> Rows:
    from pyiceberg.table import StaticTable

    return ordered(StaticTable.from_metadata(file).scan(snapshot_id=snapshot).to_arrow())


def by_polars(path: str, snapshot: int) -> Rows:
    return newest_by_polars(metadata_file(path), snapshot)


def newest_by_polars(file: str, snapshot: int | None = None) -> Rows:
    import polars

    scanned = polars.scan_iceberg(file, snapshot_id=snapshot, reader_override="native")
    return ordered(scanned.collect().to_arrow())


_ASKED: dict[str, tuple[IcebergReader, Callable[[str], Rows], str]] = {
    "DuckDB": (by_duckdb, newest_by_duckdb, "duckdb_extension_iceberg"),
    "pyiceberg": (by_pyiceberg, newest_by_pyiceberg, "pyiceberg"),
    "polars": (by_polars, newest_by_polars, "pyiceberg"),
}
_THERE = {name: each for name, each in _ASKED.items() if importlib.util.find_spec(each[2])}
READERS = {name: read for name, (read, _, _) in _THERE.items()}
NEWEST_READERS = {name: read for name, (_, read, _) in _THERE.items()}
"""Read what a file of metadata says is newest."""


def by_delta(path: str, version: int | None = None) -> Rows:
    """The rows of a Delta table."""
    table = DeltaTable(path, version=version)
    if not table.file_uris():
        return []
    return ordered(pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()))


def assert_same(path: str) -> None:
    """Each reader of Iceberg sees the newest version as Delta's readers do."""
    version = opened_tables.opened(path).version()
    metadata = table_metadata.newest(path)
    assert metadata is not None
    assert metadata.delta_version == version
    assert differences(path) == []
    wanted = by_delta(path)
    for name, read in READERS.items():
        assert read(path, version + 1) == wanted, f"{name} at version {version}"
