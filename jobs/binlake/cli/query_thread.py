"""A query that runs in a thread, so that Ctrl-C is heard while the engine works: it doesn't return before it has rows.

The thread can't be stopped. An interrupt ends the process, or leaves the query to a process of its own: see
query_process.py.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from binlake.lake.sql_session import QueryRows

_Part = object
"""A schema, rows, an error, or None at the end."""
_AHEAD = 2
"""Batches of rows that are read before they are asked for."""


def run(execute: Callable[[], QueryRows]) -> QueryRows:
    """Run a query. Raises what ``execute`` and reading its rows raise, and KeyboardInterrupt at any time."""
    parts: queue.Queue[_Part] = queue.Queue(_AHEAD)

    def work() -> None:
        try:
            rows = execute()
            parts.put(rows.schema)
            for batch in rows.batches:
                parts.put(batch)
            parts.put(None)
        except BaseException as error:  # Rust's panics are no Exception
            parts.put(error)

    threading.Thread(target=work, name="query", daemon=True).start()
    schema = _taken(parts)
    assert isinstance(schema, pa.Schema)
    return QueryRows(schema, _rows(parts))


def _taken(parts: queue.Queue[_Part]) -> pa.Schema | pa.RecordBatch | None:
    part = parts.get()
    if isinstance(part, BaseException):
        raise part
    return part


def _rows(parts: queue.Queue[_Part]) -> Iterator[pa.RecordBatch]:
    while (rows := _taken(parts)) is not None:
        yield rows
