"""The transport of a slice's bytes from any source, and its implementation for files. One parser reads all transports.

A transport yields chunks of whole events, back to back, exactly as they are in the binlog file: first the format
description event (whatever the slice's start), then the events from ``start`` on. It raises an error if it ends early.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from binlake.binlog.events import ENCRYPTED_MAGIC, HEADER, HEADER_SIZE, MAGIC, EventType
from binlake.errors import CorruptEvent, PositionLost, SourceError
from binlake.kernels.layouts import SLACK
from binlake.position import FIRST_OFFSET, Slice

CHUNK_SIZE = 8 << 20
"""Bytes after which a chunk is passed on. An event that is larger makes a larger chunk."""

LOST_REMEDY = "the log from here on is gone or was never there: run binlake snapshot to begin again"


@dataclass(frozen=True)
class LogChunk:
    """Whole events: ``data[:size]``, followed by SLACK bytes. ``data[0]`` is at ``offset`` of the file.

    The buffer may be reused for the next chunk.
    """

    offset: int
    data: npt.NDArray[np.uint8]
    size: int

    @classmethod
    def of(cls, offset: int, data: bytes) -> LogChunk:
        """Return a chunk of these bytes, padded. offset: of the first of them in the file."""
        return cls(offset, padded(data), len(data))

    def __bytes__(self) -> bytes:
        return self.data[: self.size].tobytes()


def padded(data: bytes) -> npt.NDArray[np.uint8]:
    """Return the data followed by the slack that kernels may read."""
    array = np.empty(len(data) + SLACK, np.uint8)
    array[: len(data)] = np.frombuffer(data, np.uint8)
    return array


class Transport(Protocol):
    """Reader of a source's log. Each call of ``chunks`` is independent."""

    def chunks(self, part: Slice) -> Iterator[LogChunk]:
        """Yield the format description event as a chunk of its own, then the events of the slice.

        Raises SourceError and BinlogError; PositionLost if the log ends before ``part.stop``, or if ``part.whole`` is
        set and the file doesn't end there.
        """
        ...


def reaches_beyond(file: str, offset: int, size: int, stop: int) -> CorruptEvent:
    """Return the error of an event that doesn't end where the slice does."""
    return CorruptEvent(
        f"the event of {size} bytes reaches beyond the slice's end {stop}, which isn't between two events",
        file=file,
        offset=offset,
        remedy="plan the batch again; if that doesn't help, run binlake snapshot",
    )


def has_more_log(file: str, stop: int) -> PositionLost:
    """Return the error of a file that has more log where it was planned to end."""
    return PositionLost(f"{file} continues after {stop}, where it was planned to end", remedy=LOST_REMEDY)


def ends_early(file: str, offset: int, stop: int) -> PositionLost:
    """Return the error of a file that has less log than was planned."""
    return PositionLost(f"{file} ends at {offset}, before the planned stop {stop}", remedy=LOST_REMEDY)


