"""A lake as its readers see it: all tables at one batch. Needs no server, no JVM and no Airflow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex

import pyarrow as pa

from binlake import names
from binlake.config import PipelineConfig, load
from binlake.delta.delta_schema import COMMENT
from binlake.errors import UsageError
from binlake.lake.lake_versions import LakeVersion, lake_versions, version_at
from binlake.lake.queried_lake import LakeQueries
from binlake.lake.sql_session import SqlSession
from binlake.lake.table_at import TableAt, unknown_table
from binlake.moment import parse_moment
from binlake.names import spark_quote
from binlake.records.thinning import count_thinned
from binlake.schema.table import TableName
from binlake.storage import files, stores
from binlake.store.metadata import Metadata

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    from pyspark.sql import SparkSession

    from binlake.lake.dictionary import DictionaryTable


def open_lake(config: str | os.PathLike[str] | PipelineConfig, source: str | None = None) -> Lake:
    """Open a lake at its newest batch.

    config: a source's YAML, or the lake's path: a folder, s3://, abfss:// or hdfs://. The account comes from the
    environment, or from the YAML's ``lake.connection``. source: which of the sources below a lake's path; not needed
    where there is one. Raises UsageError, ConfigurationError, LakeError.
    """
    return place_of(config, source).at()


@dataclass(frozen=True)
class LakePlace:
    """Where a source's lake is.

    root: the source's folder. history_hours: as the YAML's ``maintain`` promises them; None where it isn't known.
    """

    root: str
    history_hours: float | None = None

    @property
    def metadata(self) -> Metadata:
        """Return the lake's metadata."""
        return Metadata(f"{self.root}/_binlake")

    def versions(self) -> Sequence[LakeVersion]:
        """Return the lake's versions, oldest first, with those that can't be read. Raises LakeError."""
        return lake_versions(self.metadata, self.history_hours, looks=True)

    def at(self, *, batch: int | None = None, time: datetime | None = None, name: str | None = None) -> Lake:
        """Return the lake at a version, by default at the newest. Raises UsageError, LakeError."""
        versions = lake_versions(self.metadata, self.history_hours)
        version = version_at(versions, batch=batch, time=time, name=name).looked_at(self.root)
        version.refuse_unreadable(versions)
        return Lake(self, version)


