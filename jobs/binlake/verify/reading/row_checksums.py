"""Checksums of rows, computed from Arrow columns: 128 bits for each row, the same wherever equal values came from.

A row's checksum is built column by column, eight bytes of a value at a time. A NULL adds nothing, so each value adds
the number of its column, too: no value can be taken for another column's. Equal sums of a chunk's checksums say that
its rows are equal, but for a chance of 2^-128. The checksums don't protect against somebody who makes two rows alike on
purpose.

The two halves are mixed by different functions: the finalizer of MurmurHash3, and variant 13 of David Stafford's
("Better Bit Mixing", 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.errors import LakeError
from binlake.kernels.native import kernel, load8, load64
from binlake.kernels.row_kernels import Numbers

Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]

_ALL_VALID: Flags = np.empty(0, np.bool_)
_STEP = 0x9E3779B97F4A7C15
"""The difference between the numbers that two neighbouring columns add to their values."""
_S30, _S27, _S31, _S33 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(33)
_M1, _M2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_M3, _M4 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@kernel
def _first(word: Any) -> Any:
    word = (word ^ (word >> _S33)) * _M1
    word = (word ^ (word >> _S33)) * _M2
    return word ^ (word >> _S33)


@kernel
def _second(word: Any) -> Any:
    word = (word ^ (word >> _S30)) * _M3
    word = (word ^ (word >> _S27)) * _M4
    return word ^ (word >> _S31)


@kernel
def _add_words(words: Words, valid: Flags, seed: Any, first: Words, second: Words) -> None:
    """Add a column of 64-bit values to the rows' checksums."""
    nullable = len(valid) > 0
    for row in range(len(words)):
        if nullable and not valid[row]:
            continue
        first[row] = _first(first[row] ^ (words[row] + seed))
        second[row] = _second(second[row] + (words[row] ^ seed))


@kernel
def _add_bytes(address: int, offsets: Numbers, valid: Flags, seed: Any, first: Words, second: Words) -> None:
    """Add a column of bytes at ``address`` to the rows' checksums: eight at a time, then the rest, then their count."""
    nullable = len(valid) > 0
    for row in range(len(offsets) - 1):
        if nullable and not valid[row]:
            continue
        at, end = address + offsets[row], address + offsets[row + 1]
        first_sum, second_sum = first[row], second[row]
        while at + 8 <= end:
            word = np.uint64(load64(at))
            first_sum = _first(first_sum ^ (word + seed))
            second_sum = _second(second_sum + (word ^ seed))
            at += 8
        rest = np.uint64(0)
        for place in range(end - at):
            rest |= np.uint64(load8(at + place)) << np.uint64(8 * place)
        first_sum = _first(first_sum ^ (rest + seed))
        second_sum = _second(second_sum + (rest ^ seed))
        size = np.uint64(offsets[row + 1] - offsets[row])
        first[row] = _first(first_sum ^ (size + seed))
        second[row] = _second(second_sum + (size ^ seed))


@kernel
def _sum_up(cells: Numbers, first: Words, second: Words, rows: Numbers, sums: Words) -> None:
    """Add each row to its cell: its count, and both halves of its checksum."""
    for row in range(len(cells)):
        cell = cells[row]
        rows[cell] += 1
        sums[cell, 0] += first[row]
        sums[cell, 1] += second[row]


@dataclass(frozen=True)
class Checksums:
    """The halves of the checksums of some rows."""

    first: Words
    second: Words

    @classmethod
    def of(cls, columns: Sequence[pa.Array], rows: int) -> Checksums:
        """Return the checksums of ``rows`` rows of some columns. Raises LakeError for a list with a NULL in it."""
        return cls(np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)).with_columns(columns, 0)

    def with_columns(self, columns: Sequence[pa.Array], number: int) -> Checksums:
        """Return the checksums of the rows with further columns, of which the first has this number."""
        first, second = self.first.copy(), self.second.copy()
        for place, column in enumerate(columns, number):
            if column.null_count < len(column):
                _add(column, (place + 1) * _STEP, first, second)
        return Checksums(first, second)

    def pairs(self) -> NDArray[Any]:
        """Return both halves of each checksum as one value that numpy compares."""
        both = np.empty(len(self.first), np.dtype([("first", np.uint64), ("second", np.uint64)]))
        both["first"], both["second"] = self.first, self.second
        return both

    def at(self, places: NDArray[Any]) -> Checksums:
        """Return the checksums of the rows at some places."""
        return Checksums(self.first[places], self.second[places])


