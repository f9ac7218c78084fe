"""Positions of a history's rows as texts that compare as the log orders them.

| text                              | position of |
|-----------------------------------|-------------|
| 000001:000000012345:000000007     | a mutation: number of the binlog file, offset of the event, row in the event |
| 000001:000000012345               | a snapshot, or a boundary between two transactions |

A boundary is the offset at which the next transaction begins. The events before it have smaller offsets, so their texts
are smaller; the events behind it have the same offset or a greater one, and a text with the same beginning is greater
than it because it is longer. A number with more digits than its part has begins with a tilde for each of them: tildes
are greater than digits, so that the texts still compare as the numbers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_FILE, _OFFSET, _ROW = 6, 12, 9
"""Digits of each part."""


def boundary_text(file: int, offset: int) -> str:
    """Return the text of a boundary between two transactions, or of a snapshot there."""
    return f"{_number_text(file, _FILE)}:{_number_text(offset, _OFFSET)}"


def mutation_texts(file: NDArray[np.int64], offset: NDArray[np.int64], row: NDArray[np.int64]) -> pa.Array:
    """Return the texts of mutations' positions."""
    parts = [_number_texts(numbers, digits) for numbers, digits in ((file, _FILE), (offset, _OFFSET), (row, _ROW))]
    return pc.binary_join_element_wise(*parts, ":")


def _number_text(number: int, digits: int) -> str:
    text = f"{number:0{digits}}"
    return "~" * (len(text) - digits) + text


def _number_texts(numbers: NDArray[np.int64], digits: int) -> pa.Array:
    if numbers.size and int(numbers.max()) >= 10**digits:
        return pa.array([_number_text(int(number), digits) for number in numbers], pa.string())
    return pc.utf8_lpad(pa.array(numbers, pa.int64()).cast(pa.string()), digits, "0")
