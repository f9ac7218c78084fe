"""Functions of SQL where Spark has none of arrays: a value alone gives what it gives in an array."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from binlake.schema.datatypes import REGISTRY
from binlake.spark import functions

FLOATS = struct.pack("<3f", 1.5, -0.0, 3.4e38)
VALUES: dict[str, Any] = {
    "binlake_vector": FLOATS,
    "binlake_vector_hex": list(struct.unpack("<3f", FLOATS)),
}


@pytest.mark.parametrize("number", [1.5, -0.0, 1e300, 0.1])
def test_a_double_has_the_text_that_it_has_in_an_array(number: float) -> None:
    of_row = functions.of_value(functions._double_text)
    assert of_row(number) == functions._double_text(pa.array([number, None]))[0].as_py()
    assert of_row(None) is None


def test_each_function_of_a_type_gives_the_same_of_a_value_alone() -> None:
    known = {name: function for entry in REGISTRY.values() for name, (function, _) in entry.functions.items()}
    assert known
    for name, function in known.items():
        value = VALUES.get(name, bytes(range(16)))
        of_row = functions.of_value(function)
        assert of_row(value) == function(pa.array([value]))[0].as_py()
        assert of_row(None) is None
        if isinstance(value, bytes):  # what Spark gives a function in Python
            assert of_row(bytearray(value)) == of_row(value)
