"""Decoding of a table's rows to Arrow: a program of its columns, buffers for the kernels, and images made of these."""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binlake.binlog.finishers import ColumnBuffers, finisher, with_bytes
from binlake.binlog.staged_schema import staged_schema
from binlake.binlog.tablemap import TableMap, Undecodable
from binlake.errors import ConfigurationError, Malformed
from binlake.kernels import layouts, row_kernels
from binlake.kernels.arrays import MOST_ROWS, absent, texts
from binlake.kernels.row_kernels import Numbers
from binlake.schema import masking, strings
from binlake.schema.datatypes import REGISTRY
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import side_columns
from binlake.schema.lake_forms import (
    AS_SERVED,
    COLLISION_REMEDY,
    TYPE_REMEDY,
    LakeForm,
    Misfit,
    collision,
    fitted,
    no_fit,
    no_type,
)
from binlake.schema.mask import Mask
from binlake.schema.table import Column
from binlake.schema.types import text_types
from binlake.schema.types.log_form import Field, Wire

_L2 = 192 << 10
"""Bytes for the addresses of a block's values, so that they stay in the L2 cache."""

_BEFORE_56 = {Wire.TIMESTAMP, Wire.TIME, Wire.DATETIME}


def program_row(field: Field) -> tuple[int, int, int, int, int]:
    """Return a column's row of layouts.PROGRAM. Raises Undecodable, Malformed."""
    if field.wire in _BEFORE_56:
        # Columns with and without a fraction look the same in the log, and their sizes differ.
        raise Undecodable(
            f"column {field.column.name!r} has the temporal format of before MySQL 5.6",
            "ALTER TABLE … FORCE with mysql56_temporal_format=ON, then take a new snapshot of the table",
        )
    how = REGISTRY[field.column.type].log.gathered(field)
    return getattr(row_kernels, how.kernel), how.prefix, how.size, how.first, how.second


@dataclass
class Stop(Exception):
    """The table can't be decoded from the event with the index ``event`` on."""

    event: int
    why: Undecodable


class MalformedColumn(Exception):
    """A column that is decoded as a whole has a value that can't be decoded, in a row that isn't known."""


def malformed(what: str) -> Undecodable:
    """Return the error for a table whose map or rows contradict themselves."""
    return Undecodable(
        f"what the log holds of the table makes no sense: {what}",
        "take a new snapshot of the table; should it stop again, exclude it in the YAML",
    )


def undecodable(error: Undecodable | Malformed | UnicodeDecodeError) -> Undecodable:
    """Return the error for one table's map or rows. Invalid text is never shown in it."""
    if isinstance(error, Undecodable):
        return error
    return malformed(str(error.args[0]) if isinstance(error, Malformed) else "a name that isn't UTF-8")


@dataclass
class Decoded:
    """A batch's columns, with numbers of transactions and XA ids that the reader turns into text."""

    rows: int
    op: npt.NDArray[np.int8]
    offset: Numbers
    row: Numbers
    transaction: npt.NDArray[np.int32]
    xa: npt.NDArray[np.int32]
    before: pa.Array
    after: pa.Array


_ROW_FACTS = {
    "op": np.int8, "offset": np.int64, "ordinal": np.int64, "transaction": np.int32, "xa": np.int32,
    "before": np.uint8, "after": np.uint8, "event": np.int32,
}  # fmt: skip
"""Types of what is noted of each row besides its values (layouts.META)."""


