"""The sink ``binlog://``: a folder of binlog files, ``binlog.000001`` and so on, listed in ``binlog.index``.

``_position.json`` has the last file's length at the last commit, with the feed's position. Bytes that a killed run
wrote after that are truncated when the next run opens the folder, so that the files have each transaction once.
Transactions carry the source's GTIDs: applied twice, they change nothing. A file ends between transactions; a full one
ends with ROTATE. Databases and tables are created by statements that binlog_events sends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from binlake import gtid
from binlake.binlog.border import Statement
from binlake.binlog_writer.log_writer import EVENT_BYTES, BinlogWriter, FileEnd, Head, RowEvent
from binlake.config.units import bytes_of_mb
from binlake.errors import ConfigurationError
from binlake.feeds.contract import Message
from binlake.feeds.formats.binlog_events import BEGIN, END, ROWS, STATEMENT
from binlake.feeds.sinks.position_folder import PositionFolder
from binlake.position import Flavour
from binlake.records.feed_watermarks import FeedPosition
from binlake.serialization import loads
from binlake.storage import private_files

INDEX = "binlog.index"
_FILE_MB = 256
_SETTINGS = {"file_mb", "server_id"}
_FRESH = {"number": 0, "offset": 0, "transactions": 0, "last_us": 0, "gtids": "", "flavour": None}
Headers = tuple[tuple[str, bytes], ...]


class BinlogFolder:
    """One feed's binlog files of one source.

    Settings: file_mb, the size in MB (10**6 bytes) after which a new file begins (default 256); server_id, for events
    of a source whose GTIDs don't contain it (default 1).
    """

    keeps_position = True

    def __init__(self, folder: Path, owner: str, settings: dict[str, Any]) -> None:
        """owner: ``source/feed``, which alone may use the folder. Raises SinkFailed, ConfigurationError."""
        if wrong := settings.keys() - _SETTINGS:
            raise ConfigurationError(f"binlog:// has no setting {min(wrong)}", remedy="it has file_mb and server_id")
        self._most = bytes_of_mb(float(settings.get("file_mb", _FILE_MB)))
        self._server_id = int(settings.get("server_id", 1))
        self._folder = folder
        self._file: BinaryIO | None = None
        self._writer: BinlogWriter | None = None
        self._gtids: list[str] = []
        self._rows: tuple[Headers, list[bytes], int] | None = None
        self._kept = PositionFolder(folder, owner, _FRESH, self._cut)
        self._state = self._kept.state

    def _cut(self, state: dict[str, Any]) -> None:
        for path in self._folder.glob("binlog.[0-9]*"):
            number = int(path.name.rpartition(".")[2])
            if number > state["number"]:
                path.unlink()
            elif number == state["number"] and path.stat().st_size > state["offset"]:
                os.truncate(path, state["offset"])

    def position(self) -> FeedPosition | None:
        """Return the position of the last commit; None before the first one."""
        return self._kept.position()

    # messages ---------------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Do nothing: what isn't committed is truncated later."""

    def send(self, messages: Sequence[Message]) -> None:
        """Append the events to the current file. Raises SinkFailed where the folder can't be written."""
        with self._kept.writing():
            for message in messages:
                self._take(message)

    def _take(self, message: Message) -> None:
        what, header = message.headers[0]
        if what == ROWS:
            self._row(message)
            return
        self._flush()
        if what == BEGIN:
            data = message.value or b""
            committed_us, known = int.from_bytes(data[:8], "little"), data[8:].decode() or None
            self._writer_of(header, committed_us).begin(Head(committed_us, known))
            self._gtids += [known] if known else []
        elif what == END:
            assert self._writer is not None
            self._writer.commit()
        elif what == STATEMENT:
            statement = loads(Statement, (message.value or b"").decode())
            writer = self._writer_of(header, statement.committed_us)
            writer.statement(Head(statement.committed_us, statement.gtid), statement)
            self._gtids += [statement.gtid] if statement.gtid else []

    def _row(self, message: Message) -> None:
        """Add a row: consecutive rows of the same table and operation share an event."""
        images = [image for image in (message.key, message.value) if image is not None]
        size = sum(map(len, images))
        if self._rows is not None and self._rows[0] == message.headers and self._rows[2] + size <= EVENT_BYTES:
            self._rows[1].extend(images)
            self._rows = *self._rows[:2], self._rows[2] + size
            return
        self._flush()
        self._rows = message.headers, images, size

    def _flush(self) -> None:
        if self._rows is None:
            return
        headers, images, _ = self._rows
        kind, table_map = headers[0][1], headers[1][1]
        assert self._writer is not None
        self._writer.rows(RowEvent(kind[0], table_map, int.from_bytes(kind[1:], "little"), images))
        self._rows = None

    # files ------------------------------------------------------------------------------------------------------------
    def _writer_of(self, flavour: bytes, created_us: int) -> BinlogWriter:
        """Return the current file's writer; a new file's if it is full. Must be called between two transactions."""
        if self._writer is not None and self._writer.end.offset >= self._most:
            self._writer.close(_name(self._state["number"] + 1))
            self._close_full_file()
        if self._writer is None:
            self._writer = self._next(flavour.decode(), created_us)  # type: ignore[arg-type]  # as the format wrote it
        return self._writer

    def _next(self, flavour: Flavour, created_us: int) -> BinlogWriter:
        state = self._state
        if 0 < state["offset"] < self._most:
            self._file = (self._folder / _name(state["number"])).open("r+b")
            self._file.seek(state["offset"])
            end = FileEnd(state["offset"], state["transactions"], state["last_us"])
            return BinlogWriter(self._file, flavour, server_id=self._server_id, end=end)
        if state["offset"]:  # committed when it was large enough
            with (self._folder / _name(state["number"])).open("r+b") as file:
                file.seek(state["offset"])
                end = FileEnd(state["offset"], state["transactions"], state["last_us"])
                BinlogWriter(file, flavour, server_id=self._server_id, end=end).close(_name(state["number"] + 1))
                _sync(file)
        state["gtids"] = self._executed(flavour)
        state["number"] += 1
        state["flavour"] = flavour
        self._file = private_files.opened(self._folder / _name(state["number"]), "w+b")
        return BinlogWriter.begun(
            self._file, flavour, server_id=self._server_id, created_us=created_us, previous_gtids=state["gtids"]
        )

    def _executed(self, flavour: Flavour) -> str:
        """Return the GTID set of all transactions in the files."""
        known = str(gtid.parse(self._state["gtids"], flavour).adding(self._gtids))
        self._gtids.clear()
        return known

    def _close_full_file(self) -> None:
        """Close a full file, so that the next one is begun."""
        assert self._file is not None
        _sync(self._file)
        self._file.close()
        self._file = self._writer = None
        self._state["offset"] = 0

    def commit(self, position: FeedPosition) -> None:
        """Sync the current file, then replace the index and the state with the position. Raises SinkFailed."""
        with self._kept.writing():
            self._flush()
            if self._writer is not None and self._file is not None:
                _sync(self._file)
                end = self._writer.end
                self._state |= {"offset": end.offset, "transactions": end.transactions, "last_us": end.last_us}
                self._state["gtids"] = self._executed(self._state["flavour"])
            numbers = range(1, self._state["number"] + 1)
            self._kept.replace(INDEX, "".join(f"./{_name(number)}\n" for number in numbers))
            self._kept.commit(position)

    def close(self) -> None:
        """Close the files, and give up what wasn't committed."""
        if self._file is not None:
            with suppress(OSError):  # what a full disk doesn't take isn't committed
                self._file.close()
        self._kept.close()


def _name(number: int) -> str:
    return f"binlog.{number:06d}"


def _sync(file: BinaryIO) -> None:
    """Make a file's content durable."""
    file.flush()
    os.fsync(file.fileno())
