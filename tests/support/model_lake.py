"""The lake of the protocol's model: real Delta tables in a folder, and as much of Spark as writes some of them.

The engine's own commits are its own, data files and Delta logs included. Where it asks Spark for one, the session here
makes it, in the form in which Delta does.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
from delta.exceptions import ConcurrentWriteException
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.errors import AnalysisException

from binlake.delta import data_rows, delta_commits, opened_tables, plain_files, plain_tables
from binlake.delta.delta_actions import DataFile, DeltaAction
from binlake.delta.delta_log import note_of
from binlake.delta.delta_schema import FIELD_ID, MOST_ID, DeltaSchema
from binlake.merge.lake_table import LakeTable
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.planner.steps import Life, MergeStep
from binlake.spark.transaction import USER_METADATA
from model_server import Content, Row, sorted_rows

_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_PROTOCOL = {
    "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "appendOnly", "invariants"],
}  # fmt: skip
"""Of a table that Spark makes."""
_ANY = MagicMock()
"""The JVM, which is told of the active session."""
_NULL_COLUMN = re.compile(r"CAST\(NULL AS (\w+)\) AS `(\w+)`")


class _KnownLog:
    """A table's log at a version, which is asked once for what never changes."""

    def __init__(self, table: DeltaTable) -> None:
        self._log = table

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._log, name)
        if callable(value) and name not in ("deletion_vectors", "create_checkpoint"):  # a stream, and no question
            value = cache(value)
            setattr(self, name, value)
        return value


@dataclass
class _KnownTable:
    """What was read of a table by now. logs: by Delta version. commits: the actions of each, from version 0 on."""

    logs: dict[int, Any] = field(default_factory=dict)
    commits: list[list[DeltaAction]] = field(default_factory=list)
    content: tuple[int, Content] = (-1, ((), ()))


class Lake:
    """Tables in a folder; each version of one is read once, for it never changes.

    reach: called with the name of each access.
    """

    skips: ClassVar[bool] = True
    """Whether Delta leaves out a commit whose transaction is recorded."""

    def __init__(self, reach: Callable[[str], None]) -> None:
        self.reach = reach
        self._known: dict[str, _KnownTable] = {}
        self._open = opened_tables.opened

    def opened(self, path: str, version: int | None = None) -> DeltaTable:
        """Return a table's log; in the place of ``opened_tables.opened``, which reads it again each time."""
        number = len(self.commits(path)) - 1 if version is None else version
        logs = self._known.setdefault(path, _KnownTable()).logs
        if number not in logs:
            logs[number] = _KnownLog(self._open(path, version))
        log: DeltaTable = logs[number]
        return log

    def is_table(self, path: str) -> bool:
        """Return whether a table is there; in the place of ``opened_tables.is_table``."""
        return bool(self.commits(path))

    def commits(self, path: str) -> list[list[DeltaAction]]:
        """Return the actions of all commits of a table; nothing where no table is."""
        known = self._known.setdefault(path, _KnownTable())
        while os.path.exists(name := f"{path}/_delta_log/{len(known.commits):020}.json"):
            with open(name, encoding="utf-8") as file:
                known.commits.append([json.loads(line) for line in file])
        return known.commits

    def content(self, path: str) -> Content:
        """Return what a table holds."""
        log = self.opened(path)
        known = self._known[path]
        if known.content[0] != log.version():
            columns = tuple(field.name for field in log.schema().fields)
            known.content = log.version(), (columns, sorted_rows(_rows(log, path)))
        return known.content[1]

    def lost_files(self, path: str) -> list[str]:
        """Return data files that a table's log names and that aren't there."""
        paths = pa.table(self.opened(path).get_add_actions())["path"].to_pylist()
        return [name for name in paths if not os.path.exists(f"{path}/{name}")]

    def notes(self, path: str) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
        """Yield what each commit says of itself, and the transactions that it records."""
        for actions in self.commits(path):
            info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
            recorded = {
                transaction["appId"]: transaction["version"] for action in actions if (transaction := action.get("txn"))
            }
            yield note_of(info), recorded

    def repeated(self, path: str) -> list[tuple[str, int]]:
        """Return transactions of steps and snapshots that were committed more than once: life, version."""
        made: Counter[tuple[str, int]] = Counter()
        for note, recorded in self.notes(path):
            if "step" in note or note.get("snapshot"):
                made.update((app, version) for app, version in recorded.items() if app.endswith(note["life"]))
        return [transaction for transaction, count in made.items() if count > 1]

    def newest_snapshot(self, path: str) -> str | None:
        """Return the life that the newest snapshot of a table began."""
        lives = [note["life"] for note, _ in self.notes(path) if note.get("snapshot")]
        return lives[-1] if lives else None

    def optimize(self, path: str) -> None:
        """Put a table's data files together as OPTIMIZE does: what others do to a table that is ours."""
        log = self.opened(path)
        names = [field.name for field in log.schema().fields]
        come = _added(log, path, names, _rows(log, path))
        actions = [*map(plain_tables.removed, _files(log, path)), *come]
        for action in actions:
            next(iter(action.values()))["dataChange"] = False
        delta_commits.commit(log, path, [_info("OPTIMIZE", ""), *actions])


