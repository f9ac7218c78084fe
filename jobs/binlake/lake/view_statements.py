"""``CREATE VIEW`` statements for tables of the lake at one version, in the SQL of its readers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from binlake.errors import UsageError
from binlake.names import ansi_quote, ansi_string, plain_name, spark_quote

if TYPE_CHECKING:
    from binlake.lake.table_at import TableAt

DIALECTS = ("spark", "databricks", "duckdb", "trino")
DATABASE = "{database}__at_{version}"
"""The name of the views' database, unless another is asked for."""


@dataclass(frozen=True)
class TableView:
    """A view's name, and the table that it shows."""

    database: str
    name: str
    table: TableAt


def named_views(tables: Iterable[TableAt], version: str, database: str = DATABASE) -> list[TableView]:
    """Return a view of each table.

    version: the version's name or number. database: a pattern of the views' databases with ``{database}`` and
    ``{version}``. Names have lower-case letters, digits and ``_``, as Spark's and a metastore's must. Raises UsageError
    where two views would have one name, or for a wrong pattern.
    """
    by_name: dict[tuple[str, str], list[TableView]] = defaultdict(list)
    for table in tables:
        view = TableView(_database(database, table.name.database, version), plain_name(table.name.table), table)
        by_name[view.database, view.name].append(view)
    for (schema, name), same in by_name.items():
        if len(same) > 1:
            raise UsageError(
                f"{schema}.{name} would be {' and '.join(str(view.table.name) for view in same)}",
                remedy="print them one by one: --tables chooses some, --database names another database",
            )
    return [view for same in by_name.values() for view in same]


def _database(pattern: str, database: str, version: str) -> str:
    try:
        return plain_name(pattern.format(database=database, version=version))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise UsageError(
            f"--database {pattern!r} isn't a pattern", remedy=f"it may have {{database}} and {{version}}: {DATABASE}"
        ) from error


def statements(dialect: str, shown: Sequence[TableView]) -> list[str]:
    """Return the statements that create views, with those that make their databases before."""
    return _STATEMENTS[dialect](shown)


def _databases(shown: Sequence[TableView]) -> list[str]:
    return sorted({view.database for view in shown})


def _spark(shown: Sequence[TableView]) -> list[str]:
    return _of_paths(shown, lambda path: path)


def _databricks(shown: Sequence[TableView]) -> list[str]:
    return _of_paths(shown, _amazon)


def _of_paths(shown: Sequence[TableView], address: Callable[[str], str]) -> list[str]:
    """Return statements in Spark's SQL."""
    return [f"CREATE DATABASE IF NOT EXISTS {spark_quote(name)}" for name in _databases(shown)] + [
        f"CREATE OR REPLACE VIEW {spark_quote(view.database)}.{spark_quote(view.name)} AS "
        f"{spark_select(address(view.table.path), view.table.version)}"
        for view in shown
    ]


def spark_select(path: str, version: int) -> str:
    """Return Spark's query for a Delta table at a version."""
    return f"SELECT * FROM delta.{spark_quote(path)} VERSION AS OF {version}"


def duckdb_scan(path: str, version: int) -> str:
    """Return DuckDB's expression for a Delta table at a version.

    A folder whose name isn't ASCII is written as a URL: DuckDB 1.5 looks for its data files in the folder above.
    """
    return f"delta_scan({_duckdb_place(path)}, version => {version})"


def newest_duckdb_scan(path: str) -> str:
    """Return DuckDB's expression for a Delta table at its newest version."""
    return f"delta_scan({_duckdb_place(path)})"


def _duckdb_place(path: str) -> str:
    return ansi_string(f"file://{quote(path)}" if "://" not in path and not path.isascii() else _amazon(path))


def _amazon(path: str) -> str:
    """Return a path with ``s3://`` in the place of ``s3a://``, which Hadoop alone uses."""
    return re.sub("^s3a://", "s3://", path)


def _duckdb(shown: Sequence[TableView]) -> list[str]:
    return [
        "LOAD delta",
        *(f"CREATE SCHEMA IF NOT EXISTS {ansi_quote(name)}" for name in _databases(shown)),
        *(
            f"CREATE OR REPLACE VIEW {ansi_quote(view.database)}.{ansi_quote(view.name)} AS SELECT * FROM "
            f"{duckdb_scan(view.table.path, view.table.version)}"
            for view in shown
        ),
    ]


def _trino(shown: Sequence[TableView]) -> list[str]:
    """Return statements for a catalog ``delta`` of the Delta Lake connector, in which the tables have the names that
    ``binlake register`` gives them by default."""
    return [f"CREATE SCHEMA IF NOT EXISTS delta.{ansi_quote(name)}" for name in _databases(shown)] + [
        f"CREATE OR REPLACE VIEW delta.{ansi_quote(view.database)}.{ansi_quote(view.name)} AS SELECT * FROM "
        f"delta.{ansi_quote(plain_name(view.table.name.database))}.{ansi_quote(plain_name(view.table.name.table))} "
        f"FOR VERSION AS OF {view.table.version}"
        for view in shown
    ]


_STATEMENTS: dict[str, Callable[[Sequence[TableView]], list[str]]] = {
    "spark": _spark,
    "databricks": _databricks,
    "duckdb": _duckdb,
    "trino": _trino,
}
