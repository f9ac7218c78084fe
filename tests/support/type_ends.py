"""Values at the ends of the types of the lake's columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

KINDS: dict[str, Sequence[Any]] = {
    "INT": (-(2**31), 2**31 - 1, 0),
    "BIGINT": (-(2**63), 2**63 - 1, 0),
    "TINYINT": (-128, 127, 0),
    "SMALLINT": (-(2**15), 2**15 - 1, 0),
    "STRING": ("", "ü" * 40, "\U0010ffff" * 33, "a\x00b"),
    "BINARY": (b"", b"\x00\xff", b"x" * 100),
    "DOUBLE": (-0.0, 5e-324, 1.7976931348623157e308, float("-inf")),
    "FLOAT": (-0.0, 1.401298464324817e-45, 3.4028234663852886e38),
    "DATE": (dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(1582, 10, 10)),
    "BOOLEAN": (True, False),
    "TIMESTAMP": (
        dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
    ),
    "TIMESTAMP_NTZ": (
        dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1, 0, 0, 0, 1),
    ),
    "ARRAY<FLOAT>": ([], [1.5, -0.0], [1.401298464324817e-45, None, float("inf")]),
    "DECIMAL(10,2)": (Decimal("-99999999.99"), Decimal("99999999.99"), Decimal("0.01")),
    "DECIMAL(38,0)": (Decimal("-" + "9" * 38), Decimal("9" * 38), Decimal(0)),
    "DECIMAL(38,30)": (Decimal("-0." + "1" * 30), Decimal("99999999." + "9" * 30)),
}  # fmt: skip
"""Values at the ends of each type that the lake has."""
