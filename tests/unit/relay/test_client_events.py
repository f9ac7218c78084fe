"""Values as the relay's clients get them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from binlake.relay.client_events import value_text
from binlake.schema.table import Column


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (Column("c", "float"), float(np.float32(0.1)), b"0.1"),
        (Column("c", "float", precision=7, scale=3), float(np.float32(0.1)), b"0.100"),
        (Column("c", "double"), -0.0, b"-0"),
        (Column("c", "vector", length=2), [float(np.float32(0.1)), 5.0], b"[0.1,5]"),
        (Column("c", "decimal", precision=9, scale=8), Decimal("1E-8"), b"0.00000001"),
        (Column("c", "datetime", fraction=2), datetime(999, 1, 31, 13), b"0999-01-31 13:00:00.00"),
        (Column("c", "date"), date(999, 1, 31), b"0999-01-31"),
        (Column("c", "time", fraction=1), -3_600_500_000, b"-01:00:00.5"),
        (Column("c", "year"), 0, b"0000"),
        (Column("c", "int", zerofill=5), 42, b"00042"),
    ],
)
def test_a_value_has_the_servers_text(column: Column, value: Any, text: bytes) -> None:
    assert value_text(column, value) == text
