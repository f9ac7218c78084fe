"""Row events made ready for the decoder: partial ones are completed, compressed ones uncompressed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from binlake.binlog import partial_rows, scan, uncompressed
from binlake.binlog.columns import undecodable
from binlake.binlog.events import EventType, FormatDescription
from binlake.binlog.known_tables import KnownTable
from binlake.binlog.tablemap import Undecodable
from binlake.binlog.transport import padded
from binlake.errors import Malformed
from binlake.kernels import layouts

_AT_ONCE = 64 << 20
"""Bytes of uncompressed events after which those so far are decoded, before others are uncompressed."""


class RowEvents:
    """The row events of one slice, with the buffers that those point into that were rewritten."""

    def __init__(self, description: FormatDescription, id_size: int) -> None:
        self._lacks_columns = description.may_leave_generated_columns_out
        self._id_size = id_size
        self._buffers: list[Any] = []

    def forget(self) -> None:
        """Give the buffers back: all events so far are decoded."""
        self._buffers.clear()

    def prepare(self, known: KnownTable, rows: Any) -> tuple[Any, tuple[int, Undecodable] | None]:
        """Return row events as the decoder takes them, and which one can't be prepared and why, or None.

        If one can't, only the events before it are returned; so it is with those that are too large uncompressed.
        """
        assert known.decoder is not None
        prepared = np.empty(len(rows), layouts.ROWS)
        columns, id_size = len(known.decoder.program), self._id_size
        failed = np.zeros(1, np.int64)
        stopped: tuple[int, Undecodable] | None = None
        done = 0
        whole: set[int] = set()
        while wrong := scan.prepare(rows[done:], prepared[done:], columns, id_size, failed):
            at = done + int(failed[0])
            try:
                if wrong not in (scan.PARTIAL_IMAGE, scan.PARTIAL_JSON):
                    raise Malformed("rows that don't fit their table map")
                prepared[at] = self._made_whole(known, rows[at])
                whole.add(at)
            except (Undecodable, Malformed) as error:
                stopped = at, undecodable(error)
                rows, prepared = rows[:at], prepared[:at]
                break
            done = at + 1
        return self._uncompressed(rows, prepared, stopped, whole)

    def _made_whole(self, known: KnownTable, event: Any) -> tuple[int, ...]:
        """Complete a partial event. Returns what ``scan.prepare`` gives for full ones.

        Raises Undecodable, Malformed.
        """
        assert known.table is not None
        assert known.decoder is not None
        body = ctypes.string_at(int(event["body"]), int(event["end"] - event["body"]))
        kind, id_size = int(event["kind"]), self._id_size
        completed = partial_rows.complete(
            body, kind, id_size, known.table, known.decoder.program, may_lack_columns=self._lacks_columns
        )
        known.absent.update(known.table.columns[place].name for place in completed.absent)
        buffer = padded(completed.rows)
        self._buffers.append(buffer)
        start = buffer.ctypes.data
        rest = (int(event[name]) for name in ("transaction", "offset", "ordinal", "xa"))
        return (start, start + len(completed.rows), scan.operation(kind), *rest)

    def _uncompressed(
        self, rows: Any, prepared: Any, stopped: tuple[int, Undecodable] | None, whole: set[int]
    ) -> tuple[Any, tuple[int, Undecodable] | None]:
        """Uncompress the rows of MariaDB's compressed events, up to the first that can't be.

        Returns what ``prepare`` does. whole: events that are uncompressed already.
        """
        size = 0
        compressed = np.flatnonzero(rows["kind"] >= EventType.WRITE_ROWS_COMPRESSED_V1).tolist()
        for number in (number for number in compressed if number not in whole):
            start, end = int(prepared["address"][number]), int(prepared["end"][number])
            if size > _AT_ONCE:
                return prepared[:number], None
            try:
                data = uncompressed.uncompressed_event(ctypes.string_at(start, end - start))
            except Malformed as error:
                return prepared[:number], (number, undecodable(error))
            size += len(data)
            buffer = padded(data)
            self._buffers.append(buffer)
            prepared["address"][number], prepared["end"][number] = buffer.ctypes.data, buffer.ctypes.data + len(data)
        return prepared, stopped


def up_to_last_failing(count: int, fails: Callable[[int, int], bool]) -> int:
    """Return the number of events up to and including the last that fails; 0 if none does.

    fails: shows whether any event from a first index up to, not including, an end fails. It is asked about no more than
    ``count`` events in all.
    """
    low = 0
    while low < count:
        middle = (low + count) // 2
        if fails(middle, count):
            low = middle + 1
        else:
            count = middle
    return count
