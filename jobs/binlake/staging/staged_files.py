"""Staging: the mutations of one batch as Parquet, listed in a manifest.

    {root}/_staging/{batch}/{attempt}/{slice}/{number}.parquet
    {root}/_staging/{batch}/{attempt}/manifest.json

A file holds mutations of one table in one shape between two statements of one slice. Files that the manifest doesn't
list are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from binlake.binlog.border import (
    DELETE,
    INSERT,
    UPDATE,
    Item,
    Mutations,
    RolledBack,
    SliceSummary,
    Statement,
    Stopped,
    XaEvent,
)
from binlake.binlog.staged_schema import staged_schema
from binlake.errors import OF_CODE, LakeError, StagingError, snapshot_again, unexpected
from binlake.planner.manifest import Manifest, StagedFile, StagedSlice, without
from binlake.position import Slice, file_number
from binlake.schema.invalid import InvalidValues
from binlake.schema.table import TableName
from binlake.staging import staged_rows
from binlake.staging.staged_rows import MOST_OF_A_FILE
from binlake.storage import files

OPEN_FILES = 64
"""Staged files that a task keeps open at once; the oldest is closed, and a table's next rows get a new file."""
_SMALL = 1 << 20
"""Bytes of Arrow in a file's first batch, below which it is written in half the time, and read so: mostly no more
come."""
_FORM: Mapping[str, Any] = {"compression": "zstd", "compression_level": 1}
_SMALL_FORM: Mapping[str, Any] = {"compression": "snappy", "write_statistics": False}


def _settings(form: Mapping[str, Any], mutations: Mutations, schema: pa.Schema) -> dict[str, Any]:
    """Return the settings of a staged file's writer. Hashes have no bounds that a reader could use, and aren't
    compressed: it takes longer than to make them."""
    hashes = {column.name for column in mutations.columns if column.mask is not None and column.mask.kind == "hash"}
    if not hashes:
        return dict(form)
    parts = [part for column in schema for part in (column.flatten() if pa.types.is_struct(column.type) else [column])]
    names = {
        f"{part.name}.list.element" if pa.types.is_list(part.type) else part.name: part.name.partition(".")[2] in hashes
        for part in parts
    }
    packed = [name for name, is_hash in names.items() if not is_hash]
    settings = {**form, "compression": {name: "none" for name in names} | dict.fromkeys(packed, form["compression"])}
    if level := form.get("compression_level"):
        settings["compression_level"] = dict.fromkeys(packed, level)
    if form.get("write_statistics", True):
        settings["write_statistics"] = packed
    return settings


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Write the manifest into the staging's folder, as ``manifest.json``."""
    if not manifest.slices:
        files.make_private_folder(folder)  # no slice has made it
    files.write_text(f"{folder}/manifest.json", manifest.to_json())


def read_manifest(folder: str, batch: int, attempt: str) -> Manifest:
    """Read the manifest. Raises StagingError where it is missing, damaged or another's."""
    path = f"{folder}/manifest.json"
    try:
        manifest = Manifest.from_json(files.read_text(path))
    except (ValueError, KeyError, TypeError) as error:
        raise StagingError(f"{path} is damaged: {error}", remedy=files.STAGED_ANEW) from error
    if (manifest.batch, manifest.attempt) != (batch, attempt):
        raise StagingError(f"{path} is of batch {manifest.batch}, attempt {manifest.attempt}", remedy=files.STAGED_ANEW)
    slices = (replace(part, files=tuple(_in_folder(file, folder) for file in part.files)) for part in manifest.slices)
    return replace(manifest, slices=tuple(slices))


def _in_folder(file: StagedFile, folder: str) -> StagedFile:
    """Return a staged file with its path in the manifest's folder: a lake that is copied may have another place."""
    if file.path.startswith(f"{folder}/"):
        return file
    return replace(file, path="/".join([folder, *file.path.split("/")[-2:]]))


def check_file(file: StagedFile) -> None:
    """Compare a staged file with its manifest; raises StagingError."""
    size, checksum = files.checksum(file.path)
    if (size, checksum) != (file.bytes, file.checksum):
        raise StagingError(
            f"{file.path} differs from its manifest ({size} bytes, {file.bytes} expected)",
            remedy=files.STAGED_ANEW,
        )


