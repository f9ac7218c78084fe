"""The texts that a collation takes for equal to a text of plain ASCII, as far as that is certain.

Plain ASCII is the space and what is printed. Within it each collation here has a weight for every character, which is
that of no other but the letter's other case: both servers were asked for all pairs (tests/integration/
test_row_conditions.py). Beyond it collations know accents, characters of two weights and of none, which no table here
knows: such a value is certainly different where its plain characters don't occur in the text, in their order. Else it
is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_FIRST, _LAST = 0x20, 0x7E
_ODD_RUN = re.compile(r"[^ -~]+")


@dataclass(frozen=True)
class TextEquality:
    """How a collation compares. folds: without regard to case. pads: without regard to spaces at the end. by_code: two
    texts are equal if their characters are, also beyond plain ASCII."""

    folds: bool
    pads: bool
    by_code: bool = False

    def matches(self, values: pa.Array, texts: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None]:
        """Return which values are equal to one of some texts of plain ASCII, and which may be; None for no such.

        NULL is neither. texts: not empty.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array(sorted({self._form(text) for text in texts}), values.type)
        forms = pc.ascii_lower(values) if self.folds else values
        forms = pc.ascii_rtrim(forms, " ") if self.pads else forms
        equal: NDArray[np.bool_] = pc.is_in(forms, wanted).to_numpy(zero_copy_only=False)
        if self.by_code or _is_plain(values):
            return equal, None
        odd: NDArray[np.bool_] = pc.fill_null(pc.match_substring_regex(values, r"[^ -~]"), False).to_numpy(
            zero_copy_only=False
        )
        distinct = pc.unique(values.filter(pa.array(odd)))
        near = [value for value in distinct.to_pylist() if any(self._may_equal(value, text) for text in texts)]
        undecided: NDArray[np.bool_] = pc.is_in(values, pa.array(near, values.type)).to_numpy(zero_copy_only=False)
        return equal & ~odd, undecided if near else None

    def decides(self, value: str, text: str) -> bool | None:
        """Return whether one value is equal to a text of plain ASCII; None where that isn't certain."""
        if self.by_code or not _ODD_RUN.search(value):
            return self._form(value) == self._form(text)
        return None if self._may_equal(value, text) else False

    def _form(self, text: str) -> str:
        text = text.lower() if self.folds and text.isascii() else text
        return text.rstrip(" ") if self.pads else text

    def _may_equal(self, value: str, text: str) -> bool:
        """Return whether a value with other than plain characters may be equal to a text: these may stand for any
        characters, or none."""
        plain = [self._cased(part) for part in _ODD_RUN.split(value)]
        pattern = ".*".join(re.escape(part) for part in plain)
        longer = self._cased(text).rstrip(" ") + " " * len(value) if self.pads else self._cased(text)
        if self.pads:
            pattern += " *"
        return re.fullmatch(pattern, longer) is not None

    def _cased(self, text: str) -> str:
        return text.lower() if self.folds else text


def _is_plain(values: pa.Array) -> bool:
    """Return whether all values are plain ASCII, by a look at their bytes."""
    import pyarrow as pa

    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return True
    wide = pa.types.is_large_string(values.type)
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32)
    first, behind = ends[values.offset], ends[values.offset + len(values)]
    stored = np.frombuffer(data, np.uint8)[first:behind]
    return not len(stored) or bool(stored.min() >= _FIRST and stored.max() <= _LAST)


_KNOWN = (
    # utf8mb4_bin, utf8mb3_bin, latin1_bin, ascii_bin
    (TextEquality(folds=False, pads=True, by_code=True), (46, 83, 47, 65)),
    # utf8mb4_0900_bin, and the no-pad twins on MariaDB
    (TextEquality(folds=False, pads=False, by_code=True), (309, 1070, 1107, 1071, 1089)),
    # general, unicode, unicode_520 and uca1400 (ai, as) _ci; latin1_swedish_ci, latin1_general_ci, ascii_general_ci
    (TextEquality(folds=True, pads=True), (45, 33, 224, 192, 246, 214, 2304, 2306, 2048, 2050, 8, 48, 11)),
    # utf8mb4_0900_ai_ci, utf8mb4_0900_as_ci, and the no-pad twins on MariaDB
    (
        TextEquality(folds=True, pads=False),
        (255, 305, 1069, 1057, 1248, 1216, 1270, 1238, 2308, 2310, 2052, 2054, 1032, 1035),
    ),
    # latin1_general_cs, uca1400 (ai, as) _cs
    (TextEquality(folds=False, pads=True), (49, 2305, 2307, 2049, 2051)),
    # utf8mb4_0900_as_cs, and the no-pad twins on MariaDB
    (TextEquality(folds=False, pads=False), (278, 2309, 2311, 2053, 2055)),
)
"""Collations by the numbers that the servers give them (SHOW COLLATION)."""
_BY_NUMBER = {number: equality for equality, numbers in _KNOWN for number in numbers}


def text_equality(collation: int) -> TextEquality | None:
    """Return how a collation compares with plain ASCII; None where that isn't known. collation: the server's number."""
    return _BY_NUMBER.get(collation)