class Lake:
    """All tables of a source at one batch, and so at one position of the server's log.

    Tables are named as on the server, ``database.table``.
    """

    def __init__(self, place: LakePlace, version: LakeVersion) -> None:
        """Open a version. Raises UsageError where it can't be read any more."""
        version.refuse_unreadable()
        self._place = place
        self.version = version
        self._tables = {
            name: TableAt.of(place.root, table.name, table.delta_version, table.folder)
            for name, table in version.contents.items()
        }

    def __repr__(self) -> str:
        return f"<{self._place.root} at batch {self.batch}, {len(self._tables)} tables>"

    # versions --------------------------------------------------------------------------------------------------------
    def versions(self) -> Sequence[LakeVersion]:
        """Return the lake's versions, oldest first, with those that can't be read."""
        return self._place.versions()

    def known_versions(self) -> Sequence[LakeVersion]:
        """Return the same, without a look into the tables' logs for what others removed."""
        return lake_versions(self.metadata, self._place.history_hours)

    @property
    def root(self) -> str:
        """Return the source's folder."""
        return self._place.root

    @property
    def metadata(self) -> Metadata:
        """Return the lake's metadata."""
        return self._place.metadata

    def count_thinned(self, versions: Sequence[LakeVersion]) -> int:
        """Return how many batches between these versions are none any more: of those of an hour the newest stays."""
        return count_thinned(self._place.metadata, [version.batch for version in versions])

    def at(
        self, *, batch: SupportsIndex | None = None, time: date | str | None = None, name: str | None = None
    ) -> Lake:
        """Return the lake at a batch, at the last one committed by a time, or at a pinned one; by default at the
        newest there is by now.

        batch: a whole number, also one of numpy's. time: a datetime, a text, or a date for its midnight; without a
        zone it is UTC. Raises UsageError for a version that isn't there or can't be read any more.
        """
        return self._place.at(batch=_batch_number(batch), time=_moment(time), name=name)

    @property
    def batch(self) -> int:
        """Return the number of the batch at which the lake is open."""
        return self.version.batch

    @property
    def position(self) -> str:
        """Return the place of the server's log at which all tables are."""
        return self.version.position

    @property
    def committed(self) -> datetime:
        """Return the time up to which the server's commits are in this version."""
        return self.version.committed

    @property
    def tables(self) -> Mapping[str, int]:
        """Return the Delta version of each table, by ``database.table``."""
        return {name: table.version for name, table in self._tables.items()}

    # rows ------------------------------------------------------------------------------------------------------------
    def arrow(
        self, table: str, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.Table:
        """Return a table's rows.

        columns: their names, at least one; all by default. where: a condition in SQL, such as ``"status = 'paid'"``;
        files and row groups are skipped whose statistics say that none of their rows meets it. limit: the most rows.
        Raises UsageError, LakeError.
        """
        named = self._table(table)
        if columns is not None and not columns:
            raise UsageError("columns names no column", remedy="name some, or leave it out for all")
        chosen = ", ".join(map(names.ansi_quote, columns)) if columns else "*"
        condition = f" WHERE ({where}\n)" if where else ""  # on a line of its own, as where may end in a comment
        most = f" LIMIT {limit:d}" if limit is not None else ""
        return SqlSession([replace(named, name=_ROWS)]).table(f"SELECT {chosen} FROM {_ROWS}{condition}{most}")

    def pandas(
        self, table: str, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pandas.DataFrame:
        """Return a table's rows for pandas, in Arrow's types: NULL stays NULL, whole numbers and decimals stay exact.
        Arguments and errors as of ``arrow``."""
        import pandas

        rows = self.arrow(table, columns=columns, where=where, limit=limit)
        frame: pandas.DataFrame = rows.to_pandas(types_mapper=pandas.ArrowDtype)
        return frame

    def polars(
        self, table: str, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> polars.DataFrame:
        """Return a table's rows for polars, which the extra ``polars`` brings. Arguments and errors as of ``arrow``."""
        try:
            import polars
        except ImportError as error:
            raise UsageError(f"polars isn't installed: {error}", remedy="pip install 'binlake[polars]'") from error
        frame = polars.from_arrow(self.arrow(table, columns=columns, where=where, limit=limit))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Return the names and Delta types of a table's columns. Raises UsageError, LakeError."""
        fields = self._table(table).opened().schema().fields
        return [(field.name, str(getattr(field.type, "type", field.type))) for field in fields]

    def comments(self, table: str) -> dict[str, str]:
        """Return the server's comments of a table's columns, by name. Raises UsageError, LakeError."""
        fields = self._table(table).opened().schema().fields
        return {field.name: str(field.metadata[COMMENT]) for field in fields if COMMENT in field.metadata}

    # sessions --------------------------------------------------------------------------------------------------------
    def dictionary(self, *tables: str) -> list[DictionaryTable]:
        """Return what is known of tables: the server's types, keys and comments, and up to where they are verified.

        tables: as of ``duckdb``. Raises UsageError, LakeError.
        """
        return self._dictionary(self.chosen(tables))

    def described(self, table: str) -> DictionaryTable:
        """Return what is known of one table. Raises UsageError, LakeError."""
        return self._dictionary([self._table(table)])[0]

    def _dictionary(self, tables: Sequence[TableAt]) -> list[DictionaryTable]:
        from binlake.lake.dictionary import dictionary

        lives = {table.name: table.table_id for table in self.version.listed}
        return dictionary(self.metadata, tables, lives, self.batch)

    def sql(self, query: str) -> pa.Table:
        """Return the rows of a query over all tables, in DataFusion's SQL: ``SELECT … FROM shop.orders``. Raises
        UsageError, LakeError."""
        return self.session().table(query)

    def session(self) -> SqlSession:
        """Return a session for queries over all tables."""
        return SqlSession([*self._tables.values()], LakeQueries(self))

    def duckdb(self, *tables: str) -> duckdb.DuckDBPyConnection:
        """Return a new DuckDB connection in which tables are views: ``shop.orders``. The extra ``duckdb`` brings it.

        tables: patterns such as ``shop.*``; all tables by default, each of which takes some 15 ms. Those of databases
        that are called temp, system or memory, as DuckDB's own, are ``memory.temp.orders``. Raises UsageError,
        LakeError.
        """
        from binlake.lake.duckdb_views import connection_of

        return connection_of(self.chosen(tables))

    def spark(self, session: SparkSession, *tables: str) -> None:
        """Create or replace temporary views of tables in a Spark session, which needs Delta Lake and the lake's
        account.

        The name is one name in backquotes: ``SELECT … FROM `shop.orders` ``. tables: as of ``duckdb``.
        """
        create_views(session, self.chosen(tables))

    def chosen(self, patterns: Sequence[str] = ()) -> list[TableAt]:
        """Return the tables that match patterns, all by default, by name. Raises UsageError for a pattern that matches
        none."""
        asked = patterns or ("*.*",)
        keys = [(table.name.database, table.name.table) for table in self._tables.values()]
        for pattern in names.unmatched(patterns, keys):
            raise unknown_table(pattern, self._tables)
        return [
            table
            for _, table in sorted(self._tables.items())
            if names.matches_any(asked, table.name.database, table.name.table)
        ]

    def table_named(self, written: str) -> TableAt:
        """Return a table by its name as a query writes it. Raises UsageError."""
        return self._table(SqlSession([*self._tables.values()]).full_name(written))

    def _table(self, name: str) -> TableAt:
        if name in self._tables:
            return self._tables[name]
        if name in self.version.left_out:
            self.version.table(name)
        raise unknown_table(name, self._tables)


def _batch_number(batch: SupportsIndex | None) -> int | None:
    """Return a batch's number, also one of numpy's. Raises UsageError for what is no whole number."""
    try:
        return None if batch is None else index(batch)
    except TypeError:
        raise UsageError(f"batch={batch!r} is no whole number", remedy="write it as batch=7") from None


def _moment(time: date | str | None) -> datetime | None:
    """Return a time; a date is its midnight in UTC. Raises UsageError for what is no time."""
    if time is None or isinstance(time, datetime):
        return time
    if isinstance(time, date):
        return datetime(time.year, time.month, time.day, tzinfo=UTC)
    return parse_moment(str(time), "time")


_ROWS = TableName("lake", "rows")
"""The name of a table that is read alone, whatever its own is."""


def place_of(config: str | os.PathLike[str] | PipelineConfig, source: str | None = None) -> LakePlace:
    """Return where a lake is; arguments and errors as of ``open_lake``."""
    if not isinstance(config, PipelineConfig):
        path = os.fspath(config)
        if "://" in path or not (Path(path).is_file() or path.endswith((".yaml", ".yml"))):
            return LakePlace(_source_of(path, source))
        config = load(path)
    if source not in (None, config.source.name):
        raise UsageError(
            f"the YAML is of the source {config.source.name}, not of {source!r}",
            remedy="leave source out, or name the other one's YAML",
        )
    return LakePlace(config.root, config.maintain.history_hours)


def _source_of(path: str, source: str | None) -> str:
    """Return the folder of the source, or of the only one, in the lake at a path. Raises UsageError, LakeError."""
    lake = stores.canonical(path.rstrip("/")) if "://" in path else str(Path(path).expanduser().resolve())
    sources = [folder for folder in files.subfolders(lake) if files.exists(f"{lake}/{folder}/_binlake")]
    wanted = [folder for folder in sources if source in (None, folder)]
    if len(wanted) == 1:
        return f"{lake}/{wanted[0]}"
    if not sources:
        raise UsageError(f"there is no lake at {path}", remedy="give a source's YAML, or the lake.path in it")
    listed = ", ".join(sources)
    if source is None:
        raise UsageError(f"{path} has several sources", remedy=f"name one by source=: {listed}")
    raise UsageError(f"{path} has no source {source!r}", remedy=f"it has {listed}")


def create_views(session: SparkSession, tables: Sequence[TableAt]) -> None:
    """Create or replace a temporary view of each table.

    Spark's temporary views have no database, so the view's name is ``database.table`` as one name, to be put in
    backquotes: ``SELECT * FROM `shop.orders` ``.
    """
    for table in tables:
        frame = session.read.format("delta").option("versionAsOf", table.version).load(table.path)
        frame.createOrReplaceTempView(spark_quote(str(table.name)))
