"""An epoch of a table without Spark, in one Delta commit: what MERGE would do, without its planning and a JVM.

The data files that may hold a changed key are looked for by Delta's statistics, and in them the rows by the key alone.
Where these files are small they are written anew without the changed rows; in larger ones the rows are marked by
deletion vectors, so that the cost follows the change and not the table. The rows that stand at last are a data file of
their own. The commit takes the place behind the very version that was read, or none: who commits meanwhile makes the
step begin again.

Only rows as plain as a snapshot leaves them are done here, under names that column mapping gave or not; whatever else a
table or a step may have is left to Spark, which knows all of Delta: constraints, change data feeds, columns beside the
server's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from numpy.typing import NDArray
from pyroaring import BitMap64

from binlake.batch.steps import Life, MergeStep
from binlake.config import PipelineConfig
from binlake.delta import deletion_vectors, key_ranges, plain_tables
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_files import added_file, delta_type
from binlake.delta.plain_tables import OwnCommit, removed
from binlake.faults import fault
from binlake.merge.newest import PLACE, newest_rows
from binlake.schema.lake_columns import LakeColumn
from binlake.storage import files, parquet_files

MOST_ROWS = 5_000_000
"""Staged rows that are held at once."""
MOST_FILES = 500
"""Data files that are looked into."""
SMALL = 16_000_000
"""Bytes of data files up to which those that hold changed rows are written anew: each deletion vector costs every
reader. Also what several tables may hold at once."""
_UNPACKED = 8
"""Bytes in memory for each of the limit's."""
_MARKS = "delta.enableDeletionVectors"
_one_large = Lock()
"""Tables are merged side by side; of those that take much memory one at a time."""


@dataclass(frozen=True)
class _Look:
    """What is looked through: a table's data files that may hold a staged key, as their log has them, and the keys.

    stored: the columns' fields in data files, by the lake's names. room: bytes of memory that what is read may take.
    """

    table: LakeLog
    columns: Sequence[LakeColumn]
    stored: Mapping[str, pa.Field]
    key: Sequence[str]
    changed: pa.Table
    touched: Sequence[DeltaAction]
    room: int


@dataclass(frozen=True)
class _Changes:
    """files: actions on those that are there. rows: what a new one holds."""

    files: Sequence[DeltaAction]
    rows: pa.Table


def merged(
    table: LakeLog,
    life: Life,
    step: MergeStep,
    columns: Sequence[LakeColumn],
    config: PipelineConfig,
    *,
    version: int,
    note: dict[str, Any],
) -> bool:
    """One epoch in one commit; repeating it changes nothing. False: it is left to Spark, and nothing was changed.

    columns: the lake's. Raises CommitFailedError where somebody else committed meanwhile, or where the answer to our
    own commit got lost: the table's recorded version tells which; LakeError, OSError, ArrowException.
    """
    limit = config.merge.without_spark_bytes
    staged_bytes = sum(file.bytes for file in step.files)
    if not _is_plain_step(step, columns) or staged_bytes > limit or not files.writes_if_absent(table.path):
        return False
    log = table.log()
    if (log.transaction_version(table.app) or -1) >= version:
        return True
    if not _is_plain_table(log, columns):
        return False
    sizes = _touched(log, step)
    touched = plain_tables.actions_of(log, table.path, list(sizes)) if len(sizes) <= MOST_FILES else None
    if touched is None:
        return False
    whole = sum(sizes.values()) <= min(limit, SMALL)
    with _memory(staged_bytes + (sum(sizes.values()) if whole else 0)):
        found = newest_rows(life, step, columns, config, limit * _UNPACKED)
        if found is None:
            return False
        changed, newest = found
        stored = _stored_fields(log, columns)
        look = _Look(table, columns, stored, step.schema.key, changed, touched, limit * _UNPACKED)
        changes = _rewritten(look, newest) if whole else _marked(look, newest, log)
        if changes is None:
            return False
        _commit(table, log, _Changes(changes.files, _stored(changes.rows, stored)), version, note)
    return True


@contextmanager
def _memory(size: int) -> Iterator[None]:
    if size <= SMALL:
        yield
        return
    with _one_large:
        yield


def _is_plain_step(step: MergeStep, columns: Sequence[LakeColumn]) -> bool:
    """Rows with a key, whose last word alone counts."""
    schema = step.schema
    special = step.parents or step.xa or schema.sequence or schema.row_end
    if special or not schema.key or not step.files or sum(file.rows for file in step.files) > MOST_ROWS:
        return False
    if any(file.xids or file.void for file in step.files):
        return False
    keys = [column for column in columns if column.source.name in schema.key]
    return not any(column.is_side or pa.types.is_floating(column.arrow) for column in keys)


def _is_plain_table(log: DeltaTable, columns: Sequence[LakeColumn]) -> bool:
    types = {field["name"]: field["type"] for field in plain_tables.fields_of(log)}
    return not plain_tables.beyond_plain(log) and types == {one.name: delta_type(one) for one in columns}


def _stored_fields(log: DeltaTable, columns: Sequence[LakeColumn]) -> dict[str, pa.Field]:
    """By the lake's names: column mapping gives a data file's columns names and numbers of their own."""
    fields = {field["name"]: field for field in plain_tables.fields_of(log)}
    return {one.name: plain_tables.stored_field(fields[one.name], one.arrow) for one in columns}


def _stored(rows: pa.Table, fields: Mapping[str, pa.Field]) -> pa.Table:
    """The lake's columns as a data file has them."""
    return pa.Table.from_arrays(rows.columns, schema=pa.schema([fields[name] for name in rows.column_names]))


