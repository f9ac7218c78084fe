"""Compiled decoding of row images to column buffers.

``decode`` takes rows in blocks that fit the L2 cache: it first walks a block's rows to find the address of every value,
then gathers the block column by column. No value is loaded before its row is known to lie inside its event; loads may
read up to SLACK bytes beyond a value, which every buffer has after its end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from binlake.kernels import scalars
from binlake.kernels.native import (
    copy,
    copy32,
    fill,
    kernel,
    load8,
    load16,
    load32,
    load64,
    store8,
    store16,
    store32,
    store64,
)

Numbers = npt.NDArray[np.int64]

# How a column is gathered (``program[column].kind``)
COPY1, COPY2, COPY4, COPY8 = 1, 2, 3, 4
U8, U16, U24, I24, U32, U64 = 5, 6, 7, 8, 9, 10
YEAR, DATE, DATETIME, TIMESTAMP, TIME = 11, 12, 13, 14, 15
DECIMAL, BIT1, BYTES, STRING, PADDED, CODE, MASK = 16, 17, 18, 19, 20, 21, 22
SKIPPED = 23  # not gathered: the walk steps over it

WIDTHS = np.zeros(24, np.int64)
"""Bytes of a value in the column's buffer, by kind; 0 for strings, -1 for BYTES (its own size)."""
for _kind, _width in (
    (COPY1, 1), (COPY2, 2), (COPY4, 4), (COPY8, 8), (U8, 2), (U16, 4), (U24, 4), (I24, 4), (U32, 8), (U64, 16),
    (YEAR, 4), (DATE, 4), (DATETIME, 8), (TIMESTAMP, 8), (TIME, 8), (DECIMAL, 16), (BIT1, 1),
    (BYTES, -1), (CODE, 4), (MASK, 8),
):  # fmt: skip
    WIDTHS[_kind] = _width

DONE, FULL, GROW, MALFORMED, INVALID, INVALID_FULL = 0, 1, 2, 3, 4, 5


class Scratch(NamedTuple):
    """Working memory for decoding a block.

    block: the most rows of a block. present: for each side, whether any row has it; a side that none has isn't
    decoded. positions: (2, columns, block) addresses of values. needed: (2, columns + 2) bytes of strings; the last two
    are the numbers of rows that lack this side, and of rows with a NULL.
    """

    block: int
    present: npt.NDArray[np.bool_]
    positions: Numbers
    needed: Numbers


class Buffers(NamedTuple):
    """The buffers for decoded rows (layouts.BUFFERS for each side and column, META, INVALID)."""

    out: Any
    meta: Any
    invalid: Any


@kernel
def all_ascii(address: int, size: int) -> bool:
    """Return whether ``size`` bytes at an address are all below 128."""
    seen = 0
    at = 0
    while at + 32 <= size:
        seen |= load64(address + at) | load64(address + at + 8) | load64(address + at + 16) | load64(address + at + 24)
        at += 32
    while at < size:
        seen |= load8(address + at)
        at += 1
    return seen & -0x7F7F7F7F7F7F7F80 == 0


@kernel
def walk_row(address: int, end: int, program: Any, positions: int, stride: int, needed: int) -> int:
    """Write the addresses of an image's values at ``positions + column * stride`` (an address, bytes); 0 for NULL.

    Adds sizes of strings to the numbers at ``needed``, and 1 to needed[columns + 1] if the image has NULLs.

    Returns the address after the image, 0 if it reaches beyond ``end``.
    """
    nulls = address
    columns = program.shape[0]
    address += (columns + 7) >> 3
    if address > end:
        return 0
    met = 0
    for at in range(nulls, address - 1):
        met |= load8(at)
    if columns:
        met |= load8(address - 1) & 0xFF >> (-columns & 7)
    if met:
        store64(needed + 8 * columns + 8, load64(needed + 8 * columns + 8) + 1)
    for column in range(columns):
        if met and load8(nulls + (column >> 3)) >> (column & 7) & 1:
            store64(positions + column * stride, 0)
            continue
        store64(positions + column * stride, address)
        prefix = program[column].prefix
        if prefix == 0:
            address += program[column].size
        else:
            if address + prefix > end:
                return 0
            if prefix == 1:
                size = load8(address)
            elif prefix == 2:
                size = load16(address)
            else:
                size = load32(address)
                if prefix == 3:
                    size &= 0xFFFFFF
            address += prefix + size
            store64(needed + 8 * column, load64(needed + 8 * column) + max(size, program[column].first))
    return address if address <= end else 0


