"""The binlog: bytes to Arrow. ``open`` is the way in for programs of their own (see ``binlake.source.openlog``)."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["ContentHandler", "open", "warm", "write"]  # all but warm: see __getattr__
_ELSEWHERE = {
    "ContentHandler": "binlake.binlog.content_handlers",
    "open": "binlake.source.openlog",
    "write": "binlake.binlog_writer.written_log",
}


def __getattr__(name: str) -> Any:
    """Import and return a public name of the package when it is first used: some are in other rooms, such as those that
    connect to servers."""
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(name)


def warm() -> int:
    """Compile the kernels into numba's cache, by reading a small log that uses all of them. Returns its mutations.

    Set-up calls it once for an installation; a stage task then loads the kernels in about a second. The cache is below
    ``{sys.prefix}/share/binlake/numba``; if that can't be written, numba chooses another place.
    """
    from importlib import resources

    import pyarrow as pa

    from binlake.binlog.border import Mutations
    from binlake.binlog.boundaries import transaction_boundaries
    from binlake.binlog.reader import read
    from binlake.binlog.transport import FileTransport
    from binlake.binlog.widening import widened
    from binlake.kernels import layouts
    from binlake.position import FIRST_OFFSET, Slice
    from binlake.schema import keyed_hashes
    from binlake.schema.hash_key import HashKey
    from binlake.schema.mask import MOST_DIGITS

    with resources.as_file(resources.files(__package__) / "warm.000001") as path:
        part = Slice(path.name, FIRST_OFFSET, path.stat().st_size, 0, True)
        emitted = list(read(FileTransport(path), part, lambda database, table: True))
        list(transaction_boundaries(FileTransport(path), part))
    keyed_hashes.hashed(pa.array([""]), HashKey.of("warm"), MOST_DIGITS)
    widened(b"\1", layouts.many(1, layouts.PROGRAM), (True,))  # only newer MariaDBs write logs that need it
    return sum(item.batch.num_rows for item in emitted if isinstance(item, Mutations))
