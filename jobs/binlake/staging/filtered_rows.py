"""Staging of those rows alone that a table's condition lets into the lake.

Both images of a row decide: a row that comes in is an insert, one that leaves is a delete, and of a row that is outside
before and after nothing is staged. What doesn't change is staged as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from binlake.binlog.border import DELETE, INSERT, PARTIAL, PARTIAL_REMEDY, UPDATE, Mutations, Stopped
from binlake.errors import snapshot_again
from binlake.schema.row_condition import RefusedCondition
from binlake.schema.row_matching import RowMatcher
from binlake.schema.table import Column, TableName
from binlake.staging.staged_files import Items

Conditions = Callable[[TableName], str]
"""Returns the condition of a table's rows; an empty text for all."""


class RowFilters:
    """The conditions of a slice's tables.

    file: the slice's binlog file, which messages name. left_out: offset of the first row that was left out, by table.
    """

    def __init__(self, conditions: Conditions, file: str) -> None:
        self.left_out: dict[TableName, int] = {}
        self._conditions = conditions
        self._file = file
        self._matchers: dict[tuple[str, tuple[Column, ...], tuple[int, ...]], RowMatcher] = {}

    def passing(self, items: Items) -> Items:
        """Yield what is read of a slice, without rows that conditions leave out.

        If it isn't certain what the server would say of a row, its table stops there: a Stopped is yielded for the
        first and the last such event of some rows.
        """
        for item in items:
            if isinstance(item, Mutations) and (condition := self._conditions(item.name)):
                yield from self._filtered(item, condition)
            else:
                yield item

    def _filtered(self, mutations: Mutations, condition: str) -> Iterator[Mutations | Stopped]:
        every = np.ones(mutations.batch.num_rows, np.bool_)
        try:
            matcher = self._matcher(condition, mutations)
        except RefusedCondition as error:
            remedy = f"correct the table's condition in rows, then {snapshot_again(mutations.name)}"
            yield from self._stopped(mutations, every, f"its row filter can't be worked out: {error}", remedy)
            return
        if lost := sorted(matcher.columns.intersection(mutations.absent)):
            yield from self._stopped(mutations, every, f"{PARTIAL}: {', '.join(lost)}", PARTIAL_REMEDY)
            return
        operations = mutations.batch.column("op").to_numpy()
        old, doubt = _matched(matcher, mutations.batch.column("before"), operations != INSERT)
        new, more = _matched(matcher, mutations.batch.column("after"), operations != DELETE)
        if doubt is not None or more is not None:
            doubts = (every & False) if doubt is None else doubt
            doubts = doubts if more is None else doubts | more
            why = "a text with other than plain ASCII, or an invalid date, in a column of its row filter: whether the "
            why += "server would compare it as equal isn't known"
            remedy = f"change the value or the table's condition in rows, then {snapshot_again(mutations.name)}"
            yield from self._stopped(mutations, doubts, why, remedy)
        # Of a row that comes in or leaves, the server's table has another image all the same.
        if not (whole := (old | (operations == INSERT)) & (new | (operations == DELETE))).all():
            offset = int(mutations.batch.column("offset")[int(np.argmin(whole))].as_py())
            self.left_out.setdefault(mutations.name, offset)
        if (batch := _between(mutations.batch, operations, old, new)) is not None:
            yield mutations if batch is mutations.batch else replace(mutations, batch=batch)

    def _matcher(self, condition: str, mutations: Mutations) -> RowMatcher:
        key = condition, mutations.columns, mutations.collations
        if key not in self._matchers:
            self._matchers[key] = RowMatcher(*key)
        return self._matchers[key]

    def _stopped(self, mutations: Mutations, rows: Any, why: str, remedy: str) -> Iterator[Stopped]:
        """Yield a Stopped for the events of the first and the last of some rows."""
        offsets = mutations.batch.column("offset").to_numpy()[rows]
        for offset in dict.fromkeys(offsets[[0, -1]].tolist()):
            yield Stopped(mutations.name, self._file, offset, why, remedy)


def _matched(matcher: RowMatcher, images: pa.StructArray, there: Any) -> tuple[Any, Any]:
    """Return which rows have an image that meets the condition, and for which that is undecided; None for none."""
    if not there.any():
        return there, None
    matched = matcher.matched(images)
    undecided = None if matched.undecided is None else matched.undecided & there
    return matched.met & there, undecided if undecided is not None and undecided.any() else None


def _between(batch: pa.RecordBatch, operations: Any, old: Any, new: Any) -> pa.RecordBatch | None:
    """Return what changes among the rows inside; the batch itself if all do, None if nothing does. old, new: which rows
    were and are inside.

    Of the images that are outside nothing stays, not even the bytes of their values.
    """
    now = np.where(old, np.where(new, UPDATE, DELETE), INSERT).astype(np.int8)
    inside = old | new
    if not inside.any():
        return None
    if inside.all() and (now == operations).all():
        return batch
    kept = np.flatnonzero(inside)
    now = now[kept]
    without = {"before": now == INSERT, "after": now == DELETE}
    arrays = [
        pa.array(now, pa.int8()) if name == "op" else column.take(pa.array(kept, mask=without.get(name)))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