class Session:
    """As much of a Spark session as the engine touches."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.conf = _Conf()
        self.sparkContext = SimpleNamespace(  # Spark's name
            master="local[1]", defaultParallelism=1, getConf=dict, _jvm=_ANY
        )
        self._jsparkSession = None

    def newSession(self) -> Session:
        return Session(self.lake)

    def sql(self, text: str) -> _Frame:
        """Return the empty rows of which a table is made."""
        columns = _NULL_COLUMN.findall(text)
        assert columns, text
        return _Frame(self, [(name, kind) for kind, name in columns])

    def write(
        self, path: str, change: Callable[[DeltaTable | None], Sequence[DeltaAction]], mode: str = "overwrite"
    ) -> None:
        """Commit what ``change`` makes of the table, under the transaction of the session's configuration."""
        self.lake.reach("begin commit")
        there = self.lake.opened(path) if self.lake.is_table(path) else None
        if there and mode == "error":
            raise AnalysisException(f"{path} is there already")
        app, version = str(self.conf.get(_APP)), int(str(self.conf.get(_VERSION)))
        recorded = there.transaction_version(app) if there else None
        if recorded is not None and recorded >= version and self.lake.skips:
            return
        info = _info("WRITE", str(self.conf.get(USER_METADATA)))
        _commit(path, there, [info, *change(there), _recorded(app, version)])


class _Conf(dict[str, str]):
    """A session's configuration."""

    def get(self, key: str, default: str = "1") -> str:  # type: ignore[override]  # Spark knows each setting
        return super().get(key, default)

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        del self[key]


class _Frame:
    """Rows of which a table is made, none, and Spark's way to write them."""

    def __init__(self, session: Session, dtypes: list[tuple[str, str]]) -> None:
        self.dtypes = dtypes
        self.columns = [name for name, _ in dtypes]
        self._session = session
        self._mode = ""

    @property
    def write(self) -> _Frame:
        return self

    def format(self, name: str) -> _Frame:
        return self

    def option(self, name: str, value: str) -> _Frame:
        return self

    def mode(self, mode: str) -> _Frame:
        self._mode = mode
        return self

    def save(self, path: str) -> None:
        schema = DeltaSchema(tuple(self.dtypes), path)

        def made(there: DeltaTable | None) -> list[DeltaAction]:
            gone = map(plain_tables.removed, _files(there, path)) if there else ()
            return [*_metadata(there, schema), *gone]

        self._session.write(path, made, self._mode)


class _Metadata:
    """Delta's Metadata, of which nothing is asked."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Transaction:
    """Delta's OptimisticTransaction, which conflicts with all that others commit meanwhile."""

    metadata: Any = _Metadata()

    def __init__(self, session: Session, path: str, note: str = "") -> None:
        session.lake.reach("begin commit")
        self._log = session.lake.opened(path) if session.lake.is_table(path) else None
        self._lake = session.lake
        self._path = path
        self._note = note

    @property
    def is_new(self) -> bool:
        return self._log is None

    def version(self, app: str) -> int:
        return self.versions().get(app, -1)

    def versions(self) -> dict[str, int]:
        if self._log is None:
            return {}
        known = list(self._lake.notes(self._path))[: self._log.version() + 1]
        return {app: version for _, recorded in known for app, version in recorded.items()}

    def commit(self, recorded: Mapping[str, int], metadata: Any = None) -> None:
        info = _info("Manual Update", self._note)
        _commit(self._path, self._log, [info, *(_recorded(app, version) for app, version in recorded.items())])

    def replace(self, schema: DeltaSchema, data: Sequence[DataFile], recorded: Mapping[str, int]) -> None:
        come = {file.action_path: json.loads(file.action) for file in data}
        gone: list[DeltaAction] = []
        for add in _files(self._log, self._path) if self._log else ():
            if add["path"] in come and not add.get("deletionVector"):
                del come[add["path"]]
            else:
                gone.append(plain_tables.removed(add))
        actions = [_info("WRITE", self._note), *_metadata(self._log, schema), *gone, *come.values()]
        _commit(self._path, self._log, [*actions, *(_recorded(app, version) for app, version in recorded.items())])


