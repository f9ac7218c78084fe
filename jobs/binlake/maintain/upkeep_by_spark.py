"""The upkeep of a Delta table that needs Spark: the same rows in other files, and its properties."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from binlake.delta.delta_log import LakeLog
from binlake.delta.layout import Rewrite
from binlake.errors import LakeError
from binlake.merge.lake_table import CONFLICTS
from binlake.names import spark_quote
from binlake.spark.transaction import noted

_DATA_CHANGE = 5
"""The place of ``dataChange`` among an AddFile's fields."""
_ADD_FIELDS = 13


class Rewriting:
    """Rows of chosen data files, written into new ones, which nobody reads until ``commit``.

    This is what Delta's OPTIMIZE does with the files that it chooses itself: one transaction that has read these files
    alone, and whose actions change no data. A commit in between that took one of them away makes it conflict.
    """

    def __init__(self, session: SparkSession, log: LakeLog) -> None:
        self._session, self._log = session, log
        jvm: Any = session.sparkContext._jvm
        self._scala, self._delta = jvm.scala, jvm.org.apache.spark.sql.delta
        self._asScala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self._nothing = jvm.scala.Option.apply(None)
        self._delta_log = self._delta.DeltaLog.forTable(session._jsparkSession, log.path)
        self._transaction = self._delta_log.startTransaction(self._nothing, self._nothing)
        self._actions: list[Any] = []
        self.written_files = self.written_bytes = 0

    def write(self, rewrite: Rewrite, key: Sequence[str]) -> bool:
        """Write the rows of its files to new ones, sorted by the key; return False where others replaced a file. Raises
        LakeError where a row would be lost."""
        old = self._added(rewrite)
        if len(old) != len(rewrite.files):
            return False
        self._transaction.trackFilesRead(self._seq(old))
        rows = self._sorted(self._rows(old), rewrite.into, key)
        written = self._scala.jdk.javaapi.CollectionConverters.asJava(
            self._transaction.writeFiles(rows._jdf, self._nothing, True, self._seq([]))
        )
        new = [_without_change(file) for file in written]
        self._prove(old, new)
        now = int(time.time() * 1000)
        self._actions += [*new, *(file.removeWithTimestamp(now, False) for file in old)]
        self.written_files += len(new)
        self.written_bytes += sum(int(file.size()) for file in new)
        return True

    def commit(self, note: Mapping[str, Any]) -> bool:
        """Put the new files in the place of the old; return False where others were quicker, and nothing changed."""
        optimize = getattr(self._delta, "DeltaOperations$Optimize")
        operation = optimize(self._seq([]), self._seq([]), False, self._nothing, False)
        with noted(self._session, note):
            try:
                self._transaction.commit(self._seq(self._actions), operation)
            except CONFLICTS:
                return False
        return True

    def _added(self, rewrite: Rewrite) -> list[Any]:
        """Return Delta's actions of those of these files that are there, as the transaction sees the table."""
        listed = ", ".join("'" + file.path.replace("\\", "\\\\").replace("'", "\\'") + "'" for file in rewrite.files)
        return list(self._transaction.snapshot().allFiles().where(f"path IN ({listed})").collectAsList())

    def _rows(self, old: Sequence[Any]) -> DataFrame:
        frame = self._delta_log.createDataFrame(self._transaction.snapshot(), self._seq(old), False, self._nothing)
        return DataFrame(frame, self._session)

    @staticmethod
    def _sorted(rows: DataFrame, into: int, key: Sequence[str]) -> DataFrame:
        columns = [spark_quote(name) for name in key]
        if not columns:
            return rows.coalesce(into)
        spread = rows.coalesce(1) if into == 1 else rows.repartitionByRange(into, *columns)
        return spread.sortWithinPartitions(*columns)

    def _prove(self, old: Sequence[Any], new: Sequence[Any]) -> None:
        """Check by counts that each row is written again. Raises LakeError."""
        if any(file.stats() is None for file in old):
            raise LakeError(
                f"{self._log.path} has data files without statistics",
                remedy="snapshot this table again, or let it be: it is read all the same",
            )
        before, after = (sum(_rows_of(file) for file in files) for files in (old, new))
        if before != after:
            raise LakeError(
                f"{self._log.path}: of {before:,} rows {after:,} were written again; nothing was changed",
                remedy="run binlake verify on this table",
            )

    def _seq(self, items: Sequence[Any]) -> Any:
        return self._asScala(list(items)).toSeq()


def _without_change(file: Any) -> Any:
    values = [getattr(file, f"copy$default${place}")() for place in range(1, _ADD_FIELDS + 1)]
    values[_DATA_CHANGE - 1] = False
    return file.copy(*values)


def _rows_of(file: Any) -> int:
    vector = file.deletionVector()
    return int(json.loads(file.stats())["numRecords"]) - (int(vector.cardinality()) if vector is not None else 0)


def set_properties(session: SparkSession, log: LakeLog, properties: Mapping[str, str]) -> None:
    """Set properties of a Delta table, by Spark."""
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    session.sql(f"ALTER TABLE delta.{spark_quote(log.path)} SET TBLPROPERTIES ({listed})")
