"""``binlake.binlog.write``: a folder of binlog files, made or appended to by programs of their own.

with binlake.binlog.write("/archive/mine") as log:
    log.statement("CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)", database="shop")
    with log.transaction() as transaction:
        transaction.insert(orders, [{"id": 1, "note": "first"}])        # orders: a WrittenTable
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa

from binlake import gtid as gtids
from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations, Statement
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.events import EventType
from binlake.binlog.integrity import describe_file
from binlake.binlog.listing import list_events
from binlake.binlog.locate import executed_before, last_complete
from binlake.binlog.staged_schema import staged_schema
from binlake.binlog.transport import FileTransport
from binlake.binlog_writer import table_map_bytes
from binlake.binlog_writer.event_bytes import VERSIONS
from binlake.binlog_writer.log_writer import BinlogWriter, FileEnd, Head, RowEvent
from binlake.binlog_writer.row_bytes import RowImages
from binlake.config.units import bytes_of_mb
from binlake.errors import UsageError
from binlake.position import FIRST_OFFSET, Flavour, Slice, file_number
from binlake.schema.invalid import FAIL, KEEP_DATES, InvalidValues
from binlake.schema.lake_columns import columns_of
from binlake.schema.table import Column, TableName

_INDEX, _FIRST = "binlog.index", "binlog.000001"
_WITHOUT_TRANSACTION = (EventType.FORMAT_DESCRIPTION, EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST)
"""Events of a file that was begun alone."""
_LIST_THEM = "list all files there, oldest first, one a line; or name another folder"


@dataclass(frozen=True)
class WrittenTable:
    """A table whose rows are written. columns: in their order. key: names of the primary key's columns."""

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()


