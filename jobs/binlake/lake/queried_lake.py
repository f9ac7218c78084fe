"""Answers to a session's queries that its tables don't have: other versions, changes between two, and what is known of
tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from binlake.config.table_modes import beside_table
from binlake.errors import UsageError
from binlake.lake.lake_versions import LakeVersion, version_at
from binlake.lake.sql_session import BatchTable, SqlSession
from binlake.lake.table_at import TableAt
from binlake.lake.table_moments import AskedVersion
from binlake.names import ansi_quote
from binlake.schema.table import TableName, TableSchema
from binlake.store.metadata import Metadata

if TYPE_CHECKING:  # what few queries need isn't imported for the others
    from binlake.lake.dictionary import DictionaryTable

Relation = Callable[[BatchTable], str]


class LakeAtBatch(Protocol):
    """A lake at one batch, as ``opened_lake.Lake`` is. All methods raise UsageError, LakeError."""

    @property
    def batch(self) -> int:
        """Return the number of the batch."""

    @property
    def committed(self) -> datetime:
        """Return the time up to which the server's commits are in the lake."""

    @property
    def root(self) -> str:
        """Return the source's folder."""

    @property
    def metadata(self) -> Metadata:
        """Return the lake's metadata."""

    def known_versions(self) -> Sequence[LakeVersion]:
        """Return the lake's versions, oldest first, without a look into the tables' logs."""

    def at(self, *, batch: int) -> LakeAtBatch:
        """Return the lake at another batch."""

    def table_named(self, written: str) -> TableAt:
        """Return a table by its name as a query writes it."""

    def dictionary(self) -> list[DictionaryTable]:
        """Return what is known of all tables."""

    def described(self, table: str) -> DictionaryTable:
        """Return what is known of one table."""


class LakeQueries:
    """A lake as the queries of one session see it, beside its tables."""

    def __init__(self, lake: LakeAtBatch) -> None:
        self._lake = lake
        self._opened: dict[int, LakeAtBatch] = {lake.batch: lake}

    @cached_property
    def _versions(self) -> Sequence[LakeVersion]:
        return self._lake.known_versions()

    def _version(self, asked: AskedVersion) -> LakeVersion:
        return version_at(self._versions, batch=asked.batch, time=asked.time, name=asked.name)

    def _at(self, version: LakeVersion) -> LakeAtBatch:
        if version.batch not in self._opened:
            self._opened[version.batch] = self._lake.at(batch=version.batch)
        return self._opened[version.batch]

    def table_at(self, written: str, asked: AskedVersion) -> BatchTable:
        """Return a table, by its name as a query writes it, at a version. Raises UsageError, LakeError."""
        lake = self._at(self._version(asked))
        return BatchTable(lake.table_named(written), lake.batch)

    # changes ---------------------------------------------------------------------------------------------------------
    def changes(self, written: str, first: AskedVersion, last: AskedVersion, relation: Relation) -> str:
        """Return the query for what became of a table's rows between two versions: by both where they can be read, else
        by the table's log. Raises UsageError, LakeError."""
        from binlake.lake.row_changes import TableSide, changed_rows

        before, after = self._version(first), self._version(last)
        if before.batch > after.batch:
            raise UsageError(
                f"changes({written!r}, …) goes from batch {before.batch} back to {after.batch}",
                remedy=f"write the earlier batch first: changes('{written}', {after.batch}, {before.batch})",
            )
        new = self.table_at(written, last)
        try:
            old = self.table_at(str(new.table.name), first)
        except UsageError as error:
            if before.readable or before.looked_at(self._lake.root).readable:
                raise
            return self._by_log(new.table.name, before, after, relation, error)
        shapes = [self._shape(version, new.table.name) for version in (before, after)]
        former, latter = (TableSide(relation(at), _columns(at.table)) for at in (old, new))
        keys = {shape.key if shape else () for shape in shapes}
        key = keys.pop() if len(keys) == 1 else ()
        if not former.columns.keys() & latter.columns.keys() >= set(key):
            key = ()
        return changed_rows(former, latter, key, "versions")

    def _shape(self, version: LakeVersion, name: TableName) -> TableSchema | None:
        from binlake.records import ddl_history

        table = version.contents.get(str(name))
        if table is None:
            return None
        return ddl_history.schemas_now(self._lake.metadata, {table.table_id}, up_to=version.batch).get(table.table_id)

    def _by_log(
        self, name: TableName, before: LakeVersion, after: LakeVersion, relation: Relation, gone: UsageError
    ) -> str:
        """Return the query over the table's log. Raises the error of the version that is gone where the log doesn't
        have all."""
        from binlake.lake.row_changes import LOGGED, LoggedRows, changed_rows

        log_name = str(TableName(name.database, beside_table(name.table, "log")))
        lives = {version.contents[str(name)].table_id for version in (before, after) if str(name) in version.contents}
        shapes = [self._shape(version, name) for version in (before, after)]
        shape = shapes[0]
        is_whole = len(lives) == 1 and all(log_name in version.contents for version in (before, after))
        if not is_whole or shape is None or not shape.key or shape != shapes[1]:
            raise gone
        log = BatchTable(self._at(after).table_named(log_name), after.batch)
        columns = _columns(log.table)
        table = _columns(self._at(after).table_named(str(name)))
        if any(f"{which}_{column}" not in columns for which in ("before", "after") for column in table):
            raise gone
        counted = SqlSession([log.table]).table(
            f"SELECT DISTINCT operation FROM {_written(log.table.name)} "
            f"WHERE batch > {before.batch} AND batch <= {after.batch}"
        )
        if set(counted["operation"].to_pylist()) - LOGGED:
            raise gone
        rows = LoggedRows(relation(log), before.batch, after.batch, table, shape.key)
        return changed_rows(rows.side("before"), rows.side("after"), shape.key, "log")

    # tables ----------------------------------------------------------------------------------------------------------
    def information(self, name: str) -> pa.Table:
        """Return a table of information_schema. Raises LakeError."""
        from binlake.lake import dictionary

        known = self._lake.dictionary()
        if name == "columns":
            return dictionary.columns_table(known)
        extents = dictionary.extents_of(table.at for table in known)
        return dictionary.tables_table(known, extents, self._lake.batch, self._lake.committed)

    def described(self, name: str) -> pa.Table:
        """Return the columns of a table, ``database.table``. Raises LakeError."""
        from binlake.lake import dictionary

        return dictionary.columns_table([self._lake.described(name)]).select(dictionary.OF_DESCRIBE)


def _columns(table: TableAt) -> dict[str, str]:
    """Return the Delta types of a table's columns, by name. Raises LakeError."""
    from binlake.lake import dictionary

    return {field.name: dictionary.delta_text(field.type) for field in table.opened().schema().fields}


def _written(name: TableName) -> str:
    return f"{ansi_quote(name.database)}.{ansi_quote(name.table)}"
