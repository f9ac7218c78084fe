"""A mirrored Delta table: what it holds, and the frozen commits that change it.

Each commit of a life of a table carries the application id ``binlake:{source}:{table id}`` and the version
``batch * 2**20 + step``: what a table has is read back from the table itself. Delta skips a repeated version; its
options are session configuration, so each table works in a session of its own, and the commit is proved afterwards.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable as DeltaLog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from binlake.config import InvalidDates
from binlake.errors import LakeTableChanged, UnfollowedStatement
from binlake.names import spark_quote, spark_string
from binlake.schema import datatypes
from binlake.schema.table import Column, TableSchema

STEPS_PER_BATCH = 1 << 20
_NEEDS_COLUMN_MAPPING = re.compile(r"[ ,;{}()\n\t=]")
_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def transaction_version(batch: int, step: int) -> int:
    """Grows with batch and step; steps count from 1 in each batch."""
    if not 0 <= step < STEPS_PER_BATCH:
        raise ValueError(f"step {step} of batch {batch}")
    return batch * STEPS_PER_BATCH + step


def lake_columns(schema: TableSchema, invalid_dates: InvalidDates) -> list[tuple[str, str]]:
    """(name, Delta type) of the Delta table's columns, side columns of invalid dates included."""
    columns: list[tuple[str, str]] = []
    for column in schema.mirrored:
        columns.append((column.name, datatypes.delta_type(column)))
        if invalid_dates == "keep_text" and datatypes.entry(column).may_be_invalid_date:
            columns.append((datatypes.text_column(column), "STRING"))
    return columns


def needs_column_mapping(names: list[str]) -> bool:
    """Delta refuses these characters in plain Parquet names."""
    return any(_NEEDS_COLUMN_MAPPING.search(name) for name in names)


def table_properties(names: list[str]) -> dict[str, str]:
    """Tables start as plain as other readers need them."""
    properties = {"delta.enableDeletionVectors": "true"}
    if needs_column_mapping(names):
        properties["delta.columnMapping.mode"] = "name"
    return properties