class WrittenTransaction:
    """A transaction that is being written."""

    def __init__(self, writer: BinlogWriter, flavour: Flavour) -> None:
        self._writer, self._flavour = writer, flavour

    def insert(self, table: WrittenTable, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows by column, in Python's values of the registry's Arrow types. Raises StagingError for others."""
        self._rows(table, [{"op": INSERT, "before": None, "after": row} for row in rows])

    def update(self, table: WrittenTable, rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        """Write rows as they were before and as they are after."""
        self._rows(table, [{"op": UPDATE, "before": before, "after": after} for before, after in rows])

    def delete(self, table: WrittenTable, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows as they were."""
        self._rows(table, [{"op": DELETE, "before": row, "after": None} for row in rows])

    def _rows(self, table: WrittenTable, rows: Sequence[Mapping[str, Any]]) -> None:
        place = {"file": 1, "offset": 0, "row": 0, "committed_us": 0, "gtid": None, "xid": None}
        batch = pa.RecordBatch.from_pylist(
            [{**place, **row} for row in rows], schema=staged_schema(table.columns, FAIL)
        )
        self.mutations(Mutations(table.name, table.columns, table.key, 0, batch), FAIL)

    def mutations(self, mutations: Mutations, invalid: InvalidValues = KEEP_DATES) -> None:
        """Write rows as a log's ``mutations`` gives them. invalid: the policies with which they were read. Raises
        UsageError where the rows have columns of other policies; StagingError for values that the log can't hold."""
        _refuse_other_columns(mutations, invalid)
        fields = table_map_bytes.fields_of(mutations.columns)
        described = f"{mutations.name}{mutations.columns}{mutations.key}".encode()
        table_id = int.from_bytes(hashlib.blake2b(described, digest_size=5).digest(), "little") + 1
        table_map = table_map_bytes.table_map(table_id, mutations.name, fields, mutations.key, self._flavour)
        images = RowImages(mutations, fields, invalid)
        op, held = 0, list[bytes]()
        for now, *both in zip(images.op, images.before, images.after, strict=True):
            if held and now != op:
                self._writer.rows(RowEvent(op, table_map, len(fields), held))
                held = []
            op = now
            held += [image for image in both if image is not None]
        if held:
            self._writer.rows(RowEvent(op, table_map, len(fields), held))


def _refuse_other_columns(mutations: Mutations, invalid: InvalidValues) -> None:
    """Raise UsageError where rows have other columns than their table has under these policies."""
    expected = [column.name for column in columns_of(mutations.columns, invalid)]
    for image in ("before", "after"):
        given = [field.name for field in mutations.batch.schema.field(image).type]
        if given != expected:
            differing = ", ".join(sorted({*given} ^ {*expected})) or "their order"
            raise UsageError(
                f"{mutations.name}: the rows have other columns than the table: {differing}",
                remedy="write them under the policies with which they were read: "
                "transaction.mutations(item, invalid), as in log.mutations(invalid=invalid)",
            )


class WrittenLog:
    """A folder of binlog files that this process alone writes.

    After each transaction all is on the disk. A transaction that a killed process wrote in part is cut off by the next
    process. Files of a server are continued, too, in a new file.
    """

    def __init__(self, folder: Path, flavour: Flavour, server_id: int, most: int) -> None:
        """most: bytes after which a file ends with its transaction. Raises UsageError, CorruptEvent."""
        self._folder, self._flavour, self._server_id, self._most = folder, flavour, server_id, most
        folder.mkdir(parents=True, exist_ok=True)
        self._index = _index_of(folder).open("a+")
        try:
            fcntl.flock(self._index, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._index.close()
            raise UsageError(f"another process writes into {folder}", remedy="wait for it to end") from None
        self._index.seek(0)
        self._names = [line.strip().replace("\\", "/").rpartition("/")[2] for line in self._index if line.strip()]
        self._executed = str(gtids.parse("", flavour))
        self._closed_at = FIRST_OFFSET  # where the last file ends, while none is written to
        self._file: BinaryIO | None = None
        self._writer: BinlogWriter | None = None
        try:
            if self._names:
                self._go_on(self._names[-1])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. The log can be continued later."""
        if self._writer is not None:
            self._closed_at = self._writer.end.offset
        if self._file is not None:
            self._file.close()
        self._file = self._writer = None
        self._index.close()

    def position(self) -> str:
        """Return ``FILE:OFFSET``, the end of the log."""
        offset = self._writer.end.offset if self._writer else self._closed_at
        return f"{self._names[-1] if self._names else _FIRST}:{offset}"

    @contextmanager
    def transaction(self, gtid: str | None = None, committed_us: int | None = None) -> Iterator[WrittenTransaction]:
        """Write a transaction, which ends with the block; one whose block raises isn't written.

        gtid: as the server writes it. committed_us: µs since 1970 UTC; by default now.
        """
        with self._whole(gtid, committed_us) as (writer, head):
            writer.begin(head)
            yield WrittenTransaction(writer, self._flavour)
            writer.commit()

    def statement(
        self, text: str, *, database: str = "", gtid: str | None = None, committed_us: int | None = None
    ) -> None:
        """Write a statement that is a transaction by itself, such as CREATE TABLE. database: its default database."""
        with self._whole(gtid, committed_us) as (writer, head):
            logged = Statement(self._names[-1], writer.end.offset, 0, head.committed_us, gtid, database, 0, text)
            writer.statement(head, logged)

    @contextmanager
    def _whole(self, gtid: str | None, committed_us: int | None) -> Iterator[tuple[BinlogWriter, Head]]:
        """Let the block write a transaction, which is taken back if it raises."""
        head = Head(time.time_ns() // 1000 if committed_us is None else committed_us, gtid)
        writer = self._writer_of(head)
        before = FileEnd(writer.end.offset, writer.end.transactions, writer.end.last_us)
        try:
            yield writer, head
        except BaseException:
            self._take_back(before)
            raise
        self._written(gtid)

    # files ------------------------------------------------------------------------------------------------------------
    def _go_on(self, name: str) -> None:
        """Open the last file behind its last whole transaction, unless it is closed by a ROTATE, or a server's."""
        transport = FileTransport(self._folder)
        description = describe_file(transport, name)
        self._flavour = "mariadb" if description.mariadb else "mysql"
        size = transport.whole_events(name)
        end, known = last_complete(transport, Slice(name, FIRST_OFFSET, size, 0, whole=False))
        self._executed = str(executed_before(transport, name, size).adding(known))
        whole = Slice(name, FIRST_OFFSET, end, 0, whole=False)
        kinds = [event.kind for event in list_events(transport, whole)]
        boundaries = list(transaction_boundaries(transport, whole))
        self._closed_at = end
        if description.server_version != VERSIONS[self._flavour] and end < (self._folder / name).stat().st_size:
            raise UsageError(f"{name} ends inside a transaction", remedy="copy the whole file first")
        if description.server_version != VERSIONS[self._flavour] or kinds[-1] == EventType.ROTATE:
            return
        self._file = (self._folder / name).open("r+b")
        os.truncate(self._file.fileno(), end)
        self._file.seek(end)
        last_us = boundaries[-1].committed_us if boundaries else 0
        self._writer = BinlogWriter(
            self._file, self._flavour, server_id=self._server_id, end=FileEnd(end, len(boundaries), last_us)
        )

    def _writer_of(self, head: Head) -> BinlogWriter:
        """Return the writer of the present file; of a new one where that is full, or there is none. Raises UsageError,
        CorruptEvent."""
        if self._writer is None or self._writer.end.offset >= self._most:
            name = self._next()
            if self._writer is not None:
                self._writer.close(name)
                self._sync()
                assert self._file is not None
                self._file.close()
                self._closed_at, self._writer = self._writer.end.offset, None
            self._file = (self._folder / name).open("w+b")
            self._writer = BinlogWriter.begun(
                self._file, self._flavour, server_id=self._server_id, created_us=head.committed_us,
                previous_gtids=self._executed,
            )  # fmt: skip
            self._sync()
            self._index.write(f"./{name}\n")
            self._index.flush()
            os.fsync(self._index.fileno())
            self._names.append(name)
        return self._writer

    def _next(self) -> str:
        """Return the name of the next file. Raises UsageError where somebody else's has it, CorruptEvent."""
        name = _after(self._names[-1]) if self._names else _FIRST
        path, transport = self._folder / name, FileTransport(self._folder)
        if path.exists() and path.stat().st_size:
            there = Slice(name, FIRST_OFFSET, transport.whole_events(name), 0, whole=False)
            if any(event.kind not in _WITHOUT_TRANSACTION for event in list_events(transport, there)):
                unlisted = f"{self._folder} has a {name} that {Path(self._index.name).name} doesn't list"
                raise UsageError(unlisted, remedy=_LIST_THEM)
        return name

    def _take_back(self, end: FileEnd) -> None:
        assert self._file is not None
        self._file.flush()
        os.truncate(self._file.fileno(), end.offset)
        self._file.seek(end.offset)
        self._writer = BinlogWriter(self._file, self._flavour, server_id=self._server_id, end=end)

    def _written(self, gtid: str | None) -> None:
        self._sync()
        if gtid:
            self._executed = str(gtids.parse(self._executed, self._flavour).adding([gtid]))

    def _sync(self) -> None:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())


def _index_of(folder: Path) -> Path:
    """Return the place of a folder's index file. Raises UsageError where nothing says which files are the log's."""
    index, others = folder / _INDEX, [*folder.glob("*.index")]
    if index.exists() or len(others) == 1:
        return index if index.exists() else others[0]
    if others or any(entry.suffix[1:].isdigit() for entry in folder.iterdir()):
        raise UsageError(f"{folder} has binlog files, and no index that lists them", remedy=f"{index}: {_LIST_THEM}")
    return index


def _after(name: str) -> str:
    """Return the name of the file that follows another."""
    stem, _, digits = name.rpartition(".")
    return f"{stem}.{file_number(name) + 1:0{len(digits)}d}"


def write(folder: str | Path, *, flavour: Flavour = "mysql", server_id: int = 1, file_mb: float = 256) -> WrittenLog:
    """Open a folder of binlog files to append to it, and make it where it isn't there.

    flavour: the kind of server as whose log a new one is written. server_id: of its events. file_mb: MB (10**6 bytes)
    after which a file ends. Raises UsageError if another process writes into it, CorruptEvent.
    """
    return WrittenLog(Path(folder), flavour, server_id, bytes_of_mb(file_mb))