class _Target:
    """Buffers for a batch of up to ``most`` rows: for the columns of both sides, and for what is noted of each row.

    program: layouts.PROGRAM. present: for each side, whether any row has it. guesses: (2, columns) expected bytes of
    strings. block: the most rows that are decoded at a time.
    """

    def __init__(self, program: Any, most: int, present: Any, guesses: Any, block: int) -> None:
        self.most = most
        self.present = present
        columns = len(program)
        self.sides = [
            [
                ColumnBuffers(int(row["kind"]), int(row["size"]), most, int(guesses[side, place]))
                for place, row in enumerate(program)
            ]
            if present[side]
            else []
            for side in range(2)
        ]
        self.out = layouts.many((2, columns), layouts.BUFFERS)
        for side, of_side in enumerate(self.sides):
            for place, column in enumerate(of_side):
                column.give_to(self.out[side, place])
        self.facts: dict[str, Any] = {name: np.empty(most, kind) for name, kind in _ROW_FACTS.items()}
        self._meta = layouts.record(layouts.META)
        for name, output in self.facts.items():
            setattr(self._meta, name, output.ctypes.data)
        positions, needed = np.empty((2, columns, block), np.int64), np.empty((2, columns + 2), np.int64)
        self._scratch = row_kernels.Scratch(block, present, positions, needed)
        self.invalid = layouts.many(64, layouts.INVALID)

    def fill(self, events: Any, program: Any, keep_invalid: bool, state: Any) -> int:
        """Decode rows, and enlarge buffers where needed. Returns the kernel's status (see row_kernels.decode)."""
        columns = len(program)
        while True:
            buffers = row_kernels.Buffers(self.out, self._meta, self.invalid)
            status = row_kernels.decode(events, program, self._scratch, buffers, self.most, keep_invalid, state)
            if status == row_kernels.GROW:
                side, place = divmod(int(state.detail), columns)
                column, out = self.sides[side][place], self.out[side, place]
                column.grow(int(out["used"]), int(self._scratch.needed[side, place]))
                column.give_to(out)
            elif status == row_kernels.INVALID_FULL:
                larger = layouts.many(2 * len(self.invalid) + 2 * columns * self._scratch.block, layouts.INVALID)
                larger[: len(self.invalid)] = self.invalid
                self.invalid = larger
            else:
                return status


