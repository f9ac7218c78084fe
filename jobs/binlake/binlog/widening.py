"""Compiled code that widens row images: columns that they lack are added as NULL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from binlake.errors import Malformed
from binlake.kernels.native import copy, fill, kernel, load8, store8


def widened(images: bytes, program: Any, present: Sequence[bool]) -> bytes:
    """Return row images, back to back, with all columns of ``program`` (layouts.PROGRAM). present: whether an image has
    the column. Raises Malformed."""
    source = np.frombuffer(images, np.uint8)
    has = np.array(present, np.uint8)
    start, end = source.ctypes.data, source.ctypes.data + len(images)
    size = _widen(start, end, 0, program, has)
    if size < 0:
        raise Malformed("a value that reaches beyond its event")
    target = np.empty(size, np.uint8)
    _widen(start, end, target.ctypes.data, program, has)
    return target.tobytes()


@kernel
def _widen(source: int, end: int, target: int, program: Any, present: Any) -> int:
    """Write widened images to ``target``, or only count if that is 0. Returns their size in bytes, or -1 if an image
    reaches beyond ``end``."""
    columns = program.shape[0]
    held = 0
    for column in range(columns):
        held += present[column]
    if not held:
        return -1
    size = 0
    while source < end:
        nulls, bitmap = source, target + size
        source += (held + 7) >> 3
        size += (columns + 7) >> 3
        if source > end:
            return -1
        if target:
            fill(bitmap, 0, (columns + 7) >> 3)
        place = 0
        for column in range(columns):
            is_null = 1
            if present[column]:
                is_null = load8(nulls + (place >> 3)) >> (place & 7) & 1
                place += 1
            if is_null:
                if target:
                    store8(bitmap + (column >> 3), load8(bitmap + (column >> 3)) | 1 << (column & 7))
                continue
            length = program[column].prefix
            if source + length > end:
                return -1
            if length:
                for byte in range(program[column].prefix):
                    length += load8(source + byte) << (8 * byte)
            else:
                length = program[column].size
            if source + length > end:
                return -1
            if target:
                copy(target + size, source, length)
            source += length
            size += length
    return size
