"""How the columns of a data file are encoded: which are tried with a dictionary, and which are compressed.

Both cost more than the rest of the writing, and spare nothing for values that seldom repeat: keys, times, digests,
random numbers. A sample of the first rows shows which they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COMMON: dict[str, Any] = {"compression": "snappy", "store_decimal_as_integer": True}
"""The settings of columns for which nothing was decided."""
_FEWEST_FOR_DICTIONARY = 10_000
"""Rows of a data file for which dictionaries are tried: with fewer they take three times as long, and spare nothing."""
_FEWEST_BYTES = 1 << 20
"""Bytes in memory of rows that are worth a sample."""
_MOST_ROWS, _MOST_BYTES, _PART = 2048, 1 << 20, 16
"""Of a sample; and the part of the rows that it is at most."""
_FEWEST_OF_A_VALUE = 3
"""Bytes: a column of fewer, most of it NULL, costs little to compress, and may hold others further on."""
_PLACES = (0.02, 0.11, 0.26, 0.38, 0.53, 0.61, 0.77, 0.94)
"""Places of the sample's rows in the whole, at unequal distances: values may come in turns."""
_DICTIONARY = 2 << 20
"""Bytes of a dictionary above which most values don't get into it: the writer gives it up at half of them."""
_SPARED = 1 / 12
"""The part that compression has to spare: of digests in hexadecimal it spares 1 / 30, in a sample up to
1 / 15."""


@dataclass(frozen=True)
class ColumnEncodings:
    """Columns, as Parquet names their values. dictionary: those that are tried with one. plain: those that aren't
    compressed. columns: all."""

    dictionary: Sequence[str]
    plain: frozenset[str]
    columns: Sequence[str]

    def settings(self) -> dict[str, Any]:
        """Return what pyarrow's writer is given."""
        compression = {name: "none" if name in self.plain else COMMON["compression"] for name in self.columns}
        return {**COMMON, "use_dictionary": list(self.dictionary), "compression": compression}


def settings_for(rows: pa.Table, repeating: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the settings of pyarrow's writer for a data file that begins with these rows.

    repeating: the columns that may have a dictionary, None for all, if no column is a dictionary array. Readers needn't
    know which columns are: Arrow's would return such arrays, too.
    """
    kinds = {"store_schema": not any(pa.types.is_dictionary(kind) for kind in rows.schema.types)}
    if rows.nbytes < _FEWEST_BYTES:
        may_repeat = rows.num_rows >= _FEWEST_FOR_DICTIONARY if repeating is None else list(repeating)
        return {**COMMON, **kinds, "use_dictionary": may_repeat}
    return {**_encodings(rows, repeating).settings(), **kinds}


def _encodings(rows: pa.Table, repeating: Sequence[str] | None) -> ColumnEncodings:
    sample = _sample(rows)
    sizes = _sizes(sample)
    asked = {name: sized for name, sized in sizes.items() if sized[0] > sample.num_rows * _FEWEST_OF_A_VALUE}
    plain = frozenset(name for name, (size, packed) in asked.items() if packed > size * (1 - _SPARED))
    if repeating is None:
        few = rows.num_rows < _FEWEST_FOR_DICTIONARY
        repeating = [] if few else [name for name in sizes if _repeats(sample, name, sizes[name][0], rows.num_rows)]
    return ColumnEncodings(repeating, plain, list(sizes))


def _sample(rows: pa.Table) -> pa.Table:
    """Return some of the rows, from several places."""
    most = min(_MOST_ROWS, rows.num_rows // _PART, _MOST_BYTES * rows.num_rows // rows.nbytes)
    each = max(1, most // len(_PLACES))
    return pa.concat_tables([rows.slice(int(place * rows.num_rows), each) for place in _PLACES])


def _sizes(sample: pa.Table) -> dict[str, tuple[int, int]]:
    """Return the bytes of each column's values in a file: as they are, and compressed."""
    sink = pa.BufferOutputStream()
    pq.write_table(sample, sink, **COMMON, use_dictionary=False, write_statistics=False)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: (column.total_uncompressed_size, column.total_compressed_size) for column in columns}


def _repeats(sample: pa.Table, name: str, size: int, rows: int) -> bool:
    """Return whether a column's values repeat so often that a dictionary holds them.

    size: bytes of the sample's values. Of n values drawn from d different ones n² / 2d have been drawn before.
    """
    if name not in sample.column_names or pa.types.is_dictionary(sample.schema.field(name).type):  # values of lists
        return True
    count = sample.num_rows
    again = count - pc.count_distinct(sample[name], mode="all").as_py()
    different = count * count / (2 * again) if again else float("inf")
    return different <= 4 * rows and different * size / count <= _DICTIONARY