@dataclass(frozen=True)
class LakeTable:
    """One life of a table at its path. ``app`` is its application id."""

    path: str
    app: str

    def log(self) -> DeltaLog:
        return DeltaLog(self.path)

    def exists(self) -> bool:
        return bool(DeltaLog.is_deltatable(self.path))

    def recorded(self) -> int:
        """Transaction version recorded in the table for this life; -1 when there is none."""
        if not self.exists():
            return -1
        version = self.log().transaction_version(self.app)
        return -1 if version is None else int(version)

    def version(self) -> int:
        """Delta version."""
        return int(self.log().version())

    @contextmanager
    def transaction(self, session: SparkSession, version: int, note: dict[str, Any]) -> Iterator[None]:
        """Commits in here carry the version; proved afterwards. Raises LakeTableChanged when it isn't recorded."""
        session.conf.set(_TXN_APP, self.app)
        session.conf.set(_TXN_VERSION, str(version))
        session.conf.set(_USER_METADATA, json.dumps(note, ensure_ascii=False))
        try:
            yield
        finally:
            for key in (_TXN_APP, _TXN_VERSION, _USER_METADATA):
                session.conf.unset(key)
        self._prove(version)

    def _prove(self, version: int) -> None:
        found = self.recorded()
        if found < version:
            raise LakeTableChanged(
                f"{self.path} records transaction {found}, {version} was expected",
                remedy="somebody replaced the table while it was written; snapshot it again",
            )

    def overwrite(self, session: SparkSession, rows: DataFrame, version: int, note: dict[str, Any]) -> None:
        """The whole table in one commit, with ``rows``' columns; makes the table where there is none."""
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        for key, value in table_properties(rows.columns).items():
            writer = writer.option(key, value)
        with self.transaction(session, version, note):
            writer.save(self.path)

    def create(self, session: SparkSession, columns: list[tuple[str, str]], version: int, note: dict[str, Any]) -> None:
        """An empty table in the place of whatever is there."""
        selected = ", ".join(f"CAST(NULL AS {kind}) AS {spark_quote(name)}" for name, kind in columns)
        self.overwrite(session, session.sql(f"SELECT {selected} WHERE false"), version, note)

    def truncate(self, session: SparkSession, version: int, note: dict[str, Any]) -> None:
        """All rows go, in a commit without data files."""
        with self.transaction(session, version, note):
            session.sql(f"DELETE FROM {self.sql_name}")

    def fill(self, session: SparkSession, values: dict[str, str], version: int, note: dict[str, Any]) -> None:
        """Set columns (name → Spark SQL expression) of all rows."""
        assignments = ", ".join(f"{spark_quote(name)} = {value}" for name, value in values.items())
        with self.transaction(session, version, note):
            session.sql(f"UPDATE {self.sql_name} SET {assignments}")

    @property
    def sql_name(self) -> str:
        return f"delta.{spark_quote(self.path)}"

    def add_columns(
        self,
        session: SparkSession,
        columns: list[tuple[str, str]],
        order: list[str],
        version: int,
        note: dict[str, Any],
    ) -> None:
        """New columns, NULL in the rows that are there; ``order`` names all columns as they stand afterwards.

        Metadata and transaction go into one commit through Delta's OptimisticTransaction: ALTER TABLE by SQL
        ignores the application id, and repeated it fails.
        """
        if needs_column_mapping([name for name, _ in columns]):
            self._map_columns(session)
        self._commit_schema(session, columns, order, version, note)
        self._prove(version)

    def _map_columns(self, session: SparkSession) -> None:
        """Turn column mapping by name on; repeating it changes nothing."""
        if self.log().metadata().configuration.get("delta.columnMapping.mode") != "name":
            session.sql(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")

    def _commit_schema(
        self,
        session: SparkSession,
        columns: list[tuple[str, str]],
        order: list[str],
        version: int,
        note: dict[str, Any],
    ) -> None:
        jvm: Any = session.sparkContext._jvm
        delta = jvm.org.apache.spark.sql.delta
        nothing = jvm.scala.Option.apply(None)
        transaction = delta.DeltaLog.forTable(session._jsparkSession, self.path).startTransaction(nothing, nothing)
        if transaction.txnVersion(self.app) >= version:
            return
        metadata = transaction.metadata()
        schema = json.loads(metadata.schemaString())
        schema["fields"] = _with_columns(schema["fields"], columns, order)
        values = [getattr(metadata, f"copy$default${index}")() for index in range(1, 9)]
        values[4] = json.dumps(schema)
        transaction.updateMetadata(metadata.copy(*values), False)
        recorded = delta.actions.SetTransaction(self.app, version, jvm.scala.Some(int(time.time() * 1000)))
        actions = jvm.java.util.ArrayList()
        actions.add(recorded)
        session.conf.set(_USER_METADATA, json.dumps(note, ensure_ascii=False))
        try:
            operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
            transaction.commit(jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq(), operation)
        finally:
            session.conf.unset(_USER_METADATA)


def _with_columns(
    fields: list[dict[str, Any]], columns: list[tuple[str, str]], order: list[str]
) -> list[dict[str, Any]]:
    """Delta's schema fields with new ones, in the order of the server's table."""
    have = {field["name"].lower(): field for field in fields}
    for name, kind in columns:
        if name.lower() not in have:
            field = _struct(f"c {kind}").fields[0].jsonValue()
            have[name.lower()] = {**field, "name": name, "nullable": True, "metadata": {}}
    return [have[name.lower()] for name in order]


def _struct(ddl: str) -> StructType:
    parsed = StructType.fromDDL(ddl)
    assert isinstance(parsed, StructType)
    return parsed


def default_expression(column: Column, text: str) -> str:
    """A server's constant as a Spark SQL expression of the column's Delta type; raises UnfollowedStatement."""
    kind = datatypes.delta_type(column)
    if column.type == "timestamp":
        raise UnfollowedStatement(
            f"the default of the new TIMESTAMP column {column.name!r} depends on a session's time zone",
            remedy="snapshot this table again",
        )
    if column.type == "bit":
        number = int(text.strip("b'") or "0", 2) if text.startswith("b'") else int(text)
        if kind == "BOOLEAN":
            return "true" if number else "false"
        return f"X'{number:0{2 * (((column.length or 1) + 7) // 8)}X}'"
    if column.type == "time":
        return f"{_microseconds(text)}L"
    if kind == "BINARY":
        data = bytes.fromhex(text[2:]) if text[:2].lower() == "0x" else text.encode()
        return f"X'{(data.ljust(column.length or 0, bytes(1)) if column.type == 'binary' else data).hex()}'"
    return f"CAST({spark_string(text)} AS {kind})"


def _microseconds(text: str) -> int:
    """``[-]H:MM:SS[.ffffff]`` as signed microseconds."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    hours, minutes, seconds = digits.split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 1_000_000
    return sign * (total + int(fraction.ljust(6, "0")[:6] or 0))