@dataclass
class _OpenFile:
    """A staged file being written, and what its manifest entry will say."""

    path: str
    mutations: Mutations
    writer: pq.ParquetWriter
    sink: Any
    stack: ExitStack
    slice: int
    counts: dict[int, int] = field(default_factory=lambda: {INSERT: 0, UPDATE: 0, DELETE: 0})
    first: tuple[int, int, int] | None = None
    last: tuple[int, int, int] = (0, 0, 0)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    xids: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch)
        self._keep(batch)
        self._count(batch)
        if self.first is None:
            self.first = _sequence(batch, 0)
        self.last = _sequence(batch, batch.num_rows - 1)
        for name in self.mutations.key:
            self._widen(name, batch)

    def _keep(self, batch: pa.RecordBatch) -> None:
        """Hold the rows of a small file for the merge."""
        self.size += batch.nbytes
        if self.size <= MOST_OF_A_FILE:
            self.rows.append(batch)
        else:
            self.rows.clear()

    def _count(self, batch: pa.RecordBatch) -> None:
        if batch.column("xid").null_count == batch.num_rows:
            for item in pc.value_counts(batch.column("op")).to_pylist():
                self.counts[item["values"]] += item["counts"]
            return
        counted = (
            pa.Table.from_batches([batch.select(["xid", "op"])]).group_by(["xid", "op"]).aggregate([([], "count_all")])
        )
        for row in counted.to_pylist():
            if row["xid"] is None:
                self.counts[row["op"]] += row["count_all"]
                continue
            counts = list(self.xids.get(row["xid"], (0, 0, 0)))
            counts[(INSERT, UPDATE, DELETE).index(row["op"])] += row["count_all"]
            self.xids[row["xid"]] = (counts[0], counts[1], counts[2])

    def _widen(self, name: str, batch: pa.RecordBatch) -> None:
        """Widen the key ranges by a batch's old and new keys: a row that leaves a range is deleted there."""
        for image in ("before", "after"):
            values = batch.column(image).field(name) if name not in self.unknown else None
            if values is None or not pa.types.is_integer(values.type):
                self.unknown.add(name)
                self.ranges.pop(name, None)
                return
            ends = pc.min_max(values.filter(batch.column(image).is_valid())).as_py()
            if ends["min"] is not None:
                low, high = self.ranges.get(name, (ends["min"], ends["max"]))
                self.ranges[name] = (min(low, ends["min"]), max(high, ends["max"]))

    def close(self) -> StagedFile:
        self.writer.close()
        self.stack.close()
        assert self.first is not None
        if self.rows:
            staged_rows.keep(self.path, self.rows, self.size)
        return StagedFile(
            path=self.path,
            name=self.mutations.name,
            columns=self.mutations.columns,
            key=self.mutations.key,
            slice=self.slice,
            statements_before=self.mutations.statements_before,
            inserted=self.counts[INSERT],
            updated=self.counts[UPDATE],
            deleted=self.counts[DELETE],
            first=self.first,
            last=self.last,
            bytes=self.sink.size,
            checksum=self.sink.checksum,
            ranges=self.ranges,
            xids=self.xids,
            absent=tuple(sorted(self.absent)),
        )

    def abandon(self) -> None:
        """Close a file that nobody will read: what can't be written of it any more is no error of its own."""
        self.writer.is_open = False  # or it writes its footer when it goes
        with suppress(LakeError):
            self.stack.close()


def _sequence(batch: pa.RecordBatch, index: int) -> tuple[int, int, int]:
    return tuple(batch.column(name)[index].as_py() for name in ("file", "offset", "row"))


