"""Delta tables that were opened before, continued by the commits behind them.

deltalake takes 3 ms to bring a small table up to date, and a process that follows a source does that to each table
behind each batch. Most commits only add and remove data files: their changes to the table's state follow here from
their actions alone. Source: Delta's protocol, "Action Reconciliation" and "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from arro3.core import Table
from deltalake import DeltaTable, Metadata, Schema
from deltalake.table import ProtocolVersions

from binlake.delta.delta_actions import Add, Commit, Replay

_COLUMNS = ("path", "size_bytes", "modification_time", "num_records", "null_count", "min", "max")
"""Columns of deltalake's add actions that are continued here: a table with partitions has more."""
OpenAt = Callable[[str, int], DeltaTable]
"""Opens the table at a path, at a version."""
_STATISTICS = {"null_count": "nullCount", "min": "minValues", "max": "maxValues"}


class ContinuedTable(DeltaTable):
    """A table at a version, to be read only. Its log is read again where it is asked for more than is known here.

    base: the table at an older version, of the same schema, settings and protocol. before: deltalake's add actions
    before ``commits``, which follow them up to the version; None where those of the base are before them. open_at:
    reads its log.
    """

    def __init__(
        self,
        path: str,
        base: DeltaTable,
        version: int,
        before: pa.Table | None,
        commits: Sequence[Commit],
        open_at: OpenAt,
    ) -> None:
        self._path, self._base, self._version, self._open_at = path, base, version, open_at
        self._before, self._commits = before, tuple(commits)
        self._storage_options = None  # a table in a store isn't continued
        self._known_paths: tuple[Sequence[str], Sequence[Commit]] | None = None
        """The paths of data files at an older version, and the commits behind it."""

    def continued(self, commits: Sequence[Commit]) -> ContinuedTable:
        """Return the table behind further commits."""
        version = self._version + len(commits)
        before, pending = (self._added, ()) if "_added" in vars(self) else (self._before, self._commits)
        later = ContinuedTable(self._path, self._base, version, before, (*pending, *commits), self._open_at)
        if "paths" in vars(self):
            later._known_paths = self.paths, tuple(commits)
        elif self._known_paths:
            later._known_paths = self._known_paths[0], (*self._known_paths[1], *commits)
        return later

    @cached_property
    def _added(self) -> pa.Table:
        """Deltalake's add actions. Many callers need the version alone, or the paths."""
        before = pa.table(self._base.get_add_actions()) if self._before is None else self._before
        if tuple(before.column_names) != _COLUMNS:
            return pa.table(super().get_add_actions())
        return _behind(before, self._commits)

    @cached_property
    def paths(self) -> Sequence[str]:
        """Return the paths of the data files, as the log has them."""
        if "_added" in vars(self) or self._before is not None:
            return list(map(str, self._added["path"].to_pylist()))
        before, commits = self._known_paths or (paths_of(self._base), self._commits)
        replay = Replay().take_all(commits)
        changed = {*replay.files, *(remove.path for remove in replay.gone.values())}
        return [*(path for path in before if path not in changed), *replay.files]

    @cached_property
    def _table(self) -> Any:  # type: ignore[override]
        return self._open_at(self._path, self._version)._table

    def version(self) -> int:
        """Return the version at which the table is."""
        return self._version

    def schema(self) -> Schema:
        """Return the schema, which is that of the base."""
        return self._base.schema()

    def metadata(self) -> Metadata:
        """Return the metadata, which are those of the base."""
        return self._base.metadata()

    def protocol(self) -> ProtocolVersions:
        """Return the protocol, which is that of the base."""
        return self._base.protocol()

    def get_add_actions(self, flatten: bool = False) -> Any:
        """Return the add actions of the data files. flatten: as deltalake reads it from the log."""
        return super().get_add_actions(flatten=True) if flatten else self._added


def continued(path: str, table: DeltaTable, commits: Sequence[Commit], open_at: OpenAt) -> DeltaTable | None:
    """Return a table behind commits of data files, which follow its version; None where deltalake has to read them.

    open_at: reads the log of the table that is returned, where it is asked for more than is known here.
    """
    if isinstance(table, ContinuedTable):
        return table.continued(commits)
    if table.metadata().partition_columns:
        return None
    return ContinuedTable(path, table, table.version() + len(commits), None, commits, open_at)


def paths_of(table: DeltaTable) -> Sequence[str]:
    """Return the paths of a table's data files, as the log has them."""
    if isinstance(table, ContinuedTable):
        return table.paths
    return list(map(str, Table.from_arrow(table.get_add_actions()).column("path").to_pylist()))


def _behind(added: pa.Table, commits: Sequence[Commit]) -> pa.Table:
    """Return the add actions behind some commits."""
    replay = Replay().take_all(commits)
    gone = {*replay.files, *(remove.path for remove in replay.gone.values())}
    if gone:
        added = added.filter(pc.invert(pc.is_in(added["path"], pa.array(gone, pa.string()))))
    if came := [_added_row(add, added.schema) for add in replay.files.values()]:
        added = pa.concat_tables([added, pa.Table.from_pylist(came, added.schema)]).combine_chunks()
    return added


def _added_row(add: Add, schema: pa.Schema) -> dict[str, Any]:
    """Return a row of deltalake's add actions. Statistics that don't fit their column's type are left out."""
    statistics = json.loads(add.stats or "{}", parse_float=Decimal)
    row: dict[str, Any] = {
        "path": add.path,
        "size_bytes": add.size,
        "modification_time": add.modified_ms,
        "num_records": statistics.get("numRecords"),
    }
    for column, name in _STATISTICS.items():
        values = statistics.get(name) or {}
        row[column] = {field.name: _typed(values.get(field.name), field.type) for field in schema.field(column).type}
    return row


def _typed(value: Any, kind: pa.DataType) -> Any:
    """Return a value of the statistics' JSON as Arrow takes it; None where it can't."""
    if value is None or (isinstance(value, str) and pa.types.is_string(kind)):
        return value
    try:
        if isinstance(value, str) and pa.types.is_timestamp(kind):
            value = datetime.fromisoformat(value)
        elif isinstance(value, str) and pa.types.is_date(kind):
            value = date.fromisoformat(value)
        elif isinstance(value, int | Decimal) and pa.types.is_floating(kind):
            value = float(value)
        return pa.scalar(value, kind).as_py()
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return None