@kernel
def count_rows(address: int, end: int, images: int, program: Any, scratch: int) -> int:
    """Return the number of rows in an event, -1 if it is malformed. scratch: address of 16 * (columns + 1) bytes."""
    rows = 0
    while address < end:
        for _ in range(images):
            address = walk_row(address, end, program, scratch, 8, scratch + 8 * program.shape[0])
            if address == 0:
                return -1
        rows += 1
    return rows


@kernel
def temporal(kind: int, address: int, digits: int) -> int:
    """Return days for a DATE, else microseconds; scalars.BAD for a date that no calendar has, or scalars.MALFORMED."""
    if kind == DATE:
        return scalars.date(address)
    if kind == TIMESTAMP:
        return scalars.timestamp(address, digits)
    if kind == DATETIME:
        return scalars.datetime(address, digits)
    return scalars.time(address, digits)


@kernel
def _gather_strings(out: Any, positions: Any, rows: int, base: int, prefix: int, pad: int) -> None:
    at = out.used
    data, offsets = out.data, out.offsets + 4 * base
    for row in range(rows):
        source = positions[row]
        if source:
            if prefix == 1:
                size = load8(source)
            elif prefix == 2:
                size = load16(source)
            else:
                size = load32(source)
                if prefix == 3:
                    size &= 0xFFFFFF
            source += prefix
            target = data + at
            if size <= 256:
                done = 0
                while done < size:
                    copy32(target + done, source + done)
                    done += 32
            else:
                copy(target, source, size)
            while size < pad:
                store8(target + size, 0)
                size += 1
            at += size
        store32(offsets + 4 * row + 4, at)
    out.used = at


@kernel
def _gather_fixed(kind: int, size: int, positions: Any, rows: int, data: int) -> None:
    """Gather values of fixed size that can't be invalid."""
    for row in range(rows):
        source = positions[row]
        if kind == COPY4:
            store32(data + 4 * row, load32(source) if source else 0)
        elif kind == COPY8:
            store64(data + 8 * row, load64(source) if source else 0)
        elif kind == COPY1:
            store8(data + row, load8(source) if source else 0)
        elif kind == COPY2:
            store16(data + 2 * row, load16(source) if source else 0)
        elif kind == U8:
            store16(data + 2 * row, load8(source) if source else 0)
        elif kind == U16:
            store32(data + 4 * row, load16(source) if source else 0)
        elif kind == U24:
            store32(data + 4 * row, load32(source) & 0xFFFFFF if source else 0)
        elif kind == I24:
            store32(data + 4 * row, ((load32(source) & 0xFFFFFF) ^ 0x800000) - 0x800000 if source else 0)
        elif kind == U32:
            store64(data + 8 * row, load32(source) if source else 0)
        elif kind == U64:
            store64(data + 16 * row, load64(source) if source else 0)
            store64(data + 16 * row + 8, 0)
        elif kind == YEAR:
            year = load8(source) if source else 0
            store32(data + 4 * row, year + 1900 if year else 0)
        elif kind == BIT1:
            store8(data + row, load8(source) & 1 if source else 0)
        elif source:  # BYTES
            copy(data + size * row, source, size)


