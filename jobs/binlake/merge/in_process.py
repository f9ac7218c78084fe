"""Merge one epoch of a table without Spark, in one Delta commit: what MERGE would do, without its planning and a JVM.

Delta's statistics tell which data files may hold a changed key; in them the rows are found by the key. Few bytes are
written anew without the changed rows. In more of them the rows are marked by deletion vectors, so that the cost grows
with the change and not with the table; so they are in a file that is large for its age, or batches of seconds would
write whole tables each time. The new and changed rows become a data file, together with the rows of the smallest files
that may hold a changed key, and with those of all very small ones where there are many: batches of seconds would leave
thousands of them, to be looked into by each further batch.
The commit takes the version behind the one that was read, or fails; then the step begins again.

Rows of a table without a key are found by all their values, in the files of a table up to the limit; where nothing but
inserts was logged, no file is read.

Rows that foreign keys changed below the log are derived (derived_in_process.py), and merged with those of the log.

Only plain rows and tables are merged here, with or without column mapping; the older data files of a table may have
narrower types, by Delta's type widening. Anything else raises LeftToSpark with the reason: constraints, change data
feeds, columns beside the server's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyroaring import BitMap64

from binlake.batch.steps import Life, MergeStep
from binlake.config import PipelineConfig
from binlake.delta import data_rows, deletion_vectors, delta_schema, key_ranges, layout, plain_tables, recent_rows
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.delta_log import STEPS_PER_BATCH, LakeLog
from binlake.delta.plain_files import added_file, delta_type
from binlake.delta.plain_tables import OwnCommit, removed
from binlake.errors import LeftToSpark
from binlake.faults import fault
from binlake.merge import casts, derived_in_process, key_places, turns
from binlake.merge.newest import PLACE, check_key, newest_rows
from binlake.merge.rows_without_key import Copies, net_rows
from binlake.merge.shared_reads import SharedReads
from binlake.schema.lake_columns import LakeColumn
from binlake.storage import parquet_files

MOST_ROWS = 5_000_000
"""Staged rows that are held at once."""
MOST_FILES = 500
"""Data files that are looked into."""
SMALL = layout.FEW_BYTES
"""Bytes of data files up to which those that hold changed rows are written anew, unless they were written lately: each
deletion vector costs every reader. Also what several tables may hold at once."""
UNPACKED = 8
"""Bytes in memory for each of the limit's."""
_MARKS = "delta.enableDeletionVectors"
_one_large = RLock()
"""Tables are merged side by side; of those that take much memory one at a time."""


@dataclass(frozen=True)
class _Look:
    """What tells which rows of a table's data files change, and how they are read.

    stored: the columns' fields in data files, by the lake's names. key: columns by which rows are found, all of them in
    a table without a key. changed: the staged keys, or the rows of which copies go. room: bytes of memory that what is
    read may take. is_widened: whether files may have narrower types.
    """

    table: LakeLog
    columns: Sequence[LakeColumn]
    stored: Mapping[str, pa.Field]
    key: Sequence[str]
    changed: pa.Table | Copies
    room: int
    is_widened: bool

    @property
    def stored_key(self) -> list[str]:
        """Return the names of the key's columns in data files."""
        return [self.stored[name].name for name in self.key]


@dataclass(frozen=True)
class _Changes:
    """What a commit changes. files: actions on data files that are there. rows: those of the new data file."""

    files: Sequence[DeltaAction]
    rows: pa.Table


