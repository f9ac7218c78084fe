"""A Delta table that tests change as batches, DDL, upkeep and others do, by binlake's own commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from binlake.delta import deletion_vectors, delta_commits, log_files, opened_tables, plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema, delta_type
from binlake.delta.plain_files import added_file
from binlake.delta.plain_tables import OwnCommit
from binlake.merge.engine import reshape_in_process
from binlake.merge.reshape import ReshapedColumn

ARROW: dict[str, pa.DataType] = {
    "INT": pa.int32(), "BIGINT": pa.int64(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "STRING": pa.string(),
    "BINARY": pa.binary(), "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "DATE": pa.date32(), "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pa.timestamp("us"), "DECIMAL(10,2)": pa.decimal128(10, 2),
    "ARRAY<FLOAT>": pa.list_(pa.float32()),
    "DECIMAL(38,0)": pa.decimal128(38, 0), "DECIMAL(38,30)": pa.decimal128(38, 30),
}  # fmt: skip
"""Types of Spark SQL in data files."""


class PlainTable:
    """A Delta table. columns: names and types in Spark SQL, as they are now. has_vectors: whether rows are hidden by
    deletion vectors."""

    def __init__(self, path: Path | str, columns: Sequence[tuple[str, str]], *, has_vectors: bool = True) -> None:
        self.path, self.columns = str(path), list(columns)
        self.log = LakeLog(self.path, "app", has_vectors)
        schema = pa.schema([(name, ARROW[kind]) for name, kind in columns])
        plain_tables.create(self.log, DeltaSchema(tuple(columns), "app 1"), self._own(), schema.empty_table())

    def _own(self) -> OwnCommit:
        return OwnCommit("WRITE", 1, {}, {}, {})

    @property
    def version(self) -> int:
        return opened_tables.opened(self.path).version()

    @property
    def files(self) -> list[dict[str, Any]]:
        """The add actions of the data files that are there."""
        return list(self.files_at(self.version).values())

    def files_at(self, version: int) -> dict[str, dict[str, Any]]:
        """The add actions of the data files of a version, by path; a checkpoint's lack fields that have no value."""
        plain = {"partitionValues": {}, "dataChange": True}
        return {path: {**add.fields, **plain} for path, add in log_files.files_at(self.path, version).items()}

    def commit(self, *actions: dict[str, Any]) -> None:
        info = {"commitInfo": {"operation": "WRITE"}}
        delta_commits.commit(opened_tables.opened(self.path), self.path, [info, *actions])

    def written(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A data file of these rows, which isn't committed."""
        fields = {field["name"]: field for field in plain_tables.fields_of(opened_tables.opened(self.path))}
        stored = [plain_tables.stored_field(fields[name], ARROW[kind]) for name, kind in self.columns]
        arrays = [pa.array([row[name] for row in rows], ARROW[kind]) for name, kind in self.columns]
        return added_file(self.path, pa.Table.from_arrays(arrays, schema=pa.schema(stored)))

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        self.commit({"add": self.written(rows)})

    def hide(self, places: dict[str, Sequence[int]]) -> None:
        """Hide rows by their numbers, by the names of data files, in one commit."""
        marked = []
        for add in self.files:
            if add["path"] in places:
                hidden = deletion_vectors.hidden(self.path, add) | BitMap64(places[add["path"]])
                marked.append((add, hidden))
        gone = [plain_tables.removed(add) for add, _ in marked]
        self.commit(*gone, *plain_tables.marked(opened_tables.opened(self.path), self.path, marked))

    def replace(self, old: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> None:
        """Put rows in the place of data files."""
        self.commit(*map(plain_tables.removed, old), {"add": self.written(rows)})

    def restore(self, version: int) -> None:
        """Take data files and vectors of an earlier version with the same columns again, as RESTORE does."""
        there = {add["path"]: add for add in self.files}
        past = self.files_at(version)
        gone = [add for path, add in there.items() if past.get(path) != add]
        come = [add for path, add in past.items() if there.get(path) != add]
        self.commit(*map(plain_tables.removed, gone), *({"add": add} for add in come))

    def reshape(self, columns: Sequence[tuple[str, str, str | None]]) -> None:
        """Make these the columns: name, type, and the column that has its values so far."""
        kinds = dict(self.columns)
        wanted = [
            ReshapedColumn(name, kind, origin, kinds[origin] if origin else None, ARROW[kind])
            for name, kind, origin in columns
        ]
        actions, _ = reshape_in_process.reshaping(opened_tables.opened(self.path), self.path, wanted)
        self.commit(*actions)
        self.columns = [(name, kind) for name, kind, _ in columns]

    def replace_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Begin the table again with other columns and no row, where column mapping is off."""
        table = opened_tables.opened(self.path)
        fields = [{"name": name, "type": delta_type(kind), "nullable": True, "metadata": {}} for name, kind in columns]
        text = json.dumps({"type": "struct", "fields": fields})
        metadata = plain_tables.metadata_with(table, text, table.metadata().configuration)
        self.commit(metadata, *map(plain_tables.removed, self.files))
        self.columns = list(columns)


Action = Callable[[PlainTable], None]
