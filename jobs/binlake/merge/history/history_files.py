"""The data files of a history: open rows are found in them, and taken out.

Current versions lie in other files than closed ones, unless the upkeep put them together. A file without a current
version, by its statistics, isn't looked into; of the others those that may hold a changed key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from numpy.typing import NDArray
from pyroaring import BitMap64

from binlake.delta import data_rows, deletion_vectors, key_ranges, plain_tables
from binlake.delta.delta_actions import DeltaAction, counted_rows
from binlake.delta.delta_log import LakeLog
from binlake.errors import LeftToSpark
from binlake.schema.table import TableSchema
from binlake.storage import parquet_files

_LEAST_ROOM = 1 << 30
_UNPACKED = 64
"""Bytes of memory that a data file's rows may take, in all, and for each of the file's."""
_FLOATING = (pa.float32(), pa.float64())
_PLACE = "place "


@dataclass(frozen=True)
class HistoryField:
    """A column of a history. stored: as data files have it; before: as those have it that are there, None where the
    column is new."""

    name: str
    stored: pa.Field
    before: pa.Field | None

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the column of rows that were read from a data file, NULL where the file is older."""
        if self.before is None or self.before.name not in rows.column_names:
            return pa.chunked_array([pa.nulls(rows.num_rows, self.stored.type)])
        return rows[self.before.name].cast(self.stored.type)


@dataclass(frozen=True)
class OpenedFile:
    """A data file in which open rows were looked for. places: their numbers in the file, ascending. marked: the numbers
    of rows that are gone."""

    add: DeltaAction
    places: NDArray[np.int64]
    marked: BitMap64


@dataclass(frozen=True)
class HistoryFiles:
    """The data files of one version of a history. fields: of the columns behind the commit. to: the column that is NULL
    in open rows."""

    table: LakeLog
    log: DeltaTable
    fields: Sequence[HistoryField]
    to: str

    def with_open_rows(self) -> pa.Table:
        """Return the entries of Delta's log for the files that may hold open rows."""
        added = pa.table(self.log.get_add_actions())
        nulls = _statistics_of(added, "null_count", self._before(self.to).name)
        return added if nulls is None else added.filter(pc.fill_null(pc.greater(nulls, 0), True))

    def opened(self, added: pa.Table, keys: pa.Table | None, schema: TableSchema) -> list[OpenedFile]:
        """Return the open rows with these keys, by file; all open rows without keys. Some files may have none.

        Raises LeftToSpark where the log is in a form that isn't read here; OSError.
        """
        if keys is not None:
            added = added.filter(pa.array(key_ranges.may_hold(self.log, added, schema, keys)))
            keys = comparable(keys)
        adds = plain_tables.actions_of(self.log, self.table.path, added["path"].to_pylist())
        return [self._opened(add, keys, schema.key) for add in adds]

    def _opened(self, add: DeltaAction, keys: pa.Table | None, key: Sequence[str]) -> OpenedFile:
        names = [self.to] if keys is None else [self.to, *key]
        rows = self._read(add, names)
        marked = deletion_vectors.hidden(self.table.path, add)
        is_open = pc.is_null(rows[self.to]).to_numpy().copy()
        is_open[np.fromiter(marked, np.int64, len(marked))] = False
        places = np.flatnonzero(is_open).astype(np.int64)
        if keys is not None:
            wanted = comparable(rows.select(key)).filter(pa.array(is_open)).append_column(_PLACE, pa.array(places))
            places = np.sort(wanted.join(keys, list(key), join_type="left semi", use_threads=False)[_PLACE].to_numpy())
        return OpenedFile(add, places, marked)

    def rows_of(self, file: OpenedFile) -> pa.Table:
        """Read the open rows that were found in a file."""
        wanted = [field.before.name for field in self.fields if field.before]
        path = f"{self.table.path}/{file.add['path']}"
        rows = parquet_files.read_rows(path, file.places, wanted, storage=self.table.storage)
        return self._named(rows, self.fields)

    def without(self, file: OpenedFile, gone: NDArray[np.int64]) -> pa.Table:
        """Read the rows of a file that stay, without those with these numbers."""
        rows = self._read(file.add, [field.name for field in self.fields])
        return data_rows.without(rows, file.marked | BitMap64(gone.astype(np.uint64)))

    def marking(self, losses: Sequence[tuple[OpenedFile, NDArray[np.int64]]]) -> list[DeltaAction]:
        """Mark rows of files as gone; return the actions that say so."""
        marked = [(file.add, file.marked | BitMap64(gone.astype(np.uint64))) for file, gone in losses]
        left = [(add, marks) for add, marks in marked if len(marks) < counted_rows(add)]
        gone = [plain_tables.removed(file.add) for file, _ in losses]
        return [*gone, *plain_tables.marked(self.log, self.table.path, left)]

    def newest(self, names: Sequence[str]) -> str:
        """Return the greatest text in columns of positions, by the files' statistics; empty without rows."""
        added = pa.table(self.log.get_add_actions())
        texts = [_statistics_of(added, "max", self._before(name).name) for name in names]
        known = [pc.max(values).as_py() for values in texts if values is not None]
        return max((text for text in known if text), default="")

    def _before(self, name: str) -> pa.Field:
        (before,) = [field.before for field in self.fields if field.name == name]
        assert before is not None
        return before

    def _read(self, add: DeltaAction, names: Sequence[str]) -> pa.Table:
        fields = [field for field in self.fields if field.name in names]
        wanted = [field.before.name for field in fields if field.before]
        room = max(_LEAST_ROOM, int(add["size"]) * _UNPACKED)
        narrow, path = len(names) < len(self.fields), f"{self.table.path}/{add['path']}"
        rows = parquet_files.read_within(path, room, wanted, narrow=narrow, storage=self.table.storage)
        if rows is None:
            raise LeftToSpark(f"{add['path']} takes more than {room / 1e6:,.0f} MB of memory")
        return self._named(rows, fields)

    @staticmethod
    def _named(rows: pa.Table, fields: Sequence[HistoryField]) -> pa.Table:
        return pa.table({field.name: field.of(rows) for field in fields})


def comparable(keys: pa.Table) -> pa.Table:
    """Return keys as a join compares them: zeros of two signs are one key."""
    for place, field in enumerate(keys.schema):
        if field.type in _FLOATING:
            keys = keys.set_column(place, field.name, pc.add(keys[field.name], pa.scalar(0, field.type)))
    return keys


def _statistics_of(added: pa.Table, kind: str, stored: str) -> pa.Array | None:
    values = added[kind].combine_chunks() if kind in added.column_names else pa.nulls(0)
    place = values.type.get_field_index(stored) if pa.types.is_struct(values.type) else -1
    return pc.struct_field(values, [place]) if place >= 0 else None
