"""Delta's OptimisticTransaction by py4j, for commits that no statement of Spark makes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from binlake import __version__
from binlake.delta import delta_commits, opened_tables
from binlake.delta.delta_actions import DataFile, DeltaAction
from binlake.delta.delta_schema import FEATURES, DeltaSchema
from binlake.spark.java import changed, open_transaction, overwriting, to_java_list, to_map, to_scala_map, to_seq
from binlake.storage import files

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@contextmanager
def noted(session: SparkSession, note: Mapping[str, Any]) -> Iterator[str]:
    """Write the note into the user metadata of commits in the block; yield it as JSON. session: no other table uses it
    meanwhile."""
    text = json.dumps(note, ensure_ascii=False)
    session.conf.set(USER_METADATA, text)
    try:
        yield text
    finally:
        session.conf.unset(USER_METADATA)


class OptimisticTransaction:
    """Wraps Delta's class over py4j.

    session: the thread's active one. note: the commit's user metadata, which is in the session's configuration, too.
    """

    def __init__(self, session: SparkSession, path: str, note: str = "") -> None:
        jvm: Any = session.sparkContext._jvm
        self._session = session
        self._jvm, self._delta = jvm, jvm.org.apache.spark.sql.delta
        self._transaction = open_transaction(session, path)
        self._path, self._note = path, note
        self.metadata = self._transaction.metadata()

    @property
    def is_new(self) -> bool:
        """Return whether there is no table yet."""
        return int(self._transaction.readVersion()) < 0

    def version(self, app: str) -> int:
        """Return the recorded version, -1 without; a commit under the application id meanwhile makes this one conflict.

        That is what ``txnVersion`` does, at the price of two Spark jobs that read the table's whole state.
        """
        self._transaction.readTxn().addOne(app)
        recorded = self._log.transaction_version(app)
        return -1 if recorded is None else int(recorded)

    @cached_property
    def _log(self) -> DeltaTable:
        """Return the log at the version that the transaction reads."""
        return opened_tables.opened(self._path, int(self._transaction.snapshot().version()))

    def versions(self) -> dict[str, int]:
        """Return the recorded version of each application id."""
        known = to_java_list(self._session, self._transaction.snapshot().setTransactions())
        return {transaction.appId(): int(self._transaction.txnVersion(transaction.appId())) for transaction in known}

    def commit(self, recorded: Mapping[str, int], metadata: Any = None) -> None:
        """Commit metadata and recorded transactions, without rows."""
        if metadata is not None:
            self._transaction.updateMetadata(metadata, False)
        operation = getattr(getattr(self._delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
        self._transaction.commit(to_seq(self._session, self._recorded(recorded)), operation)

    def replace(self, schema: DeltaSchema, data: Sequence[DataFile], recorded: Mapping[str, int]) -> None:
        """Replace the whole table by ``data``, or make it where there is none. Delta's history shows it as an
        overwrite.

        A file that the table has already, whole, isn't passed to Delta: it must not come and go in one commit.
        Raises CommitFailedError where it was new and somebody made it meanwhile, or what Delta raises.
        """
        if self.is_new:
            self._update_schema(schema)
            if self._starts_plainly():
                self._create(data, recorded)
                return
        ours = {file.action_path: file.action for file in data}
        gone: list[Any] = []
        for file in to_java_list(self._session, self._transaction.filterFiles()):
            if file.deletionVector() is None and file.path() in ours:
                del ours[file.path()]
            else:
                gone.append(file.remove())
        come = [self._delta.actions.Action.fromJson(action) for action in ours.values()]
        if not self.is_new:
            self._update_schema(schema)
        for app in recorded:
            self._transaction.readTxn().addOne(app)
        self._measure(data, gone)
        actions = to_seq(self._session, [*gone, *come, *self._recorded(recorded)])
        self._transaction.commit(actions, overwriting(self._session))

    def _starts_plainly(self) -> bool:
        """Return whether a new table's first commit is no more than its metadata, protocol and files.

        Spark's settings may ask for more, and in some stores only Delta commits safely.
        """
        protocol = self._parsed(self._transaction.protocol())["protocol"]
        features = (*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ()))
        return files.writes_if_absent(self._path) and FEATURES.issuperset(features)

    @staticmethod
    def _parsed(action: Any) -> DeltaAction:
        parsed: DeltaAction = json.loads(action.json())
        return parsed

    def _create(self, data: Sequence[DataFile], recorded: Mapping[str, int]) -> None:
        """Write the first commit without Delta, which lists, checks and counts by Spark jobs what is known here."""
        self._transaction.deltaLog().createLogDirectoriesIfNotExists()
        now = int(time.time() * 1000)
        actions: list[DeltaAction] = [
            {
                "commitInfo": {
                    "timestamp": now, "operation": "WRITE",
                    "operationParameters": {"mode": "Overwrite", "partitionBy": "[]", "canOverwriteSchema": True},
                    "isolationLevel": "Serializable", "isBlindAppend": False, "operationMetrics": _metrics(data),
                    "userMetadata": self._note, "engineInfo": f"binlake/{__version__}",
                }
            },
            self._parsed(self._transaction.metadata()),
            self._parsed(self._transaction.protocol()),
            *(json.loads(file.action) for file in data),
            *({"txn": {"appId": app, "version": version, "lastUpdated": now}} for app, version in recorded.items()),
        ]  # fmt: skip
        delta_commits.create(self._path, actions)

    def _update_schema(self, schema: DeltaSchema) -> None:
        if self.is_new:
            properties = schema.properties
            self._transaction.updateMetadataForNewTable(self._changed(schema, properties))
            return
        before = to_map(self._session, self.metadata.configuration())
        properties = {**before, **schema.kept_properties}
        self._transaction.updateMetadataForTableOverwrite(self._changed(schema, properties))

    def _changed(self, schema: DeltaSchema, properties: Mapping[str, str]) -> Any:
        return changed(
            self.metadata,
            self._session,
            schema=schema.text(properties),
            properties=properties,
            description=schema.description,
        )

    def _measure(self, data: Sequence[DataFile], gone: Sequence[Any]) -> None:
        """Set the commit's metrics in Delta's history, which Spark would count itself in a write."""
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


def _metrics(data: Sequence[DataFile]) -> dict[str, str]:
    """Return the metrics of a table's first commit, as Delta's history shows them."""
    counted = {
        "numFiles": len(data), "numRemovedFiles": 0, "numRemovedBytes": 0,
        "numOutputRows": sum(file.rows for file in data), "numOutputBytes": sum(file.bytes for file in data),
    }  # fmt: skip
    return {name: str(count) for name, count in counted.items()}
