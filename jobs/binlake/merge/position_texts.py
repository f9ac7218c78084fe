"""Positions of mutations as texts that compare as the log orders them.

000001:000000012345:000000007 is the number of the binlog file, the offset of the event, and the row in the event. A
boundary between two transactions is 000001:000000012345, the offset at which the next one begins: the texts before it
are smaller, and those behind it greater, also where they begin with it. A number with more digits than its part has
begins with an underscore for each of them, which is greater than a digit, so that the texts still compare as the
numbers. Positions of a log whose numbers don't continue the former one's, as after a move to another server, begin with
a mark: letters, which are greater than both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_FILE, _OFFSET, _ROW = 6, 12, 9
"""Digits of each part."""
_THREE_DIGITS = np.array([f"{number:03}" for number in range(1000)], "S3")
_TEXT = np.dtype(
    [
        *((f"file{place}", "S3") for place in range(_FILE // 3)), ("colon0", "S1"),
        *((f"offset{place}", "S3") for place in range(_OFFSET // 3)), ("colon1", "S1"),
        *((f"row{place}", "S3") for place in range(_ROW // 3)),
    ]
)  # fmt: skip
"""A text by its characters."""


_LETTERS = "abcdefghijklmnopqrstuvwxy"
_MORE = "z"


def log_mark(number: int) -> str:
    """Return the mark of the positions of a log: none for the first, number 0, and a greater one for each later log."""
    rounds, letter = divmod(number - 1, len(_LETTERS))
    return _MORE * rounds + _LETTERS[letter] if number else ""


def boundary_text(file: int, offset: int) -> str:
    """Return the text of a boundary between two transactions."""
    return f"{_number_text(file, _FILE)}:{_number_text(offset, _OFFSET)}"


def mutation_texts(file: NDArray[np.int64], offset: NDArray[np.int64], row: NDArray[np.int64]) -> pa.Array:
    """Return the texts of mutations' positions."""
    parts = ((file, _FILE), (offset, _OFFSET), (row, _ROW))
    if all(numbers.max(initial=0) < 10**digits for numbers, digits in parts):
        return _texts_of_one_width(parts)
    texts = (pa.array([_number_text(int(number), digits) for number in numbers]) for numbers, digits in parts)
    return pc.binary_join_element_wise(*texts, ":")


def mutation_text(file: int, offset: int, row: int = 0) -> str:
    """Return the text of one mutation's position."""
    return f"{boundary_text(file, offset)}:{_number_text(row, _ROW)}"


def _number_text(number: int, digits: int) -> str:
    text = f"{number:0{digits}}"
    return "_" * (len(text) - digits) + text


def _texts_of_one_width(parts: Sequence[tuple[NDArray[np.int64], int]]) -> pa.Array:
    """Return the texts where no number has more digits than its part, which are multiples of three."""
    (file, _), (offset, _), (row, _) = parts
    count = len(row)
    begins = np.flatnonzero(np.append(count > 0, (file[1:] != file[:-1]) | (offset[1:] != offset[:-1])))
    events = np.full(len(begins), mutation_text(0, 0).encode(), f"S{_TEXT.itemsize}").view(_TEXT)
    _write_digits(events, "file", file[begins], _FILE)
    _write_digits(events, "offset", offset[begins], _OFFSET)
    characters = events if len(events) == count else np.repeat(events, np.diff(begins, append=count))
    _write_digits(characters, "row", row, _ROW)
    ends = np.arange(0, (count + 1) * _TEXT.itemsize, _TEXT.itemsize, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(characters))


def _write_digits(characters: NDArray[np.void], name: str, numbers: NDArray[np.int64], digits: int) -> None:
    """Write a part of texts whose places hold zeros."""
    highest = int(numbers.max(initial=0))
    left = numbers.astype(np.uint32) if highest < 1 << 32 else numbers  # half the time of each division
    for place in reversed(range(digits // 3)):
        if not highest:
            return
        highest //= 1000
        higher = left // 1000 if highest else None
        characters[f"{name}{place}"] = _THREE_DIGITS.take(left if higher is None else left - higher * 1000)
        left = left if higher is None else higher
