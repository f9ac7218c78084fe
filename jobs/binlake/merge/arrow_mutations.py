"""A table's staged mutations as Arrow, in the order of the log: what ``mutations.py`` gives Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.binlog.border import UPDATE
from binlake.binlog.staged_schema import staged_schema
from binlake.binlog.versioned_rows import of_current_rows
from binlake.delta.key_ranges import image_column
from binlake.errors import LeftToSpark
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.shared_reads import SMALL, SharedReads
from binlake.planner.manifest import StagedFile
from binlake.planner.rolled_back_rows import is_void
from binlake.planner.steps import Life, MergeStep, XaCommit
from binlake.planner.xa_outcomes import outcomes_of
from binlake.schema.datatypes import made_of_bytes
from binlake.schema.invalid import InvalidValues
from binlake.schema.types.datatype import StoredBytes

SEQUENCE = ("file", "offset", "row")
COMMIT = ("committed_us", "gtid")
IMAGES = ("op", "before", "after")
HELD = "held "
"""Column with the offset at which a row of an XA transaction was logged; 0 for other rows. A name of binlake's own."""
NUMBER = "number "
"""Column with the number of a mutation among all that are logged in its place."""


@dataclass(frozen=True)
class StagedMutations:
    """The staged mutations of one epoch.

    life: the table's; mutations that were logged before its snapshot aren't read. most: bytes of memory that rows may
    take; where they take more, LeftToSpark is raised. reads: where others read the same files.
    """

    life: Life
    step: MergeStep
    invalid: InvalidValues
    most: int
    reads: SharedReads = field(default_factory=SharedReads)

    @classmethod
    def of(cls, epoch: MirrorEpoch) -> StagedMutations:
        """Return those of an epoch, whose rows may take ``epoch.room`` bytes of memory."""
        return cls(epoch.life, epoch.step, epoch.config.invalid, epoch.room, epoch.reads)

    def ordered(self) -> pa.Table:
        """Return the epoch's mutations after the snapshot: IMAGES, SEQUENCE, COMMIT and HELD.

        Rows of an XA transaction have the place and commit of its outcome, and are numbered there. Rows that were
        rolled back are left out. Of a system-versioned table only the changes of current rows are returned. Raises
        LeftToSpark, StagingError.
        """
        return self._current(_numbered(self.placed()))

    def placed(self) -> pa.Table:
        """Return the places of the same mutations, in their order.

        SEQUENCE and HELD compare as the log does, also with those of other tables: rows of XA transactions keep the
        numbers that they have in their events. Raises what ``ordered`` does.
        """
        parts = [_plain(rows, file) for file, rows in self._read(self.step.files, ("xid", *COMMIT))]
        held = self._read(_files_of_xa(self.step), ("xid", *COMMIT))
        ended = defaultdict(list)
        for file, commit in self.step.xa:
            ended[file.path].append(commit)
        parts += [_committed(rows, file, ended[file.path]) for file, rows in held]
        rows = _behind(pa.concat_tables(parts, promote_options="default"), self.life.low.order)
        return in_order(rows, ("file", "offset", HELD, "row"))

    def newest(self, more: Sequence[str] = ()) -> pa.Table:
        """Return IMAGES of the same mutations in their order: the columns for their commits are a third of the bytes of
        short ones. more: of COMMIT and SEQUENCE, what is wanted all the same. Raises what ``ordered`` does."""
        if self._are_moved:
            return self.ordered().select([*IMAGES, *more])
        commit = [name for name in more if name in COMMIT]
        parts = [rows for _, rows in self._read(self.step.files, commit)]
        rows = pa.concat_tables(parts, promote_options="default")
        if self._begin_before:
            rows = _behind(rows, self.life.low.order)
        return in_order(rows, SEQUENCE).drop_columns([name for name in SEQUENCE if name not in more])

    def newest_in_parts(self, more: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Yield what ``newest`` returns, of large files some 16 MiB of memory at a time."""
        files = self.step.files
        small = sum(file.bytes for file in files) <= SMALL
        if small or self._are_moved or self._begin_before or not self._lie_in_order():
            yield self.newest(more)
            return
        room = self.most
        for file in files:
            for part in self.reads.parts(file, (*IMAGES, *more)):
                room -= part.nbytes
                if room < 0:
                    raise self._too_large()
                yield self._as_staged(part, file).select([*IMAGES, *more])
                del part
                pa.default_memory_pool().release_unused()  # half as much again, of what is read in small pieces

    def unordered(self, share: tuple[int, int] = (0, 1), more: Sequence[str] = COMMIT) -> Iterator[pa.Table]:
        """Yield what ``ordered`` returns in no order, some 16 MiB of memory at a time, with NUMBER.

        Rows of XA transactions keep the numbers that they have in their events. share: of the row groups of files with
        other rows, see ``parquet_files.read_parts``. more: what is wanted of COMMIT. Raises OSError and ArrowException.
        """
        for file in self.step.files:
            for part in self._parts(file, more, share):
                yield self._current(_with_number(_plain(part, file)))
        ended = defaultdict(list)
        for file, commit in self.step.xa:
            ended[file.path].append(commit)
        for file in _files_of_xa(self.step):
            counts: Counter[tuple[int, int]] = Counter()
            for part in self._parts(file, COMMIT):
                yield self._current(_counted(_committed(part, file, ended[file.path]), counts))

    def _parts(self, file: StagedFile, more: Sequence[str], share: tuple[int, int] = (0, 1)) -> Iterator[pa.Table]:
        wanted = [*IMAGES, *SEQUENCE, *more, *(["xid"] if file.xids else ())]
        for part in self.reads.parts(file, wanted, share=share):
            yield self._as_staged(part, file)

    def _current(self, rows: pa.Table) -> pa.Table:
        """Return the mutations after the snapshot; of a system-versioned table the changes of current rows."""
        rows, row_end = _behind(rows, self.life.low.order), self.step.schema.row_end
        if row_end is None or not rows.num_rows:
            return rows
        return pa.Table.from_batches([of_current_rows(batch, row_end) for batch in rows.to_batches()])

    def _lie_in_order(self) -> bool:
        """Return whether the rows of the files, one after the other, are in the order of the log."""
        parts = [part for file in self.step.files for part in self.reads.parts(file, SEQUENCE, narrow=True)]
        return _is_in_order(pa.concat_tables(parts), SEQUENCE)

    @property
    def _are_moved(self) -> bool:
        """Return whether mutations have other places than those where they were logged, or none."""
        step = self.step
        return bool(step.xa or step.schema.row_end or any(file.xids or file.void for file in step.files))

    @property
    def _begin_before(self) -> bool:
        """Return whether mutations may have been logged before the snapshot."""
        return min(file.first[:2] for file in self.step.files) < self.life.low.order

    def _read(self, files: Sequence[StagedFile], more: Sequence[str]) -> list[tuple[StagedFile, pa.Table]]:
        """Read IMAGES, SEQUENCE and ``more`` of staged files. Raises LeftToSpark."""
        parts: list[tuple[StagedFile, pa.Table]] = []
        for file in files:
            room = self.most - sum(rows.nbytes for _, rows in parts)
            rows = self.reads.read(file, room, (*IMAGES, *SEQUENCE, *more))
            if rows is None:
                raise self._too_large()
            parts.append((file, self._as_staged(rows, file)))
        return parts

    def _as_staged(self, rows: pa.Table, file: StagedFile) -> pa.Table:
        """Return rows of a staged file with the types that they were staged with, or dictionaries of these."""
        schema = staged_schema(file.columns, self.invalid)
        fields = [field if pa.types.is_dictionary(field.type) else schema.field(field.name) for field in rows.schema]
        rows = rows.cast(pa.schema(fields))
        return _with_values(rows, made_of_bytes(self.step.schema.logged, file.columns))

    def _too_large(self) -> LeftToSpark:
        return LeftToSpark(f"the staged rows take more than {self.most / 1e6:,.0f} MB of memory")


def _files_of_xa(step: MergeStep) -> list[StagedFile]:
    """Return the files that hold rows of XA transactions, each once."""
    return list({file.path: file for file, _ in step.xa}.values())


def _plain(rows: pa.Table, file: StagedFile) -> pa.Table:
    """Return the rows outside XA transactions that weren't rolled back."""
    rows = rows.filter(pc.is_null(rows["xid"])) if file.xids else rows
    rows = rows.filter(pa.array(~_is_void(rows, file))) if file.void else rows
    rows = rows.drop_columns(["xid"]) if "xid" in rows.column_names else rows
    return rows.append_column(HELD, pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows))