@kernel
def _gather_checked(how: Any, positions: Any, rows: int, data: int) -> int:
    """Gather values of fixed size that may be malformed. Returns the row of the first that is, or -1."""
    kind, size, first, second = how.kind, how.size, how.first, how.second
    for row in range(rows):
        source = positions[row]
        if kind == DECIMAL:
            if source == 0:
                store64(data + 16 * row, 0)
                store64(data + 16 * row + 8, 0)
            elif not scalars.store_decimal(data + 16 * row, source, first, second):
                return row
        elif kind == TIME:
            value = temporal(TIME, source, first) if source else 0
            if value == scalars.MALFORMED:
                return row
            store64(data + 8 * row, value)
        elif kind == CODE:
            code = 0
            if source:
                code = load8(source) if size == 1 else load16(source)
                if code > first:
                    return row
            store32(data + 4 * row, code)
        else:  # MASK
            bits = 0
            if source:
                bits = load64(source)
                if size < 8:
                    bits &= (1 << 8 * size) - 1
                if first < 64 and bits >> first:
                    return row
            store64(data + 8 * row, bits)
    return -1


@kernel
def _gather_dates(
    how: Any, positions: Any, rows: int, data: int, side_and_column: tuple[int, int], invalid: Any, state: Any
) -> int:
    """Gather DATE, DATETIME or TIMESTAMP. Dates that no calendar has become NULL and are listed in ``invalid``.

    Returns a malformed value's row, -1, or -2 if the list is full; all rows are gathered again then.
    """
    listed = state.invalid
    kind = how.kind
    width = 4 if kind == DATE else 8
    data += width * state.row
    for row in range(rows):
        source = positions[row]
        value = temporal(kind, source, how.first) if source else 0
        if value == scalars.MALFORMED:
            return row
        if value == scalars.BAD:
            if listed >= invalid.shape[0]:
                return -2
            date = invalid[listed]
            date.side, date.column = side_and_column
            date.row, date.address = state.row + row, source
            listed += 1
            positions[row] = 0
            value = 0
        if kind == DATE:
            store32(data + 4 * row, value)
        else:
            store64(data + 8 * row, value)
    state.invalid = listed
    return -1


@kernel
def _nothing(out: Any, width: int, rows: int, base: int) -> None:
    """Set rows of a column to no value, because they lack this side."""
    fill(out.validity + (base >> 3), 0, (rows + 7) >> 3)
    out.nulls += rows
    if out.offsets:
        for row in range(base + 1, base + rows + 1):
            store32(out.offsets + 4 * row, out.used)
    else:
        fill(out.data + width * base, 0, width * rows)


@kernel
def _validity(out: Any, positions: Any, rows: int, base: int, complete: bool) -> None:
    """Set the validity bits of rows that aren't NULL (complete: all). base: a multiple of 8."""
    at = out.validity + (base >> 3)
    if complete:
        fill(at, 255, (rows + 7) >> 3)
        return
    nulls = 0
    for first in range(0, rows, 8):
        bits = 0
        for row in range(first, min(first + 8, rows)):
            if positions[row]:
                bits |= 1 << (row - first)
            else:
                nulls += 1
        store8(at + (first >> 3), bits)
    out.nulls += nulls


@kernel
def _walk(events: Any, program: Any, scratch: Any, limit: int, meta: Any, state: Any) -> int:
    """Walk the next block's rows: find the addresses of their values, and note what META has of each.

    Returns how many rows the block has; -1 if one is malformed."""
    block, present, positions, needed = scratch
    columns = program.shape[0]
    count = events.shape[0]
    for side in range(2):
        for column in range(columns + 2):
            needed[side, column] = 0
    base, rows = state.row, 0
    at, address, ordinal = state.event, state.address, state.ordinal
    while at < count and rows < limit:
        event = events[at]
        end, op = event.end, event.op
        if address == 0:
            address = event.address
            ordinal = event.ordinal
        while address < end and rows < limit:
            state.event = at
            for side in range(2):
                # op 1 has no before, op 3 no after
                if not present[side]:
                    continue
                if op == (1 if side == 0 else 3):
                    needed[side, columns] += 1
                    for column in range(columns):
                        positions[side, column, rows] = 0
                    continue
                address = walk_row(
                    address,
                    end,
                    program,
                    positions.ctypes.data + 8 * (side * columns * block + rows),
                    8 * block,
                    needed.ctypes.data + 8 * side * (columns + 2),
                )
                if address == 0:
                    return -1
            place = base + rows
            store8(meta.op + place, op)
            store64(meta.offset + 8 * place, event.offset)
            store64(meta.ordinal + 8 * place, ordinal)
            store32(meta.transaction + 4 * place, event.transaction)
            store32(meta.xa + 4 * place, event.xa)
            store8(meta.before + place, 0 if op == 1 else 1)
            store8(meta.after + place, 0 if op == 3 else 1)
            store32(meta.event + 4 * place, at)
            ordinal += 1
            rows += 1
        if address >= end:
            at += 1
            address = 0
    state.event, state.address, state.ordinal = at, address, ordinal
    return rows


