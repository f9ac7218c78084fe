"""The frozen commits that change a mirrored Delta table.

Each commit carries its life's application id and transaction version (delta/delta_log.py); Delta leaves out a version
that isn't above the recorded one. Its options are session configuration, so each table works in a session of its own,
and the commit is proved afterwards.

A run that lost its lease may wake up at any moment and continue to commit. The fence keeps it out of a table that was
snapshotted meanwhile:

    1  a run      that carries batch n falls asleep before a commit (a zombie)
    2  another    takes its lease over and snapshots the table, while n is the newest batch: ``begin``
    3  begin      records in a commit of metadata alone, for each of our lives at the path, a version behind all steps
                  of the batches up to n; under an application id of its own, the fence, the same
    4  begin      commits the snapshot's rows under a version behind the fence
    5  the zombie wakes: the steps of a life that was here are left out; one that is being committed conflicts
    6             a life that it only now brings here, by CREATE or a move (``take``), first claims the path: it is
                  refused where the fence is, else recorded with the version before its step, for 3 to find it

``begin`` asks for its lease within both transactions, so that of two snapshots the one that lost it commits nothing. A
kill between 3 and 4 is found by ``LakeLog.refuse_others`` before an old life continues.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltalake.exceptions import CommitFailedError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from binlake.delta import layout, plain_tables
from binlake.delta.delta_actions import DataFile
from binlake.delta.delta_log import FENCE, FENCES, LakeLog, fenced, is_fenced, overtaking
from binlake.delta.delta_schema import (
    MAPPING_MODE,
    MOST_ID,
    DeltaSchema,
    commented,
    mapped,
    needs_column_mapping,
    table_properties,
)
from binlake.errors import LakeTableChanged, SchemaMismatch
from binlake.iceberg.table_metadata import published_ids
from binlake.merge.delta_names import refused_with_vectors
from binlake.merge.reshape import ReshapedColumn, renames_or_drops, reshaped_fields, widens
from binlake.names import spark_quote
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import TableSchema
from binlake.spark.java import changed, redescribed
from binlake.spark.transaction import USER_METADATA, OptimisticTransaction, noted

Fields = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""Delta's schema fields before → after."""
CONFLICTS = (
    CommitFailedError,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""Somebody committed meanwhile: the same step can be tried again."""
_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_DELETION_VECTORS = tuple(
    f"spark.databricks.delta.{command}.deletionVectors.persistent" for command in ("merge", "update", "delete")
)


@dataclass(frozen=True)
class NewTable:
    """The new content of a table: its columns, and all its data files, which lie in its folder. more: returns those
    that depend on what is at the path until then."""

    schema: DeltaSchema
    files: Sequence[DataFile]
    more: Callable[[], Sequence[DataFile]] = tuple


class LakeTable(LakeLog):
    """One life of a table at its path, and the commits that change it."""

    @contextmanager
    def transaction(self, session: SparkSession, version: int, note: dict[str, Any]) -> Iterator[None]:
        """Let commits within this context carry the version. Raises LakeTableChanged where it isn't recorded
        afterwards."""
        session.conf.set(_TXN_APP, self.app)
        session.conf.set(_TXN_VERSION, str(version))
        session.conf.set(USER_METADATA, json.dumps(note, ensure_ascii=False))
        marked = self.size() > layout.FEW_BYTES and not refused_with_vectors(self.columns())
        for key in _DELETION_VECTORS:
            session.conf.set(key, str(marked).lower())
        try:
            yield
        finally:
            for key in (_TXN_APP, _TXN_VERSION, USER_METADATA, *_DELETION_VECTORS):
                session.conf.unset(key)
        self.prove(version)

    def columns(self) -> list[str]:
        """Return the names of the table's columns."""
        return [field.name for field in self.opened().schema().fields]

    def overwrite(
        self, session: SparkSession, rows: DataFrame, version: int, note: dict[str, Any], *, mode: str = "overwrite"
    ) -> None:
        """Replace the whole table by ``rows`` and their columns in one commit; make it where there is none."""
        self._support(session, rows.dtypes)
        writer = rows.write.format("delta").mode(mode).option("overwriteSchema", "true")
        for key, value in table_properties(rows.columns, has_vectors=self.has_vectors).items():
            writer = writer.option(key, value)
        with self.transaction(session, version, note):
            writer.save(self.path)

    def append(self, session: SparkSession, rows: DataFrame, version: int, note: dict[str, Any]) -> None:
        """Append ``rows``; those that are there aren't read."""
        with self.transaction(session, version, note):
            rows.write.format("delta").mode("append").save(self.path)

    def begin(
        self, session: SparkSession, data: NewTable, batch: int, note: dict[str, Any], check: Callable[[], None]
    ) -> None:
        """Write the whole table in one commit, behind a fence that ends the lives that were here.

        check: raises where the run lost its lease, or data files are gone. It is asked within each transaction, which
        conflicts with whatever others commit after that.
        """
        fence = overtaking(batch)
        # The same position again (a mirror that was found wrong, on a quiet server) must not pass for a repetition.
        version = max(fence, self.recorded()) + 1
        for _ in range(FENCES):
            if self.exists():
                self._fence(session, fence, note, check)
            self._support(session, data.schema.columns)
            schema = replace(data.schema, has_vectors=self.has_vectors)
            files = [*data.files, *data.more()]
            with self._optimistic(session, note) as transaction:
                check()
                # Whoever made the table since the look, or claimed it behind the fence, meets one of his own.
                if transaction.is_new or is_fenced(transaction.versions(), fence):
                    with suppress(CommitFailedError):  # it is there now
                        transaction.replace(schema, files, {self.app: version})
                        break
        self.prove(version)

    def _fence(self, session: SparkSession, fence: int, note: dict[str, Any], check: Callable[[], None]) -> None:
        """Record for all lives known here that they have done the steps up to ``fence``."""
        announced = {**note["binlake"], "snapshot": None, "begins": note["binlake"]["snapshot"]}
        with self._optimistic(session, {"binlake": announced}) as transaction:
            check()
            transaction.commit(fenced(transaction.versions(), fence), metadata=transaction.metadata)

    def take(self, session: SparkSession, rows: DataFrame, version: int, note: dict[str, Any]) -> None:
        """Write the whole table in one commit, where nothing is or another life was. Raises SnapshotUnfinished where a
        snapshot has come here since."""
        if not self.exists():
            self.overwrite(session, rows, version, note, mode="error")
            return
        claim = {"life": note["binlake"]["life"], "claims": version}
        with self._optimistic(session, {"binlake": claim}) as transaction:
            recorded = transaction.version(self.app)
            if recorded < version and transaction.version(FENCE) >= version:
                raise self.overtaken()
            if recorded < version - 1:
                undescribed = redescribed(transaction.metadata, description="")  # an overwrite would keep another's
                transaction.commit({self.app: version - 1}, metadata=undescribed)
        self.overwrite(session, rows, version, note)

    def _support(self, session: SparkSession, columns: Sequence[tuple[str, str]]) -> None:
        """Turn on the features that the columns' names and types need: Delta does so for new tables only. Repeating it
        changes nothing."""
        if not self.exists():
            return
        if needs_column_mapping([name for name, _ in columns]):
            self._map_columns(session)
        if not any(kind.lower() == "timestamp_ntz" for _, kind in columns):
            return
        if "timestampNtz" not in (self.opened().protocol().writer_features or ()):
            session.sql(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")

    def create(self, session: SparkSession, columns: Sequence[LakeColumn], version: int, note: dict[str, Any]) -> None:
        """Put an empty table in the place of whatever is there."""
        selected = ", ".join(f"CAST(NULL AS {column.delta}) AS {spark_quote(column.name)}" for column in columns)
        self.take(session, session.sql(f"SELECT {selected} WHERE false"), version, note)

    def truncate(self, session: SparkSession, version: int, note: dict[str, Any]) -> None:
        """Remove all rows, in a commit without data files."""
        with self.transaction(session, version, note):
            session.sql(f"DELETE FROM {self.sql_name}")
            if self.recorded() < version:  # DELETE commits nothing where there is no row
                self._commit_fields(session, lambda fields: fields, version, note)

    def update(
        self, session: SparkSession, where: str, values: Mapping[str, str], version: int, note: dict[str, Any]
    ) -> None:
        """Give the rows that meet a condition other values, which are SQL by column."""
        assignments = ", ".join(f"{spark_quote(name)} = {value}" for name, value in values.items())
        with self.transaction(session, version, note):
            session.sql(f"UPDATE {self.sql_name} SET {assignments} WHERE {where}")
            if self.recorded() < version:  # as DELETE does
                self._commit_fields(session, lambda fields: fields, version, note)

    @property
    def sql_name(self) -> str:
        """Return the table's name in Spark's SQL, by its path."""
        return f"delta.{spark_quote(self.path)}"

    def reshape(
        self,
        session: SparkSession,
        columns: Sequence[ReshapedColumn],
        version: int,
        note: dict[str, Any],
        *,
        widen: bool,
    ) -> None:
        """Give the rows other columns: by metadata alone where no value becomes another, else every row is rewritten.

        widen: use Delta's type widening where it can replace the casts. Raises LakeTableChanged where a column isn't
        there, SchemaMismatch where a value can't be cast.
        """
        written = [column for column in columns if column.is_written]
        if written and not (widen and all(widens(column) for column in written)):
            self._rewrite(session, columns, version, note)
            return
        if self.recorded() >= version:  # the ALTER TABLE below isn't part of the transaction
            return
        self._support(session, [(column.name, column.kind) for column in columns])
        self._widen(session, written)
        if renames_or_drops(json.loads(self.opened().schema().to_json())["fields"], columns):
            self._map_columns(session)
        self._commit_fields(session, lambda fields: reshaped_fields(fields, columns), version, note)
        self.prove(version)

    def _widen(self, session: SparkSession, columns: Sequence[ReshapedColumn]) -> None:
        """Give the columns their wider types under their old names; repeating it changes nothing."""
        if columns:
            session.sql(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
        for column in columns:
            name = spark_quote(column.origin or column.name)
            session.sql(f"ALTER TABLE {self.sql_name} ALTER COLUMN {name} TYPE {column.kind}")

    def _rewrite(
        self, session: SparkSession, columns: Sequence[ReshapedColumn], version: int, note: dict[str, Any]
    ) -> None:
        rows = session.read.format("delta").load(self.path).selectExpr(*[column.expression for column in columns])
        try:
            self.overwrite(session, rows, version, note)
        except PySparkException as error:
            raise SchemaMismatch(
                f"{self.path}: a value can't be cast to the column's new type: {str(error).partition(chr(10))[0]}",
                remedy="snapshot this table again",
            ) from error

    def _map_columns(self, session: SparkSession) -> None:
        """Turn column mapping by name on, with the ids that data files have; repeating it changes nothing."""
        table = self.opened()
        settings = table.metadata().configuration
        if settings.get(MAPPING_MODE) == "name":
            return
        fields, most = mapped(plain_tables.fields_of(table), published_ids(self.path))
        settings = {**settings, MAPPING_MODE: "name", MOST_ID: str(most)}
        schema = json.dumps({"type": "struct", "fields": fields})
        with self._optimistic(session, {"binlake": {"maps": most}}) as transaction:
            now = transaction.metadata
            if json.loads(now.schemaString()) != json.loads(table.schema().to_json()):
                raise LakeTableChanged(f"{self.path} was changed by others meanwhile", remedy="run it again")
            described = now.description() or ""
            transaction.commit({}, changed(now, session, schema=schema, properties=settings, description=described))

    def describe(self, session: SparkSession, schema: TableSchema, version: int, note: dict[str, Any]) -> None:
        """Give the table and its columns the shape's comments, and no others, by metadata alone."""
        comments = schema.lake_comments
        self._commit_fields(session, lambda fields: commented(fields, comments), version, note, schema.comment)

    def _commit_fields(
        self,
        session: SparkSession,
        change: Fields,
        version: int,
        note: dict[str, Any],
        description: str | None = None,
    ) -> None:
        """Commit metadata and transaction at once through Delta's OptimisticTransaction: ALTER TABLE by SQL ignores the
        application id, a repeated rename fails, and a swap of names looks like its repetition."""
        with self._optimistic(session, note) as transaction:
            if transaction.version(self.app) >= version:
                return
            schema = json.loads(transaction.metadata.schemaString())
            try:
                schema["fields"] = change(schema["fields"])
            except KeyError as error:
                raise LakeTableChanged(
                    f"{self.path} has no column {error.args[0]!r}",
                    remedy="somebody changed the table; snapshot it again",
                ) from None
            metadata = redescribed(transaction.metadata, schema=json.dumps(schema), description=description)
            transaction.commit({self.app: version}, metadata=metadata)

    @contextmanager
    def _optimistic(self, session: SparkSession, note: dict[str, Any]) -> Iterator[OptimisticTransaction]:
        with noted(session, note) as note_json:
            yield OptimisticTransaction(session, self.path, note_json)

    def move_from(self, session: SparkSession, old: LakeLog, life: str, version: int, note: dict[str, Any]) -> None:
        """Replace whatever lies here by the rows of this life, as they were at its old path."""
        at = old.last_version_of(life)
        rows = session.read.format("delta").option("versionAsOf", at).load(old.path)
        self.take(session, rows, version, note)

    def leave(self, session: SparkSession, version: int, note: dict[str, Any]) -> None:
        """Remove all rows, because the table moved; the commit has its new path."""
        self.overwrite(session, session.read.format("delta").load(self.path).where("false"), version, note)