def merge(
    table: LakeLog,
    life: Life,
    step: MergeStep,
    columns: Sequence[LakeColumn],
    config: PipelineConfig,
    *,
    version: int,
    note: dict[str, Any],
    reads: SharedReads | None = None,
) -> None:
    """Merge one epoch in one commit; repeating it changes nothing.

    columns: the lake's. reads: where others read the same staged files. Raises LeftToSpark, before anything is changed;
    CommitFailedError where somebody else committed meanwhile, or where the answer to our own commit got lost: the
    table's recorded version tells which; LakeError, OSError, ArrowException.
    """
    plain_tables.check_is_wanted(table.path, config)
    limit = config.merge.without_spark_bytes
    staged_bytes = derived_in_process.staged_bytes(step)
    _check_step(step, columns, staged_bytes, limit)
    log = table.log()
    if (table.transaction_version(log) or -1) >= version:
        return
    _check_table(log, columns)
    with _memory(staged_bytes):
        changed, newest = _changed(life, step, columns, config, version, reads)
        added = pa.table(log.get_add_actions())
        sizes = _touched(log, added, step, changed)
        if len(sizes) > MOST_FILES:
            raise LeftToSpark(f"{len(sizes):,} data files may hold changed rows, more than {MOST_FILES}")
        size = sum(sizes.values())
        if not step.schema.key and size > limit:
            raise LeftToSpark(f"it has no key, and {size / 1e6:,.1f} MB of data files, above merge.without_spark_mb")
        touched = plain_tables.actions_of(log, table.path, list(sizes))
        anew = _written_anew(log, touched, size, limit)
        paths = {add["path"] for add in anew}
        looked_into = [add for add in touched if add["path"] not in paths]
        is_widened = delta_schema.is_widened(log)
        stored = _stored_fields(log, columns)
        key = step.schema.key or [column.name for column in columns]
        look = _Look(table, columns, stored, key, changed, limit * UNPACKED, is_widened)
        if _bytes_read(look, anew, looked_into) > turns.QUICK_BYTES:
            turns.leave()
        with _memory(staged_bytes + sum(add["size"] for add in anew)):
            rewritten = _rewritten(look, anew, newest)
            if step.schema.key:
                small = [path for path in layout.many_small(added) if path not in sizes]
                rewritten = _with_small(look, log, small, rewritten)
            marked = _marked(look, looked_into, log)
            rows = key_places.in_order(rewritten.rows, look.key)
            changes = _Changes([*rewritten.files, *marked], _stored(rows, stored))
            _commit(look, log, changes, version, note)


