"""A table's staged mutations as Arrow, in the order of the log: what ``mutations.py`` gives Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.batch.manifest import StagedFile
from binlake.batch.steps import Life, MergeStep, XaCommit
from binlake.binlog.border import UPDATE
from binlake.binlog.staged_schema import staged_schema
from binlake.binlog.versioned_rows import of_current_rows
from binlake.delta.key_ranges import image_column
from binlake.errors import LeftToSpark
from binlake.merge.shared_reads import SMALL, SharedReads
from binlake.schema.invalid import InvalidValues
from binlake.schema.render import vectors, vectors_in_bytes
from binlake.schema.table import TableSchema
from binlake.storage import parquet_files

SEQUENCE = ("file", "offset", "row")
COMMIT = ("committed_us", "gtid")
IMAGES = ("op", "before", "after")
HELD = "held "
"""Column with the offset at which a row of an XA transaction was logged; 0 for other rows. A name of binlake's own."""


def ordered_mutations(
    life: Life, step: MergeStep, invalid: InvalidValues, most: int, reads: SharedReads | None = None
) -> pa.Table:
    """Return the epoch's mutations after the snapshot: IMAGES, SEQUENCE, COMMIT and HELD.

    Rows of an XA transaction have the place and commit of its outcome, and are numbered there. Rows that were rolled
    back are left out. Of a system-versioned table there is what became of the current rows. reads: where others read
    the same files. Raises LeftToSpark where the rows take more than ``most`` bytes of memory; StagingError.
    """
    rows = _numbered(placed_mutations(life, step, invalid, most, reads))
    if step.schema.row_end is None or not rows.num_rows:
        return rows
    return pa.Table.from_batches([of_current_rows(batch, step.schema.row_end) for batch in rows.to_batches()])


def placed_mutations(
    life: Life, step: MergeStep, invalid: InvalidValues, most: int, reads: SharedReads | None = None
) -> pa.Table:
    """Return what is logged of the same mutations, in their order.

    SEQUENCE and HELD compare as the log does, also with those of other tables: rows of XA transactions keep the numbers
    that they have in their events. Raises what ``ordered_mutations`` does.
    """
    names = ("xid", *COMMIT)
    parts = [_plain(rows, file) for file, rows in _read(step.files, step, invalid, most, names, reads)]
    held = _read(_files_of_xa(step), step, invalid, most, names, reads)
    parts += [
        _committed(rows, file, commit) for file, rows in held for other, commit in step.xa if other.path == file.path
    ]
    rows = _behind(pa.concat_tables(parts, promote_options="default"), life.low.order)
    return in_order(rows, ("file", "offset", HELD, "row"))


def newest_mutations(
    life: Life,
    step: MergeStep,
    invalid: InvalidValues,
    most: int,
    more: Sequence[str] = (),
    reads: SharedReads | None = None,
) -> pa.Table:
    """Return IMAGES of the same mutations in their order: who committed them, and when, is a third of the bytes of
    short ones. more: of COMMIT and SEQUENCE, what is wanted all the same. Raises what ``ordered_mutations`` does."""
    if _are_moved(step):
        return ordered_mutations(life, step, invalid, most, reads).select([*IMAGES, *more])
    commit = [name for name in more if name in COMMIT]
    parts = [rows for _, rows in _read(step.files, step, invalid, most, commit, reads)]
    rows = pa.concat_tables(parts, promote_options="default")
    if _begins_before(step, life):
        rows = _behind(rows, life.low.order)
    return in_order(rows, SEQUENCE).drop_columns([name for name in SEQUENCE if name not in more])


def newest_in_parts(
    life: Life,
    step: MergeStep,
    invalid: InvalidValues,
    most: int,
    more: Sequence[str] = (),
    reads: SharedReads | None = None,
) -> Iterator[pa.Table]:
    """Yield what ``newest_mutations`` returns, of large files some 16 MiB of memory at a time."""
    small = sum(file.bytes for file in step.files) <= SMALL
    if small or _are_moved(step) or _begins_before(step, life) or not _are_in_order(step.files):
        yield newest_mutations(life, step, invalid, most, more, reads)
        return
    room = most
    for file in step.files:
        for part in parquet_files.read_parts(file.path, (*IMAGES, *more)):
            room -= part.nbytes
            if room < 0:
                raise _too_large(most)
            yield _as_staged(part, file, step, invalid).select([*IMAGES, *more])
            del part
            pa.default_memory_pool().release_unused()  # half as much again, of what is read in small pieces


def _are_in_order(files: Sequence[StagedFile]) -> bool:
    """Tell whether the rows of these files, one after the other, are in the order of the log."""
    parts = [part for file in files for part in parquet_files.read_parts(file.path, SEQUENCE, narrow=True)]
    return _is_in_order(pa.concat_tables(parts), SEQUENCE)


def _are_moved(step: MergeStep) -> bool:
    """Tell whether mutations have other places than those where they were logged, or none."""
    return bool(step.xa or step.schema.row_end or any(file.xids or file.void for file in step.files))


def _begins_before(step: MergeStep, life: Life) -> bool:
    return min(file.first[:2] for file in step.files) < life.low.order


def _files_of_xa(step: MergeStep) -> list[StagedFile]:
    """Return the files that hold rows of XA transactions, each once."""
    return list({file.path: file for file, _ in step.xa}.values())


def _read(
    files: Sequence[StagedFile],
    step: MergeStep,
    invalid: InvalidValues,
    most: int,
    more: Sequence[str],
    reads: SharedReads | None,
) -> list[tuple[StagedFile, pa.Table]]:
    """Read IMAGES, SEQUENCE and ``more`` of staged files. Raises LeftToSpark."""
    parts: list[tuple[StagedFile, pa.Table]] = []
    reads = reads or SharedReads()
    for file in files:
        room = most - sum(rows.nbytes for _, rows in parts)
        rows = reads.read(file, room, (*IMAGES, *SEQUENCE, *more))
        if rows is None:
            raise _too_large(most)
        parts.append((file, _as_staged(rows, file, step, invalid)))
    return parts