class TableDecoder:
    """Decoder of the rows of one table in one shape.

    excluded: lower-case names of columns that are left out. masks: those of others, by their names in lower case. form:
    their names and types in the lake. columns: the columns of the images, as they are shown. key: the primary key's
    columns. collations: the numbers of the columns' collations. withholds: something of the rows isn't shown. The
    constructor raises Undecodable for a column that can't be decoded, ConfigurationError for an excluded column of the
    key.
    """

    def __init__(
        self,
        table: TableMap,
        invalid: InvalidValues,
        excluded: frozenset[str] = frozenset(),
        masks: Mapping[str, Mask] = MappingProxyType({}),
        form: LakeForm = AS_SERVED,
    ) -> None:
        self.table = table
        self.invalid = invalid
        if needed := excluded.intersection(name.lower() for name in table.key):
            raise ConfigurationError(
                f"{table.name}: {', '.join(sorted(needed))} can't be excluded: it belongs to the primary key",
                remedy="take it off the excluded columns",
            )
        self.withholds = bool(excluded or masks)
        self._served = tuple(
            replace(column, mask=masks[column.name.lower()]) if column.name.lower() in masks else column
            for column in table.columns
            if column.name.lower() not in excluded
        )
        self.columns = tuple(form.of(column).shown for column in self._served)
        self.key = tuple(form.names.get(name.lower(), name) for name in table.key)
        self._typed = _typed(table, self._served, form)
        self.program: Any = np.array([program_row(field) for field in table.fields], layouts.PROGRAM)
        unread = excluded | {name for name, mask in masks.items() if mask.kind == "nothing"}
        self._gathered = [
            (place, field) for place, field in enumerate(table.fields) if field.column.name.lower() not in unread
        ]
        self.collations = tuple(field.collation for field in table.fields if field.column.name.lower() not in excluded)
        self.program["kind"][[field.column.name.lower() in unread for field in table.fields]] = row_kernels.SKIPPED
        self.schema: pa.Schema = staged_schema(self.columns, invalid)
        self.image: pa.StructType = self.schema.field("after").type
        decoded = tuple(field.column for _, field in self._gathered)
        self._decoded: pa.StructType = self.image
        if masks or self._typed:
            self._decoded = staged_schema(decoded, invalid).field("after").type
        self._masked = bool(masks)
        self._sides = {field.source.name: field.holds for field in side_columns(decoded, invalid)}
        self._finish = {
            place: with_bytes(field) if self._sides.get(field.column.name) == "bytes" else finisher(field)
            for place, field in self._gathered
        }
        count = max(len(table.fields), 1)
        self._block = max(64, min(1024, _L2 // (16 * count) // 8 * 8))
        self._scratch = np.empty(2 * count + 2, np.int64)
        self._fewest_bytes = (count + 7) // 8
        self._row_size = 0.0  # bytes of the last batch's events for each row
        self._shares = np.zeros((2, len(table.fields)))  # of an event's bytes that a column took at most

    def count(self, address: int, end: int, images: int) -> int:
        """Return the number of rows in one event. Raises Malformed."""
        rows: int = row_kernels.count_rows(address, end, images, self.program, self._scratch.ctypes.data)
        if rows < 0:
            raise Malformed("a row beyond the end of its event")
        return rows

    def decode(self, events: Any) -> tuple[list[Decoded], Stop | None]:
        """Decode all rows of the events (layouts.ROWS).

        Returns batches, and where and why the table stopped or None. If it stopped, the batches have the rows before
        that event.
        """
        stop: Stop | None = None
        while True:
            try:
                return list(self._batches(events)), stop
            except Stop as reason:
                stop = reason
            except MalformedColumn as error:
                counts = range(1, len(events) + 1)
                at = bisect_left(counts, True, key=lambda count: self.fails(events[:count]))
                stop = Stop(at, malformed(str(error)))
            events = events[: stop.event]

    def fails(self, events: Any) -> bool:
        """Return whether any of the events can't be decoded."""
        try:
            list(self._batches(events))
        except (Stop, MalformedColumn):
            return True
        return False

    def _batches(self, events: Any) -> Any:
        state = layouts.record(layouts.DECODE)
        while len(events):
            batch, state, done = self._batch(events, state)
            if batch is not None:
                yield batch
            if done:
                return

    def _batch(self, events: Any, state: Any) -> tuple[Decoded | None, Any, bool]:
        """Return the next batch, the state after it, and whether it was the last. Without rows the batch is None."""
        size = _bytes_left(events, state)
        target = self._target(events, size)
        state.row = state.invalid = 0
        status = target.fill(events, self.program, self.invalid.dates == "keep_text", state)
        self._check(status, state)
        rows = int(state.row)
        if not rows:
            return None, state, True
        # of all rows' bytes, because what a batch leaves over is small
        self._row_size = max(size - _bytes_left(events, state), 1) / rows
        self._shares = np.maximum(self._shares, target.out["used"] / max(size, 1))
        images = [
            self._image(side, target, rows, target.invalid[: int(state.invalid)])
            if target.present[side]
            else absent(self.image, rows)
            for side in range(2)
        ]
        facts = (target.facts[name][:rows] for name in ("op", "offset", "ordinal", "transaction", "xa"))
        return Decoded(rows, *facts, *images), state, status == row_kernels.DONE

    def _target(self, events: Any, size: int) -> _Target:
        """Return buffers for ``size`` bytes of rows, sized for the most rows possible or as earlier batches suggest."""
        columns = max(len(self.program), 1)
        most = min(MOST_ROWS, max(1024, (64 << 20) // (16 * columns)), max(size // self._fewest_bytes, 1))
        if self._row_size:
            most = min(most, int(size / self._row_size * 1.2) + 1)
        most = -(-most // 64) * 64
        of_strings = int(((self.program["prefix"] > 0) & (self.program["kind"] != row_kernels.SKIPPED)).sum())
        shares = np.where(self._shares > 0, self._shares * 1.2, 1 / max(of_strings, 1))
        guesses = (shares * size).astype(np.int64) + (1 << 12)
        present = np.array([(events["op"] != 1).any(), (events["op"] != 3).any()])
        return _Target(self.program, most, present, guesses, self._block)

    def _check(self, status: int, state: Any) -> None:
        """Raise Stop if the kernel's status says that a row can't be decoded."""
        if status == row_kernels.INVALID:
            name = self.table.fields[int(state.detail)].column.name
            raise Stop(
                int(state.event),
                Undecodable(
                    f"column {name!r} holds a date that no calendar has",
                    "fix the row and snapshot the table again, or set invalid_dates: keep_text in the YAML",
                ),
            )
        if status == row_kernels.MALFORMED:
            raise Stop(int(state.event), malformed("a row beyond its event, or a value that can't be"))

    def _image(self, side: int, target: _Target, rows: int, dates: Any) -> pa.StructArray:
        arrays: list[pa.Array] = []
        out = target.out[side]
        for place, field in self._gathered:
            column = target.sides[side][place]
            column.ascii = bool(self.program["second"][place]) and not out["not_ascii"][place]
            wanted = self._decoded.field(len(arrays)).type
            nulls = int(out["nulls"][place])
            validity = pa.py_buffer(column.validity) if nulls else None
            try:
                made = self._finish[place](wanted, rows, validity, nulls, column, int(out["used"][place]))
                if field.column.name in self._typed:
                    made = fitted(made, self._typed[field.column.name].lake_type)
                arrays += made if isinstance(made, tuple) else (made,)
            except Misfit as misfit:
                shown = self._typed[field.column.name]
                remedy = f"{TYPE_REMEDY}, or change the value; then take a new snapshot of the table"
                why = f"a value of column {field.column.name!r} {no_fit(shown)}"
                raise Stop(int(target.facts["event"][misfit.row]), Undecodable(why, remedy)) from None
            except strings.BadValue as bad:
                keeps = text_types.may_be_invalid_text(field.column) and field.column.name not in self.table.key
                other = ", or set invalid_text: keep_bytes in the YAML" if keeps else ""
                raise Stop(
                    int(target.facts["event"][bad.row]),
                    Undecodable(
                        f"a value of {field.column.name!r} {bad.why}",
                        f"fix the value on the server{other}, then take a new snapshot of the table",
                    ),
                ) from None
            except Malformed as error:
                raise MalformedColumn(f"column {field.column.name!r}: {error.args[0]}") from None
            if self._sides.get(field.column.name) == "text":
                of_column = (dates["side"] == side) & (dates["column"] == place)
                arrays.append(_texts(field, dates[of_column], rows))
        if self._masked:
            arrays = masking.masked_columns(self._served, arrays, rows, self.invalid)
        has = target.facts["after" if side else "before"][:rows]
        count = int(rows - has.sum())
        validity = pa.py_buffer(np.packbits(has, bitorder="little")) if count else None
        return pa.StructArray.from_buffers(self.image, rows, [validity], null_count=count, children=arrays)


def _typed(table: TableMap, served: Sequence[Column], form: LakeForm) -> dict[str, Column]:
    """Return the columns that have another type in the lake, by their names on the server. Raises Undecodable where
    columns can't have what they are to have in the lake."""
    read = {column.name.lower() for column in served}
    names = {name: other for name, other in form.names.items() if name in read}
    if why := collision(table.columns, names):
        raise Undecodable(why, COLLISION_REMEDY)
    formed = {column.name: each for column in served if (each := form.of(column)).lake_type}
    for column in served:
        kind = formed[column.name].lake_type if column.name in formed else ""
        if kind and (why := no_type(column, kind, in_key=column.name in table.key)):
            raise Undecodable(why, TYPE_REMEDY)
    return formed


def _bytes_left(events: Any, state: Any) -> int:
    """Return how many bytes of rows aren't decoded yet."""
    at, address = int(state.event), int(state.address)
    left = int((events["end"][at:] - events["address"][at:]).sum())
    return left - (address - int(events["address"][at]) if address else 0)


def _texts(field: Field, dates: Any, rows: int) -> pa.Array:
    """Return an array with the texts of invalid dates, NULL elsewhere."""
    if not len(dates):
        return pa.nulls(rows, pa.string())
    shown: list[str | None] = [None] * rows
    for row, address in zip(dates["row"].tolist(), dates["address"].tolist(), strict=True):
        shown[row] = _invalid_text(field, address)
    return texts(shown)


def _invalid_text(field: Field, address: int) -> str:
    dates = REGISTRY[field.column.type].log.invalid
    assert dates is not None
    return dates.text(field, ctypes.string_at(address, 8))
