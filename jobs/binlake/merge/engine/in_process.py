"""Merge one epoch of a table without Spark, in one Delta commit: the work of MERGE, without its planning and a JVM.

Delta's statistics show which data files may hold a changed key; in them the rows are found by the key. Few bytes are
rewritten without the changed rows. In more of them the rows are marked by deletion vectors, so that the cost grows with
the change and not with the table; so they are in a file that is large for its age, or batches of seconds would write
whole tables each time. The new and changed rows become a data file, together with the rows of the smallest files that
may hold a changed key, and with those of all very small ones where there are many: batches of seconds would leave
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

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyroaring import BitMap64

from binlake.delta import data_rows, deletion_vectors, delta_schema, key_ranges, layout, plain_tables, recent_rows
from binlake.delta.delta_actions import DeltaAction, counted_rows
from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_files import added_file
from binlake.delta.plain_tables import OwnCommit, removed
from binlake.errors import LeftToSpark
from binlake.faults import fault
from binlake.merge import casts, key_places, turns
from binlake.merge.arrow_mutations import StagedMutations
from binlake.merge.foreign_keys import derived_in_process
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.newest import PLACE, check_key, newest_rows
from binlake.merge.rows_without_key import Copies, net_rows
from binlake.schema.lake_columns import LakeColumn
from binlake.storage import parquet_files

MOST_ROWS = 5_000_000
"""Staged rows that are held at once."""
MOST_FILES = 500
"""Data files that are looked into."""
_one_large = RLock()
"""Tables are merged side by side; of those that take much memory one at a time."""


@dataclass(frozen=True)
class _Look:
    """The rows of a table's data files that change, and how they are read.

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
    """The changes of a commit. files: actions on data files that are there. rows: those of the new data file."""

    files: Sequence[DeltaAction]
    rows: pa.Table


def merge(epoch: MirrorEpoch) -> None:
    """Merge one epoch in one commit; repeating it changes nothing.

    Raises LeftToSpark, before anything is changed; CommitFailedError where somebody else committed meanwhile, or where
    the answer to our own commit got lost: the table's recorded version shows which; LakeError, OSError, ArrowException.
    """
    table, schema, columns = epoch.table, epoch.schema, epoch.columns
    limit = epoch.config.merge.without_spark_bytes
    staged_bytes = derived_in_process.staged_bytes(epoch.step)
    _check_step(epoch, staged_bytes, limit)
    log = table.opened()
    if (table.transaction_version(log) or -1) >= epoch.version:
        return
    check_table(log, columns)
    with _memory(staged_bytes):
        added = pa.table(log.get_add_actions())
        there = added if schema.key else _without_key(epoch, added, limit)
        changed, newest = _changed(epoch)
        if isinstance(changed, pa.Table):
            there = there.filter(pa.array(key_ranges.may_hold(log, there, schema, changed)))
        if there.num_rows > MOST_FILES:
            raise LeftToSpark(f"{there.num_rows:,} data files may hold changed rows, more than {MOST_FILES}")
        touched = plain_tables.actions_of(log, table.path, there["path"].to_pylist())
        to_rewrite = _written_again(log, touched, _bytes(there), limit)
        paths = {add["path"] for add in to_rewrite}
        looked_into = [add for add in touched if add["path"] not in paths]
        if (size := sum(add["size"] for add in looked_into)) > limit and not plain_tables.has_vectors(log):
            raise LeftToSpark(f"{size / 1e6:,.1f} MB of data files may hold changed rows, without deletion vectors")
        is_widened = delta_schema.is_widened(log)
        stored = stored_fields(log, columns)
        key = schema.key or [column.name for column in columns]
        look = _Look(table, columns, stored, key, changed, epoch.room, is_widened)
        if _bytes_read(look, to_rewrite, looked_into) > turns.QUICK_BYTES:
            turns.leave()
        with _memory(staged_bytes + sum(add["size"] for add in to_rewrite)):
            rewritten = _rewritten(look, to_rewrite, newest)
            if schema.key:
                small = [path for path in layout.many_small(added) if path not in {add["path"] for add in touched}]
                rewritten = _with_small(look, log, small, rewritten)
            marked = _marked(look, log, looked_into)
            rows = key_places.in_order(rewritten.rows, look.key)
            changes = _Changes([*rewritten.files, *marked], _stored(rows, stored))
            _commit(look, log, changes, epoch)


def _changed(epoch: MirrorEpoch) -> tuple[pa.Table | Copies, pa.Table]:
    """Return the keys or rows that change, and the rows that come."""
    if epoch.step.parents:
        return derived_in_process.newest_rows(epoch, epoch.room)
    if not epoch.schema.key:
        return net_rows(StagedMutations.of(epoch), epoch.images)
    return newest_rows(StagedMutations.of(epoch), epoch.images, epoch.batch)


@contextmanager
def _memory(size: int) -> Iterator[None]:
    if size <= layout.FEW_BYTES:
        yield
        return
    turns.leave()
    with _one_large:
        yield


def _check_step(epoch: MirrorEpoch, staged_bytes: int, limit: int) -> None:
    """Raise LeftToSpark unless the rows differ by their bytes, and are few enough."""
    schema, rows = epoch.schema, sum(file.rows for file in epoch.step.staged)
    reasons = {
        "it is a sequence": schema.sequence,
        f"{rows:,} mutations are staged, more than {MOST_ROWS:,}": rows > MOST_ROWS,
        f"{staged_bytes / 1e6:,.1f} MB are staged, above merge.without_spark_mb": staged_bytes > limit,
    }
    if not schema.key:  # Arrow groups no lists, and so can't count rows that are the same
        lists = any(pa.types.is_nested(column.arrow) for column in epoch.columns)
        reasons["it has no key, and a column with lists"] = lists
    for reason, applies in reasons.items():
        if applies:
            raise LeftToSpark(reason)
    check_key(schema.key, epoch.columns)


