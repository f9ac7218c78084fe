"""Layouts of memory that Python and the compiled kernels share, as numpy record types with named fields."""

from __future__ import annotations

from typing import Any

import numpy as np

SLACK = 64
"""Bytes after the end that may be read (of events) or written (of column buffers)."""
MORE, ROOM, OTHER, BEYOND = range(4)
"""Return codes of ``framing.unpack``."""


def _integers(*names: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in names], align=True)


SCAN = _integers(
    "at", "row_events", "transactions", "text_used", "mapped", "xa", "id_size", "checksum", "fixed_offset", "began",
    "scratch",
)  # fmt: skip
"""The state of ``scan``: bytes of the chunk already read, row events and transactions so far, bytes of their GTIDs,
tables mapped in the open transaction, number of its XA id (0 is none), sizes of a table id and of a checksum,
offset of a payload's events (0 outside), offset of the open transaction, and the address of native.SCRATCH bytes."""
ROW_EVENT = _integers("body", "end", "kind", "transaction", "offset", "known", "xa", "ordinal")
"""A row event that ``scan`` found: addresses of its body and its end, the event's type, the number of its transaction,
its place in the file, the number of its table's map, of its XA id, and the ordinal of its first row."""
KNOWN = _integers("body", "size", "wanted", "unchecked")
"""A table map: address and size (bytes) of what is behind its id, whether its rows are wanted, and whether some came
from a session with foreign_key_checks = 0."""
MAPPED = _integers("table_id", "known")
"""A table id and the number of its map."""
GTID_RUN = _integers("start", "size", "first", "last", "transaction")
"""A run of consecutive GTIDs: address and size of the text before their number, first and last number, and the number
of the transaction that has the first."""

ROWS = _integers("address", "end", "op", "transaction", "offset", "ordinal", "xa")
"""The rows of one event, uncompressed: their address and end; the rest as in ROW_EVENT."""
PROGRAM = _integers("kind", "prefix", "size", "first", "second")
"""How a column is gathered: what kind of value, bytes of a string's length (else 0), bytes of a fixed value, and two
parameters (digits after the second; precision and scale; length to pad to, and whether ASCII is worth knowing)."""
DECODE = _integers("event", "address", "row", "walked", "detail", "invalid", "ordinal")
"""The state of ``decode``: event, address in it and ordinal of the next row; rows gathered; rows walked, not gathered
yet; the column that a status concerns; and how many invalid dates are listed."""
BUFFERS = _integers("validity", "data", "offsets", "capacity", "used", "nulls", "not_ascii")
"""A column's buffers on one side: addresses, bytes that fit in its data, bytes in it, nulls, and whether a byte of its
text isn't ASCII."""
INVALID = _integers("side", "column", "row", "address")
"""A date that no calendar has."""
META = _integers("op", "offset", "ordinal", "transaction", "xa", "before", "after", "event")
"""Addresses of what is noted of each row besides its values. before, after: whether it has the image. event: index."""


def record(layout: np.dtype[Any]) -> Any:
    """Return a record of zeros, whose fields are attributes in Python and in kernels."""
    return np.zeros(1, layout).view(np.recarray)[0]


def taken(records: Any, places: Any) -> Any:
    """Return a copy of some records. They are copied as numbers, because numpy copies records field by field."""
    numbers = records.view(np.int64).reshape(len(records), -1)
    return numbers[places].reshape(-1).view(records.dtype)


def many(count: int | tuple[int, ...], layout: np.dtype[Any]) -> Any:
    """Return an array of records of zeros."""
    return np.zeros(count, layout)