def _staged(life: Life, step: MergeStep) -> list[tuple[Any, Any]]:
    """Return the images, before and after, of the mutations after the snapshot."""
    rows = [row for file in step.files for row in pq.read_table(file.path).to_pylist()]
    wanted = sorted((row for row in rows if (row["file"], row["offset"]) >= life.low.order), key=_sequence)
    return [(row["before"], row["after"]) for row in wanted]


def _sequence(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return row["file"], row["offset"], row["row"]


def merge_by_row(session: Session, table: LakeTable, epoch: MirrorEpoch) -> None:
    """Merge rows of a table without a key, one after the other; in the place of Delta's MERGE."""
    names, staged = [column.name for column in epoch.columns], _staged(epoch.life, epoch.step)

    def merged(there: DeltaTable | None) -> list[DeltaAction]:
        assert there is not None
        rows = _rows(there, table.path)
        for before, after in staged:
            old = before and tuple(before[name] for name in names)
            if old in rows:
                rows.remove(old)
            if after:
                rows.append(tuple(after[name] for name in names))
        gone = map(plain_tables.removed, _files(there, table.path))
        return [*gone, *_added(there, table.path, names, rows)]

    session.write(table.path, merged)


# Delta ---------------------------------------------------------------------------------------------------------------
def _commit(path: str, there: DeltaTable | None, actions: Sequence[DeltaAction]) -> None:
    if there is None:
        os.makedirs(f"{path}/_delta_log", exist_ok=True)
        delta_commits.create(path, actions)
        return
    try:
        delta_commits.commit(there, path, actions)
    except CommitFailedError as error:
        raise ConcurrentWriteException(str(error)) from error


def _info(operation: str, note: str) -> DeltaAction:
    return {"commitInfo": {"timestamp": 0, "operation": operation, "operationParameters": {}, "userMetadata": note}}


def _recorded(app: str, version: int) -> DeltaAction:
    return {"txn": {"appId": app, "version": version, "lastUpdated": 0}}


def _metadata(there: DeltaTable | None, schema: DeltaSchema) -> list[DeltaAction]:
    """Return the metadata of a table that gets these columns; of a new one its protocol, too."""
    properties = dict(there.metadata().configuration) if there else schema.properties
    text = schema.text(properties)
    numbers = [field["metadata"].get(FIELD_ID) for field in json.loads(text)["fields"]]
    if numbers[0]:
        properties[MOST_ID] = str(max(numbers))
    metadata: dict[str, Any] = {
        "id": there.metadata().id if there else str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}},
        "schemaString": text, "partitionColumns": [], "configuration": properties,
    }  # fmt: skip
    return [{"metaData": metadata}, *([] if there else [{"protocol": _PROTOCOL}])]


def _files(table: DeltaTable, path: str) -> list[DeltaAction]:
    """Return the add actions of a table's data files."""
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    added = plain_tables.actions_of(table, path, paths)
    assert added is not None
    return added


def _rows(table: DeltaTable, path: str) -> list[Row]:
    """Return a table's rows; all columns are of one type."""
    fields = [pa.field(field.name, pa.int32()) for field in table.schema().fields]
    batches = [batch for batch, _ in data_rows.read(table, path, fields, 0)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def _added(table: DeltaTable, path: str, names: Sequence[str], rows: Sequence[Row]) -> list[DeltaAction]:
    """Write a data file; return the action that adds it, and none where there is no row."""
    if not rows:
        return []
    fields = {field["name"]: plain_tables.stored_field(field, pa.int32()) for field in plain_tables.fields_of(table)}
    columns = [pa.array(column, pa.int32()) for column in zip(*rows, strict=True)]
    log = pa.Table.from_arrays(columns, schema=pa.schema([fields[name] for name in names]))
    return [{"add": plain_files.added_file(path, log)}]