def _is_void(rows: pa.Table, file: StagedFile) -> NDArray[np.bool_]:
    """Return which rows were rolled back."""
    return is_void(file, rows["offset"].to_numpy(), rows["row"].to_numpy())


def _committed(rows: pa.Table, file: StagedFile, commits: Sequence[XaCommit]) -> pa.Table:
    """Return the rows of XA transactions that these didn't take back, at the places of their outcomes."""
    xid = rows["xid"].combine_chunks()
    ended = outcomes_of(commits, xid, *(rows[name].to_numpy() for name in ("file", "offset")))
    ended[_is_void(rows, file)] = -1
    rows, ended = rows.filter(pa.array(ended >= 0)).drop_columns(["xid"]), ended[ended >= 0]
    outcome = {
        "file": pa.array([commit.committed[0] for commit in commits], pa.int64()),
        "offset": pa.array([commit.committed[1] for commit in commits], pa.int64()),
        "committed_us": pa.array([commit.committed_us for commit in commits], pa.int64()),
        "gtid": pa.array([commit.gtid for commit in commits], pa.string()),
    }
    rows = rows.append_column(HELD, rows["offset"])
    for name, values in outcome.items():
        place = rows.schema.get_field_index(name)
        own = values.take(pa.array(ended)).cast(rows.schema.field(name).type)
        rows = rows.set_column(place, rows.schema.field(name), own)
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


