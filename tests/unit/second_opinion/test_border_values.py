"""Values of mysql-replication against the border's: what is the same, and that nothing else is."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

from binlake.schema.table import Column
from binlake.second_opinion.border_values import has_opaque, plain, same

DEEP = {b"a": [1, 2.5, b"x", None, True, {}], "ü".encode(): -1}


@pytest.mark.parametrize(
    ("column", "theirs", "ours"),
    [
        (Column("c", "int"), -5, -5),
        (Column("c", "bigint", unsigned=True), 18446744073709551615, Decimal(18446744073709551615)),
        (Column("c", "decimal", precision=10, scale=2), Decimal("-0.10"), Decimal("-0.10")),
        (Column("c", "decimal", precision=39, scale=2), Decimal("0E-2"), "0.00"),
        (Column("c", "double"), -0.0, -0.0),
        (Column("c", "bit", length=1), "1", True),
        (Column("c", "bit", length=17), "1" + "0" * 15 + "1", b"\x01\x00\x01"),
        (Column("c", "date"), date(2020, 2, 29), date(2020, 2, 29)),
        (Column("c", "datetime"), datetime(2020, 1, 1, 1), datetime(2020, 1, 1, 1)),
        (Column("c", "timestamp"), datetime(2020, 1, 1, 1), datetime(2020, 1, 1, 1, tzinfo=UTC)),
        (Column("c", "time"), timedelta(hours=-1, microseconds=1), -3_599_999_999),
        (Column("c", "year"), 1901, 1901),
        (Column("c", "varchar", charset="utf8mb4"), "é", "é"),
        (Column("c", "text", charset="utf8mb4"), "", ""),
        (Column("c", "blob"), "", b""),
        (Column("c", "varbinary"), b"\0", b"\0"),
        (Column("c", "enum", values=("a", "b")), "b", "b"),
        (Column("c", "set", values=("x", "y", "z")), {"z", "x"}, "x,z"),
        (Column("c", "geometry"), b"\0\1", b"\0\1"),
        (Column("c", "json"), DEEP, '{"a": [1, 2.5, "x", null, true, {}], "ü": -1}'),
    ],
    ids=lambda value: value.type if isinstance(value, Column) else "",
)
def test_the_same_value_in_both_forms(column: Column, theirs: Any, ours: Any) -> None:
    assert plain(column, theirs) == ours
    assert same(column, ours, theirs)
    assert not same(column, None, theirs)
    assert not same(column, ours, None)
    assert same(column, None, None)


@pytest.mark.parametrize(
    ("column", "theirs", "ours"),
    [
        (Column("c", "int"), 1, 2),
        (Column("c", "int"), 1, True),
        (Column("c", "double"), 0.0, -0.0),
        (Column("c", "decimal", precision=10, scale=2), Decimal("1.0"), Decimal("1.00")),
        (Column("c", "varchar", charset="ucs2"), b"a", "a"),
        (Column("c", "set", values=("x", "y")), {"x", "lost"}, "x,y"),
        (Column("c", "json"), {b"a": 1}, '{"a": 1.0}'),
        (Column("c", "json"), [1], "[true]"),
        (Column("c", "json"), [0.0], "[-0.0]"),
        (Column("c", "json"), [b"1"], "[1]"),
        (Column("c", "json"), [1, 2], "[2, 1]"),
    ],
    ids=lambda value: value.type if isinstance(value, Column) else "",
)
def test_what_python_takes_for_equal_and_the_server_does_not(column: Column, theirs: Any, ours: Any) -> None:
    assert not same(column, ours, theirs)


def test_json_is_compared_as_a_document() -> None:
    column = Column("c", "json")
    assert same(column, '{"b":   1e15, "a": 1}', {b"a": 1, b"b": 1000000000000000.0})


@pytest.mark.parametrize("value", [Decimal(1), datetime(2020, 1, 1), time(1), "bytes", {b"a": [Decimal(1)]}])
def test_what_a_document_has_no_type_for(value: Any) -> None:
    assert has_opaque(value)
    assert not has_opaque(DEEP)