@kernel
def _lacking(program: Any, present: Any, needed: Any, out: Any) -> Any:
    """Return side * columns + column of the first buffer that is too small for the block's strings; -1 if all fit."""
    columns = program.shape[0]
    for side in range(2):
        if not present[side]:
            continue
        for column in range(columns):
            if program[column].kind == SKIPPED or program[column].prefix == 0:
                continue
            target = out[side, column]
            if target.used + needed[side, column] > target.capacity:
                return side * columns + column
    return -1


@kernel
def _gather_column(
    how: Any, values: Any, rows: int, target: Any, side_and_column: tuple[int, int], invalid: Any, state: Any
) -> int:
    """Gather one column of the block. Returns a malformed value's row, -1, or -2 if the list of dates is full."""
    kind = how.kind
    if DATE <= kind <= TIMESTAMP:
        return _gather_dates(how, values, rows, target.data, side_and_column, invalid, state)
    if STRING <= kind <= PADDED:
        before = target.used
        _gather_strings(target, values, rows, state.row, how.prefix, how.first)
        if how.second and not all_ascii(target.data + before, target.used - before):
            target.not_ascii = 1
        return -1
    data = target.data + value_width(how) * state.row
    if kind in (DECIMAL, TIME, CODE, MASK):
        return _gather_checked(how, values, rows, data)
    _gather_fixed(kind, how.size, values, rows, data)
    return -1


@kernel
def value_width(how: Any) -> Any:
    """Return the bytes of a value in its buffer."""
    return how.size if how.kind == BYTES else WIDTHS[how.kind]


@kernel
def decode(
    events: Any, program: Any, scratch: Any, buffers: Any, most_rows: int, keep_invalid: bool, state: Any
) -> int:
    """Decode rows of ``events`` into ``buffers``, continuing from ``state`` (see layouts).

    Returns DONE; FULL (most_rows are decoded); GROW (the buffer of state.detail = side * columns + column must take
    needed[…] more bytes); INVALID_FULL (the list must be longer); MALFORMED or INVALID (at the event state.event).
    """
    block, present, positions, needed = scratch
    out, meta, invalid = buffers
    columns = program.shape[0]
    while True:
        base = state.row
        if state.walked == 0:
            state.walked = _walk(events, program, scratch, min(block, most_rows - base), meta, state)
            if state.walked < 0:
                return MALFORMED
            if state.walked == 0:
                return DONE if state.event >= events.shape[0] else FULL
        rows = state.walked
        lacking = _lacking(program, present, needed, out)
        if lacking >= 0:
            state.detail = lacking
            return GROW
        if state.invalid + 2 * columns * rows > invalid.shape[0] and keep_invalid:
            return INVALID_FULL
        for side in range(2):
            if not present[side]:
                continue
            absent = needed[side, columns] == rows
            complete = needed[side, columns] == 0 and needed[side, columns + 1] == 0
            for column in range(columns):
                how = program[column]
                target, values = out[side, column], positions[side, column]
                if how.kind == SKIPPED:
                    continue
                if absent:
                    _nothing(target, value_width(how), rows, base)
                    continue
                wrong = _gather_column(how, values, rows, target, (side, column), invalid, state)
                if wrong == -2 or (state.invalid > 0 and not keep_invalid):
                    state.detail = column
                    state.event = load32(meta.event + 4 * invalid[0].row)
                    return INVALID
                if wrong >= 0:
                    state.event = load32(meta.event + 4 * (base + wrong))
                    return MALFORMED
                _validity(target, values, rows, base, complete and not DATE <= how.kind <= TIMESTAMP)
        state.row = base + rows
        state.walked = 0