def check_table(table: DeltaTable, columns: Sequence[LakeColumn]) -> None:
    """Raise LeftToSpark where the table isn't plain, or has other types than its rows are written with here."""
    plain_tables.check_is_plain(table, widened=True)
    types = {field["name"]: field["type"] for field in plain_tables.fields_of(table)}
    written = {column.name: delta_schema.delta_type(column.delta) for column in columns}
    others = sorted(name for name in types.keys() | written.keys() if types.get(name) != written.get(name))
    if others:
        raise LeftToSpark(f"the type of {', '.join(map(repr, others))} isn't written here")


def stored_fields(table: DeltaTable, columns: Sequence[LakeColumn]) -> dict[str, pa.Field]:
    """Return the columns as data files have them, by the lake's names: column mapping gives them other names there."""
    fields = {field["name"]: field for field in plain_tables.fields_of(table)}
    return {column.name: plain_tables.stored_field(fields[column.name], column.arrow) for column in columns}


def _stored(rows: pa.Table, fields: Mapping[str, pa.Field]) -> pa.Table:
    """Return the lake's columns as a data file has them."""
    return pa.Table.from_arrays(rows.columns, schema=pa.schema([fields[name] for name in rows.column_names]))


def _without_key(epoch: MirrorEpoch, added: pa.Table, limit: int) -> pa.Table:
    """Return the data files of a table without a key that may hold a changed row: none where nothing but inserts was
    logged, else all. Raises LeftToSpark where they have more than ``limit`` bytes."""
    _, updated, deleted = epoch.step.counts
    there = added if updated or deleted else added.slice(0, 0)
    if (size := _bytes(there)) > limit:
        raise LeftToSpark(f"it has no key, and {size / 1e6:,.1f} MB of data files, above merge.without_spark_mb")
    return there


def _bytes(added: pa.Table) -> int:
    return sum(added["size_bytes"].to_pylist())


def _written_again(table: DeltaTable, touched: Sequence[DeltaAction], size: int, limit: int) -> Sequence[DeltaAction]:
    """Return those of the touched data files, of ``size`` bytes, that are rewritten without the changed rows."""
    if size > min(limit, layout.FEW_BYTES):
        return layout.smallest(touched, layout.FEW_BYTES // 4)
    return layout.old_enough(touched, plain_tables.now()) if plain_tables.has_vectors(table) else touched


def _bytes_read(look: _Look, to_rewrite: Sequence[DeltaAction], looked_into: Sequence[DeltaAction]) -> int:
    """Return the bytes of the data files that are rewritten, and of those whose keys have to be read."""
    key = look.stored_key
    unknown = [add for add in looked_into if not recent_rows.has(f"{look.table.path}/{add['path']}", key)]
    return sum(int(add["size"]) for add in [*to_rewrite, *unknown])


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


def _with_small(look: _Look, table: DeltaTable, paths: Sequence[str], changes: _Changes) -> _Changes:
    """Put the rows of further files together with those of the new one. Where these can't be read here, all of them
    stay."""
    try:
        together = _rewritten(look, plain_tables.actions_of(table, look.table.path, paths), changes.rows)
    except LeftToSpark:  # nobody needs it to be done
        return changes
    return _Changes([*changes.files, *together.files], together.rows)


def _marked(look: _Look, table: DeltaTable, files: Sequence[DeltaAction]) -> list[DeltaAction]:
    """Mark the changed rows as deleted in these files, and return the actions that say so. Files without any stay as
    they are, those without others go.

    Raises LeftToSpark.
    """
    actions: list[DeltaAction] = []
    room = look.room
    marks: list[tuple[DeltaAction, BitMap64]] = []
    for add in files:
        if isinstance(look.changed, Copies) and not look.changed:
            break
        rows = counted_rows(add)
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
    return [*actions, *plain_tables.marked(table, look.table.path, marks)]


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
        rows = parquet_files.read_within(path, room, columns, narrow=not whole, storage=look.table.storage)
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


def _commit(look: _Look, table: DeltaTable, changes: _Changes, epoch: MirrorEpoch) -> None:
    """Write the data file and commit. Without its commit the file stays for VACUUM: a store may refuse a version as
    taken although the commit there is this one."""
    log, operation = look.table, "MERGE" if changes.files else "WRITE"
    how = {} if changes.files else {"mode": "Append"}
    own_commit = OwnCommit(operation, epoch.version, epoch.note, how, _metrics(changes))
    actions = list(changes.files)
    if changes.rows.num_rows:
        added = added_file(log.path, changes.rows)
        recent_rows.keep(f"{log.path}/{added['path']}", changes.rows, look.stored_key)
        fault("data file written")
        actions.append({"add": added})
    plain_tables.commit(log, table, own_commit, actions)
    again = {action["add"]["path"] for action in changes.files if "add" in action}
    gone = {action["remove"]["path"] for action in changes.files if "remove" in action} - again
    recent_rows.forget(f"{log.path}/{path}" for path in gone)


def _metrics(changes: _Changes) -> dict[str, int]:
    added = sum("add" in action for action in changes.files) + bool(changes.rows.num_rows)
    gone = sum("remove" in action for action in changes.files)
    return {
        "numOutputRows": changes.rows.num_rows, "numTargetFilesAdded": added, "numTargetFilesRemoved": gone,
    }  # fmt: skip
