"""The binlog: bytes to Arrow. ``open`` is the way in for programs of their own (see ``binlake.source.openlog``)."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["open", "warm"]  # open: see __getattr__


def __getattr__(name: str) -> Any:
    """``open``, under the name its users know it by. It knows servers, so it stands above this folder, and is loaded
    by name when it is asked for: nothing in here imports what speaks to one."""
    if name == "open":
        return importlib.import_module("binlake.source.openlog").open
    raise AttributeError(name)


def warm() -> int:
    """Compiles the kernels into the cache, by reading a small log that brings each of them to work.

    Set-up calls it once for an installation; a stage task then loads them in about a second. Returns the mutations
    read. The cache is below ``{sys.prefix}/share/binlake/numba``; where that can't be written numba chooses its own.
    """
    from importlib import resources

    from binlake.binlog.border import Mutations
    from binlake.binlog.boundaries import transaction_boundaries
    from binlake.binlog.reader import read
    from binlake.binlog.transport import FileTransport
    from binlake.binlog.widening import widened
    from binlake.kernels import layouts
    from binlake.position import FIRST_OFFSET, Slice

    with resources.as_file(resources.files(__package__) / "warm.000001") as path:
        part = Slice(path.name, FIRST_OFFSET, path.stat().st_size, 0, True)
        emitted = list(read(FileTransport(path), part, lambda database, table: True))
        list(transaction_boundaries(FileTransport(path), part))
    widened(b"\1", layouts.many(1, layouts.PROGRAM), (True,))  # only newer MariaDBs write logs that need it
    return sum(one.batch.num_rows for one in emitted if isinstance(one, Mutations))
