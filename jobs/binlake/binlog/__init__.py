"""The binlog: bytes to Arrow. ``open`` is the way in for programs of their own (see ``binlake.binlog.log``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from binlake.binlog.log import open as open  # noqa: A004  # its users write binlog.open

__all__ = ["open", "warm"]


def __getattr__(name: str) -> Any:
    """``open`` when it is asked for: it loads the kernels, which who only wants a type needn't wait for."""
    if name == "open":
        from binlake.binlog import log

        return log.open
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
    from binlake.position import FIRST_OFFSET, Slice

    with resources.as_file(resources.files(__package__) / "warm.000001") as path:
        part = Slice(path.name, FIRST_OFFSET, path.stat().st_size, 0, True)
        emitted = list(read(FileTransport(path), part, lambda database, table: True))
        list(transaction_boundaries(FileTransport(path), part))
    return sum(one.batch.num_rows for one in emitted if isinstance(one, Mutations))
