"""Doubles as the servers print them; the texts here are copied from MySQL 9.7 and MariaDB 10.11."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from binlake.schema.doubles import double_text, double_texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (123.0, "123"),
        (0.1, "0.1"),
        (-123456789.12345678, "-123456789.12345678"),
        (1e14, "100000000000000"),
        (999999999999999.0, "999999999999999"),
        (1e15, "1e15"),
        (1234567890123456.0, "1.234567890123456e15"),
        (3809873142719557.5, "3809873142719557.5"),  # digits behind the point keep it plain
        (1e-15, "0.000000000000001"),
        (1.5e-15, "0.0000000000000015"),
        (1e-16, "1e-16"),
        (1.2345678901234567e-5, "0.000012345678901234568"),
        (1e22, "1e22"),
        (5e-324, "5e-324"),
        (-2.2250738585072014e-308, "-2.2250738585072014e-308"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
    ],
)
def test_texts_of_the_servers(value: float, text: str) -> None:
    assert double_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_bit_comes_back(value: float) -> None:
    assert struct.pack("<d", float(double_text(value))) == struct.pack("<d", value)


def test_null_stays_null() -> None:
    assert double_texts([1.5, None]) == ["1.5", None]