@dataclass(frozen=True)
class Sums:
    """Rows and sums of checksums by cell; a cell is a part of a table, the same on both sides."""

    rows: Numbers
    sums: Words

    @classmethod
    def empty(cls, cells: int) -> Sums:
        """Return sums of so many cells without rows."""
        return cls(np.zeros(cells, np.int64), np.zeros((cells, 2), np.uint64))

    def add(self, cells: Numbers, checksums: Checksums) -> None:
        """Add rows, each to its cell."""
        _sum_up(cells, checksums.first, checksums.second, self.rows, self.sums)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.rows + other.rows, self.sums + other.sums)

    def by_chunk(self, cells: int) -> Sums:
        """Return the rows and sums of chunks of so many cells each."""
        sums = self.sums.reshape(-1, cells, 2).sum(axis=1, dtype=np.uint64)
        return Sums(self.rows.reshape(-1, cells).sum(axis=1), sums)

    def text(self, cell: int) -> str:
        """Return the sum of a cell as text."""
        return "{:016x}{:016x}".format(*self.sums[cell].tolist())

    def differing(self, other: Sums) -> NDArray[np.intp]:
        """Return the numbers of the cells that differ, ascending."""
        return np.flatnonzero((self.rows != other.rows) | (self.sums != other.sums).any(axis=1))

    @property
    def total(self) -> int:
        """Return the number of all rows."""
        return int(self.rows.sum())


def _add(column: pa.Array, step: int, first: Words, second: Words) -> None:
    seed, other = (np.uint64((step + half) % 2**64) for half in (0, 1))
    valid = pc.is_valid(column).to_numpy(zero_copy_only=False) if column.null_count else _ALL_VALID
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        _add_bytes(*_bytes(column, 1), valid, seed, first, second)
    elif pa.types.is_list(kind):
        if column.flatten().null_count:
            raise LakeError("a list holds a NULL")
        _add_bytes(*_bytes(column, kind.value_type.bit_width // 8), valid, seed, first, second)
    elif pa.types.is_decimal(kind):
        halves = _fixed(column, np.dtype(np.uint64), 2)
        for half, own in enumerate((seed, other)):
            _add_words(np.ascontiguousarray(halves[half::2]), valid, own, first, second)
    else:
        _add_words(_words(column), valid, seed, first, second)


def _words(column: pa.Array) -> Words:
    """Return values of a fixed size of up to eight bytes as 64-bit words."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    width = column.type.bit_width // 8
    values = _fixed(column, np.dtype(f"i{width}"), 1)
    return values.astype(np.int64).view(np.uint64)


def _fixed(column: pa.Array, dtype: np.dtype[Any], each: int) -> NDArray[Any]:
    """Return a column's buffer as ``each`` numbers a value."""
    numbers: NDArray[Any] = np.frombuffer(column.buffers()[1], dtype)
    return numbers[column.offset * each : (column.offset + len(column)) * each]


def _bytes(column: pa.Array, width: int) -> tuple[int, Numbers]:
    """Return the address of a column's bytes, and where there each value begins and ends. width: bytes of an item."""
    buffers = column.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if pa.types.is_list(column.type):
        items = column.values
        data, skipped = items.buffers()[1], items.offset
    else:
        data, skipped = buffers[2], 0
    return (data.address if data is not None else 0), (offsets + skipped) * width
