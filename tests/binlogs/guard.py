"""Memory that ends at a page nobody may touch: one byte read or written too far is a fault, not luck."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from binlake.binlog import batches, columns, finishers, known_tables, payload, reader, row_events, transport
from binlake.binlog.events import HEADER
from binlake.binlog.transport import FileTransport, LogChunk
from binlake.kernels import memory
from binlake.kernels.layouts import SLACK
from binlake.position import Slice
from binlake.schema import strings

_PAGE = mmap.PAGESIZE
_LARGE = 1 << 22
"""Elements of an array that is left to numpy."""
_libc = ctypes.CDLL(None, use_errno=True)


def guarded(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Zeroed bytes whose last one stands before a forbidden page."""
    pages = max(-(-size // _PAGE), 1) * _PAGE
    memory = mmap.mmap(-1, pages + _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _libc.mprotect(ctypes.c_void_p(address + pages), ctypes.c_size_t(_PAGE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return np.frombuffer(memory, np.uint8, size, pages - size)


def with_slack(data: bytes, fill: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes, and behind them the slack that kernels may load but mustn't heed, filled with ``fill``."""
    array = guarded(len(data) + SLACK)
    array[: len(data)] = np.frombuffer(data, np.uint8)
    array[len(data) :] = fill
    return array


class _Numpy:
    """numpy, but what it makes by ``empty`` is guarded, and holds ``fill``: nothing may hang on what was there."""

    def __init__(self, fill: int) -> None:
        self.fill = fill

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: Any, dtype: Any = np.float64) -> Any:
        count = int(np.prod(shape))
        if not count or count > _LARGE:
            return np.empty(shape, dtype)
        return self.bytes(count * np.dtype(dtype).itemsize).view(dtype).reshape(shape)

    def bytes(self, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        array = guarded(size)
        if self.fill:
            array[:] = self.fill
        return array


@contextmanager
def guarded_buffers(fill: int) -> Iterator[None]:
    """What the reader decompresses, and the buffers that columns are written to, end at forbidden pages."""
    modules = (batches, columns, finishers, payload, reader, strings)
    padding = (known_tables, row_events)
    padded, numpy = transport.padded, _Numpy(fill)
    for module in padding:
        module.padded = lambda data: with_slack(data, fill)  # type: ignore[attr-defined]
    memory.pool.take = numpy.bytes  # type: ignore[method-assign]
    for module in modules:
        module.np = numpy  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in padding:
            module.padded = padded  # type: ignore[attr-defined]
        del memory.pool.take
        for module in modules:
            module.np = np  # type: ignore[attr-defined]


class GuardedTransport:
    """A file, event by event, each at the end of its own memory."""

    def __init__(self, path: Path, fill: int) -> None:
        self.inner = FileTransport(path)
        self.fill = fill

    def chunks(self, part: Slice) -> Iterator[LogChunk]:
        for chunk in self.inner.chunks(part):
            data = bytes(chunk)
            at = 0
            while at < len(data):
                size = HEADER.unpack_from(data, at)[3]
                yield LogChunk(chunk.offset + at, with_slack(data[at : at + size], self.fill), size)
                at += size
