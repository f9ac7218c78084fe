"""Rows that a snapshot writes when it is committed, for mirrors with columns of their own.

Deleted rows that stay are those of the lake that the server has no more. They are read once no other life can commit
any more. Those that were deleted before keep their marks; the others are marked as deleted at the snapshot's commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from binlake.delta.delta_actions import DataFile
from binlake.errors import TableError
from binlake.merge.lake_table import LakeTable
from binlake.merge.own_values import WrittenInSql, own_in_sql
from binlake.merge.position_texts import boundary_text
from binlake.names import spark_quote
from binlake.schema.lake_columns import DELETED, LakeColumn
from binlake.schema.mask import Mask
from binlake.schema.table import TableName, TableSchema
from binlake.snapshot.attempts import Copied
from binlake.snapshot.chunks import Chunk, Records, TableSnapshot
from binlake.spark import data_files
from binlake.store.metadata import now_us

_AS_THEY_ARE = ("BINARY", "ARRAY")
"""Types whose values aren't made others of."""


class SnapshotFiles:
    """The data files of one snapshot that are written when it is committed.

    at_us: the time of its commit. kept: names of the attempts whose files the table has. rows: how many rows stay that
    weren't copied.
    """

    def __init__(self, session: SparkSession, table: TableSnapshot, records: Records, target: LakeTable) -> None:
        self._session, self._table, self._records, self._target = session, table, records, target
        self.at_us = now_us()
        self.kept = [chunk.attempt for chunk in table.chunks]
        self.rows = 0

    def copied(self) -> Sequence[DataFile]:
        """Return the files of the rows that were copied. Where the mirror records what wrote each row, the files of
        Spark's tasks are rewritten: a task can't know the position of its view, which is read while it copies."""
        schema, chunks = self._table.schema, self._table.chunks
        if not schema.row_metadata:
            return self._of_chunks(chunks)
        attempts = self._records.attempts(self._table)
        copied = [(chunk, attempts.copied(chunk.attempt)) for chunk in chunks]
        complete = [chunk for chunk, copy in copied if copy.has_row_metadata]
        parts = []
        for chunk, copy in copied:
            if not copy.has_row_metadata:
                position = boundary_text(*(chunk.low or self._table.low).order)
                written = WrittenInSql.at_once(0, copy.opened_us or self.at_us, position)
                parts.append(as_written(self._read(copy.files), schema, written))
        self.kept = [chunk.attempt for chunk in complete]
        if not parts:
            return self._of_chunks(complete)
        attempt, files = self._write(reduce(DataFrame.unionByName, parts))
        self.kept.append(attempt)
        return [*self._of_chunks(complete), *files]

    def retained(self) -> Sequence[DataFile]:
        """Write the rows that are to stay of those at the table's place, and return the files. Raises TableError where
        two of them have the same key."""
        schema = self._table.schema
        if not self._records.keeps_deleted(self._table) or not self._target.exists():
            return ()
        there = self._session.read.format("delta").load(self._target.path)
        if DELETED not in there.columns:
            return ()
        before = self._records.masks_before(self._table.name) if schema.masks else ()
        _refuse_other_key(self._table.name, schema, there, before)
        server = self._read(self._of_chunks(self._table.chunks))
        written = WrittenInSql.at_once(0, self.at_us, boundary_text(*self._table.high.order))
        rows = retained_rows(there, server, schema, self._records.columns(self._table), written, before)
        attempt, files = self._write(rows)
        self.kept.append(attempt)
        self.rows = sum(file.rows for file in files)
        if files:
            _refuse_twins(self._table.name, schema, self._read(files))
        return files

    def _of_chunks(self, chunks: Sequence[Chunk]) -> list[DataFile]:
        attempts = self._records.attempts(self._table)
        return [file for chunk in chunks for file in attempts.copied(chunk.attempt).files]

    def _read(self, files: Sequence[DataFile]) -> DataFrame:
        attempts, schema = self._records.attempts(self._table), self._records.delta_schema(self._table)
        return data_files.read(self._session, attempts.table_path, schema, files)

    def _write(self, rows: DataFrame) -> tuple[str, Sequence[DataFile]]:
        """Write rows by an attempt of their own, and return its name, and the files."""
        attempts, schema = self._records.attempts(self._table), self._records.delta_schema(self._table)
        attempt, most = attempts.new(), self._table.rows_per_file
        attempts.begin(attempt)
        files = data_files.write(self._session, attempts.table_path, attempt, schema, rows, rows_per_file=most)
        attempts.done(attempt, Copied(files))
        return attempt, files


