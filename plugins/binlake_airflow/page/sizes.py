"""Sizes of Delta tables, read from their logs in the background, and kept until a table changes.

Opening a thousand logs takes seconds, so an answer has the sizes that are known within a moment, the next one the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError, TableNotFoundError

from binlake.delta import layout, opened_tables
from binlake.errors import BinlakeError

_THREADS = 2


@dataclass(frozen=True)
class TableSize:
    """A table's size at a Delta version. small: number of files smaller than half of a full one. rows: without those
    hidden by deletion vectors; None if a file has no row count."""

    delta_version: int
    bytes: int
    files: int
    small: int
    rows: int | None


def measure(path: str, whole: int) -> TableSize | str | None:
    """Return a table's size, or why it can't be read; None if it doesn't exist. whole: bytes of a full data file."""
    try:
        log = opened_tables.opened(path)
        added = pa.table(log.get_add_actions())
        hidden = layout.deleted_rows(log, path).total()
    except TableNotFoundError:
        return None
    except (BinlakeError, DeltaError, OSError) as error:
        return str(error).strip().partition("\n")[0]
    sizes, rows = added["size_bytes"], added["num_records"]
    return TableSize(
        int(log.version()),
        int(pc.sum(sizes).as_py() or 0),
        added.num_rows,
        int(pc.sum(pc.less(sizes, whole // 2)).as_py() or 0),
        None if rows.null_count else int(pc.sum(rows).as_py() or 0) - hidden,
    )


class Sizes:
    """The sizes of all requested tables, by path."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sizes")
        self._known: dict[str, tuple[Hashable, TableSize | str | None]] = {}
        self._running: dict[str, Future[None]] = {}

    def of(self, wanted: Mapping[str, Hashable], whole: int, patience: float) -> dict[str, TableSize]:
        """Return the sizes known within ``patience`` seconds, by path; the old one while a table is measured again.

        wanted: paths, each with a stamp that differs once the table has changed. whole: bytes of a full data file.
        """
        with self._lock:
            for path, stamp in wanted.items():
                known, size = self._known.get(path, (None, None))
                if path not in self._running and (known != (stamp, whole) or isinstance(size, str)):
                    self._running[path] = self._threads.submit(self._measure, path, (stamp, whole))
            running = [self._running[path] for path in wanted if path in self._running]
        wait(running, timeout=patience)
        with self._lock:
            sizes = {path: self._known[path][1] for path in wanted if path in self._known}
        return {path: size for path, size in sizes.items() if isinstance(size, TableSize)}

    def unreadable(self, paths: Mapping[str, str]) -> dict[str, str]:
        """Return why tables couldn't be read when they were to be measured last, by the keys of their paths."""
        with self._lock:
            known = {path: why for path, (_, why) in self._known.items() if isinstance(why, str)}
        return {key: known[path] for key, path in paths.items() if path in known} if known else {}

    def _measure(self, path: str, stamp: tuple[Hashable, int]) -> None:
        try:
            size = measure(path, stamp[1])
            with self._lock:
                self._known[path] = (stamp, size)
        finally:
            with self._lock:
                self._running.pop(path, None)