def _with_number(rows: pa.Table) -> pa.Table:
    return rows.append_column(NUMBER, rows["row"])


def _counted(rows: pa.Table, counts: Counter[tuple[int, int]]) -> pa.Table:
    """Number the rows of XA transactions among those of their outcome. counts: of those that came before, by the
    outcome's place."""
    places = np.column_stack([rows[name].to_numpy() for name in ("file", "offset")])
    numbers = np.zeros(len(places), np.int64)
    if len(places):
        outcomes, of_row, found = np.unique(places, axis=0, return_inverse=True, return_counts=True)
        order = np.argsort(of_row.reshape(-1), kind="stable")
        within = np.arange(len(order)) - np.repeat(np.cumsum(found) - found, found)
        before = np.array([counts[int(file), int(offset)] for file, offset in outcomes])
        numbers[order] = within + np.repeat(before, found)
        counts.update({(int(file), int(offset)): int(n) for (file, offset), n in zip(outcomes, found, strict=True)})
    return rows.append_column(NUMBER, pa.array(numbers))


def _with_values(rows: pa.Table, stored: Mapping[str, StoredBytes]) -> pa.Table:
    """Return staged rows with values in the place of these columns' bytes."""
    for image in ("before", "after") if stored else ():
        place = rows.schema.get_field_index(image)
        struct = rows[image].combine_chunks()
        fields = [field.name for field in struct.type]
        arrays = [
            stored[name].values(array) if name in stored else array
            for name, array in zip(fields, struct.flatten(), strict=True)
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


def moved(key: Sequence[str], staged: pa.Table) -> pa.ChunkedArray:
    """Return for each mutation whether it is an update that changes the key. key: its columns."""
    differs = [
        pc.fill_null(pc.not_equal(image_column(staged, "before", name), image_column(staged, "after", name)), True)
        for name in key
    ]
    moves = differs[0]
    for more in differs[1:]:
        moves = pc.or_(moves, more)
    return pc.and_(pc.equal(staged["op"], UPDATE), moves)