def as_written(rows: DataFrame, schema: TableSchema, written: WrittenInSql) -> DataFrame:
    """Return copied rows with the mirror's own columns. written: what brought them."""
    if not (own := own_in_sql(schema, written, "false")):
        return rows
    return rows.selectExpr(*(f"{own.get(name, spark_quote(name))} AS {spark_quote(name)}" for name in rows.columns))


def retained_rows(
    there: DataFrame,
    server: DataFrame,
    schema: TableSchema,
    columns: Sequence[LakeColumn],
    written: WrittenInSql,
    before: Sequence[Mapping[str, Mask]],
) -> DataFrame:
    """Return the rows of the lake whose keys the server doesn't have, marked as deleted.

    there: the lake's rows, of whatever shape. server: the server's, of the mirror's columns. written: what marks those
    that aren't yet. before: the masks under which the lake's rows may have been written. A value that can't be of its
    column's type by now is NULL, and so is one that was written without its column's mask.
    """
    kinds = {field.name: field.dataType.simpleString().upper() for field in there.schema.fields}
    marks = own_in_sql(schema, written, "true")

    def value(column: LakeColumn) -> str:
        kind, quoted = kinds.get(column.name), spark_quote(column.name)
        if column.name in marks:
            return f"IF({DELETED}, {quoted if kind else 'NULL'}, {marks[column.name]})"
        if not _has_mask(column.source.name, schema, before):
            return f"CAST(NULL AS {column.delta})"
        if kind == column.delta.upper():
            return quoted
        castable = kind is not None and not any(name.startswith(_AS_THEY_ARE) for name in (kind, column.delta))
        return f"TRY_CAST({quoted} AS {column.delta})" if castable else f"CAST(NULL AS {column.delta})"

    rows = there.selectExpr(*(f"{value(column)} AS {spark_quote(column.name)}" for column in columns))
    same = " AND ".join(f"lake.{name} = server.{name}" for name in map(spark_quote, schema.key))
    return rows.alias("lake").join(server.alias("server"), expr(same), "left_anti")


def _has_mask(column: str, schema: TableSchema, before: Sequence[Mapping[str, Mask]]) -> bool:
    """Return whether the lake's values of a column were written under the mask that it has now, if it has any."""
    name = column.lower()
    mask = schema.masks.get(name)
    return mask is None or (bool(before) and all(masks.get(name) == mask for masks in before))


def _refuse_other_key(
    name: TableName, schema: TableSchema, there: DataFrame, before: Sequence[Mapping[str, Mask]]
) -> None:
    if other := [column for column in schema.key if not _has_mask(column, schema, before)]:
        raise TableError(
            f"{name}: its deleted rows have {other[0]}, which is of its key, without its mask",
            remedy=_other_key_remedy(name),
        )
    if lacking := [column for column in schema.key if column not in there.columns]:
        raise TableError(
            f"{name}: its deleted rows have no {lacking[0]}, which is of its key by now", remedy=_other_key_remedy(name)
        )


def _refuse_twins(name: TableName, schema: TableSchema, rows: DataFrame) -> None:
    key = [spark_quote(column) for column in schema.key]
    unknown = " OR ".join(f"{column} IS NULL" for column in key)
    if rows.where(unknown).head() or rows.groupBy(*key).count().where("count > 1").head():
        raise TableError(
            f"{name}: its key is another by now, by which its deleted rows can't be distinguished",
            remedy=_other_key_remedy(name),
        )


def _other_key_remedy(name: TableName) -> str:
    return f"move the Delta table of {name} away: it is begun again, without the deleted rows; or take soft_delete off"