def _as_staged(rows: pa.Table, file: StagedFile, step: MergeStep, invalid: InvalidValues) -> pa.Table:
    """Return rows of a staged file with the types that they were staged with, or dictionaries of these."""
    schema = staged_schema(file.columns, invalid)
    fields = [field if pa.types.is_dictionary(field.type) else schema.field(field.name) for field in rows.schema]
    rows = rows.cast(pa.schema(fields))
    return _with_vectors(rows, vectors_in_bytes(step.schema.logged, file.columns))


def _too_large(most: int) -> LeftToSpark:
    return LeftToSpark(f"the staged rows take more than {most / 1e6:,.0f} MB of memory")


def _plain(rows: pa.Table, file: StagedFile) -> pa.Table:
    """Return the rows outside XA transactions that weren't rolled back."""
    rows = rows.filter(pc.is_null(rows["xid"])) if file.xids else rows
    rows = rows.filter(pa.array(~_is_void(rows, file))) if file.void else rows
    rows = rows.drop_columns(["xid"]) if "xid" in rows.column_names else rows
    return rows.append_column(HELD, pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows))


def _is_void(rows: pa.Table, file: StagedFile) -> NDArray[np.bool_]:
    """Tell which rows were rolled back."""
    offset, row = (rows[name].to_numpy() for name in ("offset", "row"))
    void = np.zeros(rows.num_rows, np.bool_)
    for first, first_row, last, last_row in file.void:
        begun = (offset > first) | ((offset == first) & (row >= first_row))
        void |= begun & ((offset < last) | ((offset == last) & (row < last_row)))
    return void


def _committed(rows: pa.Table, file: StagedFile, commit: XaCommit) -> pa.Table:
    """Return the rows of an XA transaction that it didn't take back, at the place of its outcome."""
    held = rows["offset"].to_numpy()
    inside = (held > commit.after) & (held <= commit.prepared) & (rows["file"].to_numpy() == commit.file)
    inside &= ~_is_void(rows, file)
    rows = rows.filter(pc.and_(pc.equal(rows["xid"], commit.xid), pa.array(inside))).drop_columns(["xid"])
    outcome = {
        "file": pa.scalar(commit.committed[0]), "offset": pa.scalar(commit.committed[1]),
        "committed_us": pa.scalar(commit.committed_us), "gtid": pa.scalar(commit.gtid, pa.string()),
    }  # fmt: skip
    rows = rows.append_column(HELD, rows["offset"])
    for name, value in outcome.items():
        place = rows.schema.get_field_index(name)
        same = pa.repeat(value, rows.num_rows).cast(rows.schema.field(name).type)
        rows = rows.set_column(place, rows.schema.field(name), same)
    return rows


def _behind(rows: pa.Table, low: tuple[int, int]) -> pa.Table:
    """Return the mutations after the snapshot."""
    here = pc.and_(pc.equal(rows["file"], low[0]), pc.greater_equal(rows["offset"], low[1]))
    behind = pc.or_(pc.greater(rows["file"], low[0]), here)
    return rows if pc.all(behind).as_py() else rows.filter(behind)  # to filter them costs a copy of them all


def _numbered(rows: pa.Table) -> pa.Table:
    """Number the rows of each XA transaction, whose numbers are those of the events in which they were logged."""
    held = rows[HELD].to_numpy() != 0
    if not held.any():
        return rows
    file, offset = rows["file"].to_numpy(), rows["offset"].to_numpy()
    begins = np.append(True, (file[1:] != file[:-1]) | (offset[1:] != offset[:-1]))
    count = np.arange(rows.num_rows)
    first = np.maximum.accumulate(np.where(begins, count, 0))
    numbers = np.where(held, count - first, rows["row"].to_numpy())
    return rows.set_column(rows.schema.get_field_index("row"), "row", pa.array(numbers, pa.int64()))


def _with_vectors(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return staged rows with lists of floats in the place of these columns' bytes."""
    for image in ("before", "after") if names else ():
        place = rows.schema.get_field_index(image)
        struct = rows[image].combine_chunks()
        fields = [field.name for field in struct.type]
        arrays = [
            vectors(array) if name in names else array for name, array in zip(fields, struct.flatten(), strict=True)
        ]
        made = pa.StructArray.from_arrays(arrays, fields, mask=pc.is_null(struct))
        rows = rows.set_column(place, pa.field(image, made.type), made)
    return rows


def in_order(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the rows in ascending order of these columns; sorting them would cost a copy of rows that are in order."""
    if _is_in_order(rows, names):
        return rows
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in names]))


def _is_in_order(rows: pa.Table, names: Sequence[str]) -> bool:
    above = np.zeros(max(rows.num_rows - 1, 0), np.bool_)
    for name in reversed(names):
        values = rows[name].to_numpy()
        above = (values[1:] > values[:-1]) | ((values[1:] == values[:-1]) & above)
    return bool(above.all())


def moved(schema: TableSchema, staged: pa.Table) -> pa.ChunkedArray:
    """Tell for each mutation whether it is an update that changes the key."""
    differs = [
        pc.fill_null(pc.not_equal(image_column(staged, "before", name), image_column(staged, "after", name)), True)
        for name in schema.key
    ]
    moves = differs[0]
    for more in differs[1:]:
        moves = pc.or_(moves, more)
    return pc.and_(pc.equal(staged["op"], UPDATE), moves)
