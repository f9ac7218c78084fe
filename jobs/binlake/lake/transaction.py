"""Delta's OptimisticTransaction by py4j, for commits that no statement of Spark makes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from binlake.lake.delta_schema import DeltaSchema
from binlake.lake.java import changed, open_transaction, to_java_list, to_map, to_scala_map, to_seq
from binlake.state import tables
from binlake.state.attempts import DataFile


class Alone:
    """A transaction that tells Delta itself what is committed. session: with the thread's active session."""

    def __init__(self, session: SparkSession, path: str) -> None:
        jvm: Any = session.sparkContext._jvm
        self._session = session
        self._jvm, self._delta = jvm, jvm.org.apache.spark.sql.delta
        self._transaction = open_transaction(session, path)
        self._path = path
        self.metadata = self._transaction.metadata()

    @property
    def is_new(self) -> bool:
        """Whether there is no table yet."""
        return int(self._transaction.readVersion()) < 0

    def version(self, app: str) -> int:
        """The recorded one, -1 without; who commits under the application id meanwhile makes this one conflict.

        That is what ``txnVersion`` does, at the price of two Spark jobs that read the table's whole state.
        """
        self._transaction.readTxn().addOne(app)
        recorded = self._log.transaction_version(app)
        return -1 if recorded is None else int(recorded)

    @cached_property
    def _log(self) -> DeltaTable:
        """As the transaction sees it."""
        return tables.opened(self._path, int(self._transaction.snapshot().version()))

    def versions(self) -> dict[str, int]:
        """Those of all application ids."""
        known = to_java_list(self._session, self._transaction.snapshot().setTransactions())
        return {one.appId(): int(self._transaction.txnVersion(one.appId())) for one in known}

    def commit(self, recorded: Mapping[str, int], metadata: Any = None) -> None:
        """Metadata and recorded transactions, without rows."""
        if metadata is not None:
            self._transaction.updateMetadata(metadata, False)
        operation = getattr(getattr(self._delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
        self._transaction.commit(to_seq(self._session, self._recorded(recorded)), operation)

    def replace(self, schema: DeltaSchema, data: Sequence[DataFile], recorded: Mapping[str, int]) -> None:
        """The whole table becomes ``data``; it is made where there is none. History tells it as an overwrite.

        Of a file that the table has already, whole, Delta is told nothing: it must not come and go in one commit.
        """
        ours = {file.action_path: file.action for file in data}
        gone: list[Any] = []
        for file in to_java_list(self._session, self._transaction.filterFiles()):
            if file.deletionVector() is None and file.path() in ours:
                del ours[file.path()]
            else:
                gone.append(file.remove())
        come = [self._delta.actions.Action.fromJson(action) for action in ours.values()]
        self._update_schema(schema)
        for app in recorded:
            self._transaction.readTxn().addOne(app)
        self._measure(data, gone)
        actions = to_seq(self._session, [*gone, *come, *self._recorded(recorded)])
        self._transaction.commit(actions, self._overwrite())

    def _update_schema(self, schema: DeltaSchema) -> None:
        if self.is_new:
            properties = schema.properties
            metadata = changed(self.metadata, self._session, schema=schema.text(properties), properties=properties)
            self._transaction.updateMetadataForNewTable(metadata)
            return
        properties = to_map(self._session, self.metadata.configuration())
        metadata = changed(self.metadata, self._session, schema=schema.text(properties), properties=properties)
        self._transaction.updateMetadataForTableOverwrite(metadata)

    def _overwrite(self) -> Any:
        mode = self._jvm.org.apache.spark.sql.SaveMode.Overwrite
        nothing, some = self._jvm.scala.Option.apply(None), self._jvm.scala.Some
        columns = some(to_seq(self._session, []))
        return getattr(self._delta, "DeltaOperations$Write")(
            mode, columns, nothing, nothing, nothing, some(True), nothing, nothing, nothing
        )

    def _measure(self, data: Sequence[DataFile], gone: Sequence[Any]) -> None:
        """What Spark counts in a write, as history tells it of the commit."""
        counted = {
            "numFiles": len(data),
            "numOutputRows": sum(file.rows for file in data),
            "numOutputBytes": sum(file.bytes for file in data),
            "numRemovedFiles": len(gone),
            "numRemovedBytes": sum(int(file.getFileSize()) for file in gone),
        }
        metrics: dict[str, Any] = {}
        for name, count in counted.items():
            context: Any = self._session.sparkContext._jsc.sc()
            metrics[name] = self._jvm.org.apache.spark.sql.execution.metric.SQLMetrics.createMetric(context, name)
            metrics[name].set(count)
        self._transaction.registerSQLMetrics(self._session._jsparkSession, to_scala_map(self._session, metrics))

    def _recorded(self, recorded: Mapping[str, int]) -> list[Any]:
        now = self._jvm.scala.Some(int(time.time() * 1000))
        return [self._delta.actions.SetTransaction(app, version, now) for app, version in recorded.items()]