class SliceWriter:
    """Writer of what one slice's reader yields, below ``folder``."""

    def __init__(self, folder: str, number: int, invalid: InvalidValues) -> None:
        self._folder = folder
        self._number = number
        self._invalid = invalid
        self._open: dict[Any, _OpenFile] = {}
        self._closed: list[StagedFile] = []
        self._made = 0

    def write(self, mutations: Mutations) -> None:
        """Append mutations to the file of their table, columns and epoch. Raises LakeError."""
        key = (mutations.name, mutations.columns, mutations.statements_before)
        if key not in self._open:
            if len(self._open) >= OPEN_FILES:
                oldest = next(iter(self._open))
                self._closed.append(self._open[oldest].close())
                del self._open[oldest]
            self._open[key] = self._start(mutations)
        self._open[key].write(mutations.batch)
        self._open[key].absent.update(mutations.absent)

    def give_up(self, mutations: Mutations) -> int:
        """Remove the open files of a table whose mutations can't be written; return the offset of their first row."""
        first = _sequence(mutations.batch, 0)
        for key in [key for key, file in self._open.items() if file.mutations.name == mutations.name]:
            file = self._open.pop(key)
            file.abandon()
            first = min(first, file.first or first)
        return first[1]

    def _start(self, mutations: Mutations) -> _OpenFile:
        path = f"{self._folder}/{self._made:05d}.parquet"
        self._made += 1
        stack = ExitStack()
        sink = stack.enter_context(files.hashing_sink(path))
        form = _SMALL_FORM if mutations.batch.nbytes < _SMALL else _FORM
        schema = staged_schema(mutations.columns, self._invalid)
        writer = pq.ParquetWriter(sink, schema, use_dictionary=["gtid", "xid"], **_settings(form, mutations, schema))
        return _OpenFile(path, mutations, writer, sink, stack, self._number)

    def end_epoch(self) -> None:
        """Put what follows a statement into files of its own."""
        self._closed += [file.close() for file in self._open.values()]
        self._open.clear()

    def abandon(self) -> None:
        """Remove the open files of a slice that failed, which would take room as long as this process lives."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()

    def finish(self) -> tuple[StagedFile, ...]:
        """Close all files, and return them."""
        self.end_epoch()
        return tuple(self._closed)


Items = Iterable[Item | SliceSummary]


def slice_folder(folder: str, number: int) -> str:
    """Return the folder of one slice's files in the folder of an attempt."""
    return f"{folder}/{number:05d}"


def stage_slice(items: Items, part: Slice, number: int, folder: str, invalid: InvalidValues) -> StagedSlice:
    """Write one slice's mutations below an attempt's folder; return what the manifest says of them."""
    target = slice_folder(folder, number)
    files.make_private_folder(target)
    writer = SliceWriter(target, number, invalid)
    statements: list[Statement] = []
    stopped: list[Stopped] = []
    xa: list[XaEvent] = []
    rolled_back: list[RolledBack] = []
    executed: list[SliceSummary] = []
    refused: dict[TableName, Stopped] = {}  # with the last mutation that wasn't staged

    def write(mutations: Mutations) -> None:
        """Write a table's mutations; an unexpected error stops the table there, and the others continue."""
        name = mutations.name
        if name not in refused:
            try:
                writer.write(mutations)
                return
            except OF_CODE as error:
                why, remedy = f"its mutations can't be staged: {unexpected(error)}", snapshot_again(name)
                refused[name] = Stopped(name, part.file, writer.give_up(mutations), why, remedy)
                stopped.append(refused[name])
        last = _sequence(mutations.batch, mutations.batch.num_rows - 1)[1]
        refused[name] = replace(refused[name], offset=last)

    sort: dict[type, Callable[[Any], None]] = {
        Mutations: write,
        Stopped: stopped.append,
        XaEvent: xa.append,
        RolledBack: rolled_back.append,
        SliceSummary: executed.append,
    }
    try:
        for item in items:
            if isinstance(item, Statement):
                writer.end_epoch()
                statements.append(item)
            else:
                sort[type(item)](item)
        written = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    assert all(file_number(statement.file) == file_number(part.file) for statement in statements)
    staged = tuple(without(file, rolled_back) for file in written)
    stopped += refused.values()
    whole = executed[0]
    return StagedSlice(
        number,
        staged,
        tuple(statements),
        tuple(stopped),
        tuple(xa),
        whole.gtid_set,
        whole.unchecked,
        whole.servers,
        whole.committed_us,
        ends_open=whole.ends_open,
    )