def _touched(log: DeltaTable, step: MergeStep) -> dict[str, int]:
    """Of the table's data files those that may hold a staged key: path → bytes."""
    added = pa.table(log.get_add_actions())
    ranges = key_ranges.ranges_to_search(log, step.schema, step.staged)
    touched = np.full(added.num_rows, ranges is None)
    if ranges:
        bounds = key_ranges.bounds_of(log, added, step.schema)
        for one in ranges:
            touched |= np.logical_and.reduce([_meets(bounds[name], *bound) for name, bound in one.items()])
    there = added.filter(pa.array(touched))
    return dict(zip(there["path"].to_pylist(), there["size_bytes"].to_pylist(), strict=True))


def _meets(spans: key_ranges.Spans | None, low: Any, high: Any) -> NDArray[np.bool_]:
    assert spans is not None  # ranges are told of columns that have bounds alone
    found: NDArray[np.bool_] = ((spans.low <= high) & (spans.high >= low)).astype(np.bool_) & spans.found
    return found


def _rewritten(look: _Look, newest: pa.Table) -> _Changes | None:
    """The files without the changed rows, which are put together with the newest ones."""
    rows, room = [newest], look.room - newest.nbytes
    for add in look.touched:
        found = _read(look, add, room, [one.name for one in look.columns])
        if found is None:
            return None
        gone = _changed_places(look, found) | _marked_before(look, add)
        kept = np.ones(found.num_rows, np.bool_)
        kept[np.fromiter(gone, np.int64, len(gone))] = False
        rows.append(found.filter(pa.array(kept)))
        room -= rows[-1].nbytes
    return _Changes([removed(add) for add in look.touched], pa.concat_tables(rows))


def _marked(look: _Look, newest: pa.Table, log: DeltaTable) -> _Changes | None:
    """The files with the changed rows marked as deleted; those that have none are left as they are, those that have
    nothing else go."""
    if log.metadata().configuration.get(_MARKS) != "true":
        return None
    actions: list[DeltaAction] = []
    room = look.room
    marks: list[tuple[DeltaAction, BitMap64]] = []
    for add in look.touched:
        rows = json.loads(add.get("stats") or "{}").get("numRecords")
        keys = _read(look, add, room, look.key)
        if keys is None or keys.num_rows != rows:
            return None
        room -= keys.nbytes
        before = _marked_before(look, add)
        after = before | _changed_places(look, keys)
        if len(after) > len(before):
            actions.append(removed(add))
        if len(before) < len(after) < rows:
            marks.append((add, after))
    vectors = deletion_vectors.write(look.table.path, [rows for _, rows in marks]) if marks else ()
    if vectors:
        fault("rows marked")
    for (add, _), vector in zip(marks, vectors, strict=True):
        # With a vector beside them the bounds still hold, but needn't be those of a row that is there.
        stats = {**json.loads(add["stats"]), "tightBounds": False}
        told = {**add, "partitionValues": {}, "dataChange": True, "stats": json.dumps(stats), "deletionVector": vector}
        actions.append({"add": told})
    return _Changes(actions, newest)


def _read(look: _Look, add: DeltaAction, room: int, names: Sequence[str]) -> pa.Table | None:
    """Some of the lake's columns of a data file. None where they take more than ``room`` or are of other types."""
    whole = len(names) == len(look.columns)
    wanted = [look.stored[name] for name in names]
    path = f"{look.table.path}/{add['path']}"
    found = parquet_files.read_within(path, room, None if whole else [field.name for field in wanted], narrow=not whole)
    if found is None:
        return None
    for field in wanted:
        if field.name not in found.column_names:  # written before the column came
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    found = found.select([field.name for field in wanted])
    if found.schema.types != [field.type for field in wanted]:
        return None
    return pa.table(dict(zip(names, found.columns, strict=True)))


def _changed_places(look: _Look, rows: pa.Table) -> BitMap64:
    """Rows of a data file whose key is among the changed ones, by their number in it."""
    numbered = rows.select(look.key).append_column(PLACE, pa.array(np.arange(rows.num_rows, dtype=np.uint64)))
    found = numbered.join(look.changed, list(look.key), join_type="left semi", use_threads=False)
    return BitMap64(found[PLACE].to_numpy())


def _marked_before(look: _Look, add: DeltaAction) -> BitMap64:
    vector = add.get("deletionVector")
    return deletion_vectors.read(look.table.path, vector) if vector else BitMap64()


def _commit(table: LakeLog, log: DeltaTable, changes: _Changes, version: int, note: dict[str, Any]) -> None:
    """A data file without its commit stays for VACUUM: a store may say that the version was there when it is ours."""
    operation = "MERGE" if changes.files else "WRITE"
    told = OwnCommit(operation, version, note, {} if changes.files else {"mode": "Append"}, _metrics(changes))
    actions = list(changes.files)
    if changes.rows.num_rows:
        added = added_file(table.path, changes.rows)
        fault("data file written")
        actions.append({"add": added})
    plain_tables.commit(table, log, told, actions)


def _metrics(changes: _Changes) -> dict[str, int]:
    added = sum("add" in action for action in changes.files) + bool(changes.rows.num_rows)
    gone = sum("remove" in action for action in changes.files)
    return {
        "numOutputRows": changes.rows.num_rows, "numTargetFilesAdded": added, "numTargetFilesRemoved": gone,
    }  # fmt: skip