@dataclass(frozen=True)
class FileTransport:
    """Transport of one binlog file, or a folder of binlog files (an archive, or ``mysqlbinlog --raw`` copies)."""

    path: Path

    def file(self, name: str) -> Path:
        """Return the path of a log file. name: ignored where the transport has a single file."""
        return self.path / name if self.path.is_dir() else self.path

    def whole_events(self, name: str) -> int:
        """Return the offset (bytes) of the end of a file's last whole event. The rest is still being copied."""
        from binlake.binlog import framing  # its kernels take long to import

        spans = np.zeros(2, np.int64)
        end, held = FIRST_OFFSET, np.empty(0, np.uint8)
        with self.file(name).open("rb") as stream:
            self._refuse_encrypted_file(stream, name)
            stream.seek(end)
            while data := stream.read(CHUNK_SIZE):
                held = np.concatenate([held, np.frombuffer(data, np.uint8)])
                if not framing.whole_events(held.ctypes.data, len(held), spans):
                    break
                end += int(spans[0])
                held = held[spans[0] :]
        return end

    @staticmethod
    def _refuse_encrypted_file(stream: Any, name: str) -> None:
        stream.seek(FIRST_OFFSET)
        header = _exactly(stream, HEADER_SIZE)
        if len(header) == HEADER_SIZE and header[4] == EventType.FORMAT_DESCRIPTION:
            behind = FIRST_OFFSET + int(HEADER.unpack(header)[3])
            stream.seek(behind)
            _refuse_encrypted(stream, name, behind)

    def chunks(self, part: Slice) -> Iterator[LogChunk]:
        """Yield the slice's bytes. Raises PositionLost where the file is gone, SourceError where it can't be read."""
        path = self.file(part.file)
        try:
            with path.open("rb", buffering=0) as stream:
                yield from self._read(stream, part)
        except FileNotFoundError:
            raise PositionLost(f"there is no {path}", remedy=LOST_REMEDY) from None
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}", remedy="check the file's permissions") from None

    def _read(self, stream: Any, part: Slice) -> Iterator[LogChunk]:
        from binlake.binlog import framing

        magic = stream.read(FIRST_OFFSET)
        if magic == ENCRYPTED_MAGIC:
            raise CorruptEvent(
                "the file is encrypted", file=part.file, offset=0, remedy="read it through its server instead"
            )
        if magic != MAGIC:
            raise CorruptEvent("not a binlog file", file=part.file, offset=0, remedy="check the folder")
        header = _exactly(stream, HEADER_SIZE)
        if len(header) < HEADER_SIZE or header[4] != EventType.FORMAT_DESCRIPTION:
            raise CorruptEvent(
                "no format description event", file=part.file, offset=FIRST_OFFSET, remedy="check the file"
            )
        size = HEADER.unpack(header)[3]
        description = header + _exactly(stream, min(max(size - HEADER_SIZE, 0), 1 << 16))
        if len(description) != size:
            raise CorruptEvent(
                "the format description event is cut off",
                file=part.file,
                offset=FIRST_OFFSET,
                remedy="check the file",
            )
        yield LogChunk.of(FIRST_OFFSET, description)
        if part.stop > FIRST_OFFSET + size:
            _refuse_encrypted(stream, part.file, FIRST_OFFSET + size)
        offset = max(part.start, FIRST_OFFSET + len(description))
        stream.seek(offset)
        buffer = np.empty(CHUNK_SIZE + SLACK, np.uint8)
        spans = np.zeros(2, np.int64)
        held = 0
        while offset < part.stop:
            room = min(len(buffer) - SLACK - held, part.stop - offset - held)
            got = stream.readinto(buffer.data[held : held + room]) if room else 0
            held += got
            sound = framing.whole_events(buffer.ctypes.data, held, spans)
            whole, needed = spans.tolist()
            if not sound:
                raise CorruptEvent(
                    "an event shorter than its header", file=part.file, offset=offset + whole, remedy=_CORRUPT_REMEDY
                )
            if offset + needed > part.stop:
                raise reaches_beyond(part.file, offset + whole, needed - whole, part.stop)
            if whole:
                yield LogChunk(offset, buffer, whole)
                held -= whole
                buffer[:held] = buffer[whole : whole + held].copy()
                offset += whole
            elif not got and needed <= len(buffer) - SLACK:
                raise ends_early(part.file, offset, part.stop)
            elif needed > len(buffer) - SLACK:  # one event larger than a chunk
                larger = np.empty(needed + SLACK, np.uint8)
                larger[:held] = buffer[:held]
                buffer = larger
        if part.whole and stream.read(1):
            raise has_more_log(part.file, part.stop)


def _refuse_encrypted(stream: Any, file: str, offset: int) -> None:
    """Raise CorruptEvent for a file that MariaDB encrypts from here on: the event that says so follows the format
    description event, the first in the file. A server sends the same event, and what follows it in the clear."""
    header = _exactly(stream, HEADER_SIZE)
    if len(header) == HEADER_SIZE and header[4] == EventType.START_ENCRYPTION:
        raise CorruptEvent(
            "the file is encrypted from here on (encrypt_binlog)",
            file=file,
            offset=offset,
            remedy="read it through its server instead",
        )


def _exactly(stream: Any, size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = stream.read(size)
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


_CORRUPT_REMEDY = "the file is damaged or this isn't between two events: run binlake snapshot to begin again"
