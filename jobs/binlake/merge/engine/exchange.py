"""Rows of a Delta table that others take the place of, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from binlake.errors import BinlakeError, LakeError
from binlake.merge.lake_table import CONFLICTS
from binlake.names import spark_quote
from binlake.spark.java import open_transaction, overwriting, to_java_list, to_scala_map, to_seq
from binlake.spark.transaction import noted
from binlake.storage import storage_errors

_TRIES = 4
"""Tries of one commit: upkeep of the table may be quicker."""


def exchange(
    session: SparkSession,
    path: str,
    where: str,
    rows: DataFrame,
    key: Sequence[str],
    note: Mapping[str, Any],
    check: Callable[[], None],
    *,
    rows_per_file: int,
) -> int:
    """Replace the rows that meet ``where`` by ``rows``; return the Delta version.

    Data files without such rows stay as they are, the others are rewritten, sorted by the key. check: raises where the
    run lost its lease; it is called within the transaction, which conflicts with whatever others commit after that.
    session: with the thread's active session. Raises LakeError, and what ``check`` raises.
    """
    try:
        for _ in range(_TRIES):
            exchanged = _Exchange(session, path, where)
            check()
            with noted(session, {"binlake": note}), suppress(*CONFLICTS):
                return exchanged.commit(rows, key, rows_per_file)
    except BinlakeError:
        raise
    except Exception as error:
        raise storage_errors.failed(f"writing rows of {path} again failed", error) from error
    raise LakeError(f"{path}: others commit to it again and again", remedy="run it again when they are done")


class _Exchange:
    """One transaction."""

    def __init__(self, session: SparkSession, path: str, where: str) -> None:
        jvm: Any = session.sparkContext._jvm
        self._session, self._jvm, self._where = session, jvm, where
        self._nothing = jvm.scala.Option.apply(None)
        self._log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)
        self._transaction = open_transaction(session, path)
        self._transaction.readWholeTable()
        self._files = to_java_list(session, self._transaction.filterFiles())

    def commit(self, rows: DataFrame, key: Sequence[str], rows_per_file: int) -> int:
        """Commit the exchange. Raises one of CONFLICTS where another commit came first."""
        touched = self._touched()
        staying = self._rows_of(touched).where(f"({self._where}) IS NOT TRUE")
        there = staying.unionByName(rows).coalesce(1).sortWithinPartitions(*map(spark_quote, key))
        option_map = to_scala_map(self._session, {"maxRecordsPerFile": str(rows_per_file)})
        settings = self._session._jsparkSession.sessionState().conf()
        options = self._jvm.org.apache.spark.sql.delta.DeltaOptions(option_map, settings)
        come = to_java_list(self._session, self._transaction.writeFiles(there._jdf, self._jvm.scala.Some(options)))
        actions = to_seq(self._session, [*(file.remove() for file in touched), *come])
        return int(self._transaction.commit(actions, overwriting(self._session)))

    def _touched(self) -> list[Any]:
        """Return the data files that have a row to be replaced."""
        rows = self._rows_of(self._files).where(self._where).select("_metadata.file_name").distinct().collect()
        names = {row[0] for row in rows}
        touched = [file for file in self._files if unquote(file.path()).rpartition("/")[2] in names]
        if len(touched) != len(names):
            raise LakeError("two data files have one name", remedy="copy the whole table again")
        return touched

    def _rows_of(self, files: Sequence[Any]) -> DataFrame:
        listed = to_seq(self._session, files)
        frame = self._log.createDataFrame(self._transaction.snapshot(), listed, False, self._nothing)
        return DataFrame(frame, self._session)
