"""Delta tables by name, in one of Spark's catalogs: what is registered there is a place, never rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from binlake.config import NamedCatalog
from binlake.config.catalogs_config import HiveCatalogConfig
from binlake.errors import LakeError
from binlake.names import spark_quote, spark_string
from binlake.records.registrations import Registration
from binlake.storage import storage_errors, stores


def session_settings(catalogs: Sequence[NamedCatalog]) -> Mapping[str, str]:
    """Return the settings of a session that reaches the catalogs; a metastore is one of Hive."""
    metastore = next((entry.metastore for entry in catalogs if isinstance(entry, HiveCatalogConfig)), None)
    if metastore is None:
        return {}
    if "://" in metastore:
        return {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": metastore}
    folder = Path(metastore).expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore_db;create=true",
    }


_LOCATION = re.compile("^Location: (.*)$", re.MULTILINE)


class NamedTables:
    """The Delta tables of one catalog."""

    def __init__(self, session: SparkSession, catalog: NamedCatalog) -> None:
        self._session, self._catalog = session, catalog

    def put(self, table: Registration) -> str | None:
        """Register a table; return why not, where the name is another's. Raises LakeError."""
        try:
            self._session.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._quoted(table.database)}")
            if (taken := self._location(table)) is None:
                self._session.sql(
                    f"CREATE TABLE {self._quoted(table.database, table.name)} USING delta"
                    f" LOCATION {spark_string(table.path)}"
                )
                return None
        except PySparkException as error:
            raise self._failed(table, error) from error
        return None if _same(taken, table.path) else f"{table} is another's table, at {taken}"

    def drop(self, table: Registration) -> None:
        """Drop the name, not its table, and only if it still refers to the table that it was given to. Raises
        LakeError."""
        try:
            if (location := self._location(table)) is not None and _same(location, table.path):
                self._session.sql(f"DROP TABLE {self._quoted(table.database, table.name)}")
        except PySparkException as error:
            raise self._failed(table, error) from error

    def put_view(self, database: str, name: str, select: str) -> str | None:
        """Create a view; return why not, where the name is another's. Raises LakeError."""
        view = f"{database}.{name}"
        try:
            self._session.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._quoted(database)}")
            if (taken := self._view_text(database, name)) is None:
                self._session.sql(f"CREATE VIEW {self._quoted(database, name)} AS {select}")
                return None
        except PySparkException as error:
            raise self._failed(view, error) from error
        return None if taken == select else f"{view} is another's"

    def drop_views(self, database: str, selects: Mapping[str, str]) -> None:
        """Drop views, by name, that still are what they were made of; and the database, if nothing else is in it.
        Raises LakeError."""
        try:
            for name, select in selects.items():
                if self._view_text(database, name) == select:
                    self._session.sql(f"DROP VIEW {self._quoted(database, name)}")
            there = self._session.catalog.databaseExists(self._quoted(database))
            if there and not self._shown(f"SHOW TABLES IN {self._quoted(database)}"):
                self._session.sql(f"DROP NAMESPACE {self._quoted(database)}")
        except PySparkException as error:
            raise self._failed(database, error) from error

    def _view_text(self, database: str, name: str) -> str | None:
        """Return the query of a view, empty for a table; None where nothing has the name."""
        quoted = self._quoted(database)
        if not self._session.catalog.databaseExists(quoted):
            return None
        if not self._shown(f"SHOW TABLES IN {quoted} LIKE {spark_string(name)}"):
            return None
        described = self._session.sql(f"DESCRIBE TABLE EXTENDED {self._quoted(database, name)}").collect()
        return next((row["data_type"] for row in described if row["col_name"] == "View Text"), "")

    def _location(self, table: Registration) -> str | None:
        """Return where the table of a name is; None where nothing has the name.

        SHOW is asked: DESCRIBE and tableExists fail for a Delta table whose folder is gone.
        """
        database = self._quoted(table.database)
        if not self._session.catalog.databaseExists(database):
            return None
        shown = self._shown(f"SHOW TABLE EXTENDED IN {database} LIKE {spark_string(table.name)}")
        if not shown:
            return None
        located = _LOCATION.search(shown[0]["information"])
        return located[1] if located else ""

    def _shown(self, statement: str) -> list[Row]:
        """Return the rows of a SHOW statement without the session's temporary views, which Spark lists in every
        database."""
        return [row for row in self._session.sql(statement).collect() if not row["isTemporary"]]

    def _quoted(self, *names: str) -> str:
        return ".".join(map(spark_quote, (self._catalog.name, *names)))

    def _failed(self, table: Registration | str, error: PySparkException) -> LakeError:
        return LakeError(
            f"the catalog {self._catalog.identity} refuses {table}: {storage_errors.cause_of(error)}",
            remedy="see that it is up and takes this account's tables, then run binlake register",
        )


def _same(location: str, path: str) -> bool:
    return _bare(location) == _bare(path)


def _bare(location: str) -> str:
    scheme, separator, rest = location.partition(":/")
    if not separator or scheme == "file":
        return "/" + (rest if separator else location).lstrip("/")
    return stores.canonical(location)