def _changed(
    life: Life,
    step: MergeStep,
    columns: Sequence[LakeColumn],
    config: PipelineConfig,
    version: int,
    reads: SharedReads | None,
) -> tuple[pa.Table | Copies, pa.Table]:
    """Return what tells which rows change, and the rows that come."""
    most = config.merge.without_spark_bytes * UNPACKED
    if step.parents:
        return derived_in_process.newest_rows(life, step, columns, config, most)
    if not step.schema.key:
        return net_rows(life, step, columns, config, most, reads)
    return newest_rows(life, step, columns, config, version // STEPS_PER_BATCH, most, reads)


@contextmanager
def _memory(size: int) -> Iterator[None]:
    if size <= SMALL:
        yield
        return
    turns.leave()
    with _one_large:
        yield


def _check_step(step: MergeStep, columns: Sequence[LakeColumn], staged_bytes: int, limit: int) -> None:
    """Raise LeftToSpark unless the rows are told apart by their bytes, and are few enough."""
    schema, rows = step.schema, sum(file.rows for file in step.staged)
    reasons = {
        "it is a sequence": schema.sequence,
        f"{rows:,} mutations are staged, more than {MOST_ROWS:,}": rows > MOST_ROWS,
        f"{staged_bytes / 1e6:,.1f} MB are staged, above merge.without_spark_mb": staged_bytes > limit,
    }
    for reason, applies in reasons.items():
        if applies:
            raise LeftToSpark(reason)
    check_key(schema, columns)


def _check_table(log: DeltaTable, columns: Sequence[LakeColumn]) -> None:
    """Raise LeftToSpark where the table isn't plain, or has other types than its rows are written with here."""
    plain_tables.check_is_plain(log, widened=True)
    types = {field["name"]: field["type"] for field in plain_tables.fields_of(log)}
    written = {column.name: delta_type(column) for column in columns}
    others = sorted(name for name in types.keys() | written.keys() if types.get(name) != written.get(name))
    if others:
        raise LeftToSpark(f"the type of {', '.join(map(repr, others))} isn't written here")


def _stored_fields(log: DeltaTable, columns: Sequence[LakeColumn]) -> dict[str, pa.Field]:
    """Return the columns as data files have them, by the lake's names: column mapping gives them other names there."""
    fields = {field["name"]: field for field in plain_tables.fields_of(log)}
    return {column.name: plain_tables.stored_field(fields[column.name], column.arrow) for column in columns}


def _stored(rows: pa.Table, fields: Mapping[str, pa.Field]) -> pa.Table:
    """Return the lake's columns as a data file has them."""
    return pa.Table.from_arrays(rows.columns, schema=pa.schema([fields[name] for name in rows.column_names]))


def _touched(log: DeltaTable, added: pa.Table, step: MergeStep, changed: pa.Table | Copies) -> dict[str, int]:
    """Return the data files of the table that may hold a changed row: path → bytes."""
    if isinstance(changed, pa.Table):
        there = added.filter(pa.array(key_ranges.may_hold(log, added, step.schema, changed)))
    else:
        _, updated, deleted = step.counts
        there = added if updated or deleted else added.slice(0, 0)
    return dict(zip(there["path"].to_pylist(), there["size_bytes"].to_pylist(), strict=True))


def _written_anew(log: DeltaTable, touched: Sequence[DeltaAction], size: int, limit: int) -> Sequence[DeltaAction]:
    """Return which of the touched data files, of ``size`` bytes, are written anew without the changed rows."""
    if size > min(limit, SMALL):
        return layout.smallest(touched, SMALL // 4)
    return layout.old_enough(touched, plain_tables.now()) if _has_marks(log) else touched


def _bytes_read(look: _Look, anew: Sequence[DeltaAction], looked_into: Sequence[DeltaAction]) -> int:
    """Return the bytes of the data files that are written anew, and of those whose keys have to be read."""
    key = look.stored_key
    unknown = [add for add in looked_into if not recent_rows.has(f"{look.table.path}/{add['path']}", key)]
    return sum(int(add["size"]) for add in [*anew, *unknown])


def _has_marks(log: DeltaTable) -> bool:
    """Tell whether rows of the table may be marked as deleted."""
    return log.metadata().configuration.get(_MARKS) == "true"


def _rewritten(look: _Look, files: Sequence[DeltaAction], newest: pa.Table) -> _Changes:
    """Put the rows of these files that didn't change together with the newest ones. Raises LeftToSpark."""
    rows, room = [newest], look.room - newest.nbytes
    replaced: list[DeltaAction] = []
    for add in files:
        if isinstance(look.changed, Copies) and not look.changed:
            break  # all were met
        stored = _read(look, add, room, [column.name for column in look.columns])
        before = deletion_vectors.hidden(look.table.path, add)
        gone = _changed_places(look, stored, before) | before
        rows.append(data_rows.without(stored, gone))
        room -= rows[-1].nbytes
        replaced.append(add)
    return _Changes([removed(add) for add in replaced], pa.concat_tables(rows))


def _with_small(look: _Look, log: DeltaTable, paths: Sequence[str], changes: _Changes) -> _Changes:
    """Put the rows of further files together with those of the new one. Where these can't be read here, all of them
    stay."""
    try:
        together = _rewritten(look, plain_tables.actions_of(log, look.table.path, paths), changes.rows)
    except LeftToSpark:
        return changes
    return _Changes([*changes.files, *together.files], together.rows)


def _marked(look: _Look, files: Sequence[DeltaAction], log: DeltaTable) -> list[DeltaAction]:
    """Mark the changed rows as deleted in these files, and return the actions that say so. Files without any stay as
    they are, those without others go.

    Raises LeftToSpark.
    """
    if not files:
        return []
    if not _has_marks(log):
        size = sum(add["size"] for add in files)
        raise LeftToSpark(f"{size / 1e6:,.1f} MB of data files may hold changed rows, without deletion vectors")
    actions: list[DeltaAction] = []
    room = look.room
    marks: list[tuple[DeltaAction, BitMap64]] = []
    for add in files:
        if isinstance(look.changed, Copies) and not look.changed:
            break
        rows = plain_tables.rows_in(add)
        keys = _read(look, add, room, look.key)
        if keys.num_rows != rows:
            raise LeftToSpark("a data file's statistics don't count its rows")
        room -= keys.nbytes
        before = deletion_vectors.hidden(look.table.path, add)
        after = before | _changed_places(look, keys, before)
        if len(after) > len(before):
            actions.append(removed(add))
        if len(before) < len(after) < rows:
            marks.append((add, after))
    return [*actions, *plain_tables.marked(look.table.path, marks)]


def _read(look: _Look, add: DeltaAction, room: int, names: Sequence[str]) -> pa.Table:
    """Read some of the lake's columns from a data file.

    Raises LeftToSpark where they take more than ``room`` bytes of memory or have other types.
    """
    whole = len(names) == len(look.columns)
    wanted = [look.stored[name] for name in names]
    path = f"{look.table.path}/{add['path']}"
    columns = None if whole else [field.name for field in wanted]
    rows = recent_rows.of(path, columns)
    if rows is None:
        rows = parquet_files.read_within(path, room, columns, narrow=not whole)
        if rows is not None and not whole:
            recent_rows.keep_columns(path, rows)
    if rows is None or rows.nbytes > room:
        raise LeftToSpark(f"data files that may hold changed rows take more than {look.room / 1e6:,.0f} MB of memory")
    for field in wanted:
        if field.name not in rows.column_names:  # written before the column came
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return pa.table({name: _as_stored(look, rows[look.stored[name].name], look.stored[name].type) for name in names})


def _as_stored(look: _Look, values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a data file's values with their table's type. Raises LeftToSpark."""
    if values.type == kind:
        return values
    if not (look.is_widened and casts.widens(values.type, kind)):
        raise LeftToSpark("a data file has other types than its table")
    return casts.cast(values, kind)


def _changed_places(look: _Look, rows: pa.Table, hidden: BitMap64) -> BitMap64:
    """Return the numbers of a data file's rows that change, by their key, or as copies that go. hidden: rows that
    aren't there."""
    if isinstance(look.changed, Copies):
        return look.changed.met_in(rows, hidden)
    if len(look.key) == 1:
        (name,) = look.key
        return BitMap64(key_places.among(rows[name], look.changed[name].combine_chunks()))
    numbered = rows.select(look.key).append_column(PLACE, pa.array(np.arange(rows.num_rows, dtype=np.uint64)))
    matches = numbered.join(look.changed, list(look.key), join_type="left semi", use_threads=False)
    return BitMap64(matches[PLACE].to_numpy())


def _commit(look: _Look, log: DeltaTable, changes: _Changes, version: int, note: dict[str, Any]) -> None:
    """Write the data file and commit. Without its commit the file stays for VACUUM: a store may refuse a version as
    taken although the commit there is this one."""
    table, operation = look.table, "MERGE" if changes.files else "WRITE"
    own_commit = OwnCommit(operation, version, note, {} if changes.files else {"mode": "Append"}, _metrics(changes))
    actions = list(changes.files)
    if changes.rows.num_rows:
        added = added_file(table.path, changes.rows)
        recent_rows.keep(f"{table.path}/{added['path']}", changes.rows, look.stored_key)
        fault("data file written")
        actions.append({"add": added})
    plain_tables.commit(table, log, own_commit, actions)
    again = {action["add"]["path"] for action in changes.files if "add" in action}
    gone = {action["remove"]["path"] for action in changes.files if "remove" in action} - again
    recent_rows.forget(f"{table.path}/{path}" for path in gone)


def _metrics(changes: _Changes) -> dict[str, int]:
    added = sum("add" in action for action in changes.files) + bool(changes.rows.num_rows)
    gone = sum("remove" in action for action in changes.files)
    return {
        "numOutputRows": changes.rows.num_rows, "numTargetFilesAdded": added, "numTargetFilesRemoved": gone,
    }  # fmt: skip
