"""A SQL catalog of pyiceberg in a SQLite file: which metadata file is a table's newest, by the table's name.

A change is one transaction of SQLite. Nothing but the name and the address is written, and no file of a table is ever
touched: a change that fails leaves the catalog as it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from binlake.errors import LakeError
from binlake.iceberg.table_metadata import FOLDER, address_of, normal_address, path_at
from binlake.storage import files

_WAIT_SECONDS = 10
"""For how long another's change is waited for."""
_TABLES = """
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL,
    property_value VARCHAR(1000) NOT NULL, PRIMARY KEY (catalog_name, namespace, property_key));
"""
"""As pyiceberg makes them. A file that it made before its format 1 has no iceberg_type, for which NULL is read."""


@dataclass(frozen=True, order=True)
class CatalogName:
    """A table's name in a catalog."""

    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.table}"


class SqliteCatalog:
    """The catalog of a name in a file. places: of the folders below which tables are ours."""

    def __init__(self, path: str, name: str, places: Iterable[str]) -> None:
        self._path, self._name = path, name
        self._ours = tuple(f"{normal_address(address_of(place))}/" for place in places)

    def entries(self) -> dict[CatalogName, str]:
        """Return the addresses of our tables' metadata files by their names in the catalog. Raises LakeError."""
        with self._changing() as connection:
            rows = connection.execute(
                "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?",
                (self._name,),
            )
            return {CatalogName(space, table): at for space, table, at in rows if self._is_ours(at)}

    def put(self, tables: Mapping[CatalogName, str], *, new: bool = True) -> list[str]:
        """Let names refer to metadata files; return why not, for each whose name is another's. new: also names that
        aren't there. Raises LakeError."""
        with self._changing() as connection:
            return [why for name, address in tables.items() if (why := self._put(connection, name, address, new=new))]

    def _put(self, connection: sqlite3.Connection, name: CatalogName, address: str, *, new: bool) -> str:
        found = connection.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"
            " AND table_name = ?",
            (self._name, name.namespace, name.table),
        ).fetchone()
        if found is None and not new:
            return ""
        if found is None:
            connection.execute(
                "INSERT OR IGNORE INTO iceberg_namespace_properties VALUES (?, ?, 'exists', 'true')",
                (self._name, name.namespace),
            )
            connection.execute(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)"
                " VALUES (?, ?, ?, ?)",
                (self._name, name.namespace, name.table, address),
            )
            return ""
        before = found[0]
        at, new_at = normal_address(before or ""), normal_address(address)
        if at == new_at:
            return ""
        is_of_table = self._is_ours(before) and at.rpartition("/")[0] == new_at.rpartition("/")[0]
        if not is_of_table and not (self._is_ours(before) and not files.exists(path_at(at))):
            return f"{name} is another's table, at {before}"
        connection.execute(
            "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? WHERE catalog_name = ?"
            " AND table_namespace = ? AND table_name = ?",
            (address, before, self._name, name.namespace, name.table),
        )
        return ""

    def drop(self, tables: Mapping[CatalogName, str]) -> None:
        """Remove names that still refer to these metadata files. Raises LakeError."""
        with self._changing() as connection:
            for name, address in tables.items():
                connection.execute(
                    "DELETE FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
                    " AND metadata_location = ?",
                    (self._name, name.namespace, name.table, address),
                )

    def _is_ours(self, address: str | None) -> bool:
        at = normal_address(address or "")
        return at.startswith(self._ours) and f"/{FOLDER}/" in at

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Open the file, and change it as a whole. Raises LakeError."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)) as connection:
                connection.executescript(_TABLES)
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise LakeError(
                f"the catalog {self._name} in {self._path} can't be written: {error}",
                remedy="see that its folder is there and this account may write it",
            ) from error
