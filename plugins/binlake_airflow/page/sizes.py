"""How large the Delta tables are, by their logs: measured beside what is asked, and known until a table changes.

To open a thousand logs takes seconds. Who asks gets what is known within a moment, and the rest the next time.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from binlake.delta import layout, opened_tables
from binlake.errors import BinlakeError

_THREADS = 2


@dataclass(frozen=True)
class TableSize:
    """At a Delta version. small: files below half of a whole one. rows: less those that deletion vectors hide; None
    where a file doesn't tell."""

    delta_version: int
    bytes: int
    files: int
    small: int
    rows: int | None


def measure(path: str, whole: int) -> TableSize | None:
    """whole: bytes of a whole data file. None where no table is, or none that can be read."""
    try:
        log = opened_tables.opened(path)
        added = pa.table(log.get_add_actions())
        hidden = layout.deleted_rows(log).total()
    except (BinlakeError, DeltaError, OSError):
        return None
    sizes, rows = added["size_bytes"], added["num_records"]
    return TableSize(
        int(log.version()),
        int(pc.sum(sizes).as_py() or 0),
        added.num_rows,
        int(pc.sum(pc.less(sizes, whole // 2)).as_py() or 0),
        None if rows.null_count else int(pc.sum(rows).as_py() or 0) - hidden,
    )


class Sizes:
    """Of all tables that anybody asked for, by path."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sizes")
        self._known: dict[str, tuple[Hashable, TableSize | None]] = {}
        self._running: dict[str, Future[None]] = {}

    def of(self, wanted: Mapping[str, Hashable], whole: int, patience: float) -> dict[str, TableSize]:
        """By path, of those that are known within ``patience`` seconds; that of before while a new one is measured.

        wanted: each path with what is another once the table has changed. whole: bytes of a whole data file.
        """
        with self._lock:
            for path, stamp in wanted.items():
                if path not in self._running and self._known.get(path, (None, None))[0] != (stamp, whole):
                    self._running[path] = self._threads.submit(self._measure, path, (stamp, whole))
            running = [self._running[path] for path in wanted if path in self._running]
        wait(running, timeout=patience)
        with self._lock:
            found = {path: self._known[path][1] for path in wanted if path in self._known}
        return {path: size for path, size in found.items() if size is not None}

    def _measure(self, path: str, stamp: tuple[Hashable, int]) -> None:
        try:
            size = measure(path, stamp[1])
            with self._lock:
                self._known[path] = (stamp, size)
        finally:
            with self._lock:
                self._running.pop(path, None)
