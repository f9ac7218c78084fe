"""A feed's ``where``: SQL's answers, and a closed set of words."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from binlake.errors import ConfigurationError, FeedError
from binlake.feeds import condition
from binlake.feeds.contract import FeedTable
from binlake.schema.table import Column, TableName

TABLE = FeedTable(TableName("shop", "user"), (), ())
IMAGE = pa.struct(
    {"id": pa.int64(), "name": pa.string(), "price": pa.decimal128(9, 2), "flag": pa.bool_(), "raw": pa.binary()}
)
OLD: dict[str, Any] = {"id": 1, "name": "ann", "price": "1.50", "flag": True, "raw": b"\x00a"}
MOMENT = datetime(2024, 1, 2, 3, 4, 5)
NEW: dict[str, Any] = {"id": 2, "name": None, "price": "2.00", "flag": None, "raw": None}


def rows() -> pa.RecordBatch:
    """An insert of NEW, an update of OLD to NEW, a delete of OLD."""
    import decimal

    def image(row: dict[str, Any] | None) -> dict[str, Any] | None:
        return row and {**row, "price": decimal.Decimal(row["price"])}

    return pa.RecordBatch.from_arrays(
        [
            pa.array([1, 2, 3], pa.int8()),
            pa.array([image(None), image(OLD), image(OLD)], IMAGE),
            pa.array([image(NEW), image(NEW), image(None)], IMAGE),
        ],
        ["op", "before", "after"],
    )


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ("db = 'shop' AND table = 'user'", "iud"),
        ("table = 'other'", ""),
        ("op = 'delete'", "d"),
        ("op IN ('insert', 'delete')", "id"),
        ("id = 1", "d"),
        ("id = '1'", "d"),
        ("id <> 1.0", "iu"),
        ("before.id = 1", "ud"),
        ("before.id <> after.id", "u"),
        ("name = 'ann'", "d"),
        ("name <> 'bob'", "d"),  # of the others it is NULL
        ("name IS NULL", "iu"),
        ("name IS NOT NULL OR id = 2", "iud"),
        ("NOT (name = 'ann')", ""),
        ("name LIKE 'a%'", "d"),
        ("name NOT LIKE 'a%'", ""),
        ("name NOT LIKE 'b%'", "d"),
        ("NOT name NOT LIKE 'a%'", "d"),
        ("name NOT IN ('bob', NULL)", ""),
        ("name NOT IN ('bob')", "d"),
        ("id NOT BETWEEN 2 AND 3", "d"),
        ("flag IS NOT TRUE", "iu"),
        ("price BETWEEN 1.5 AND 1.99", "d"),
        ("price > 1", "iud"),
        ("flag = 1", "d"),
        ("flag IS TRUE", "d"),
        ("raw = 'x'", ""),
        ("missing = 5 OR missing IS NULL", "iud"),
        ("missing = other", ""),
        ("TRUE", "iud"),
        ("NULL", ""),
        ("-1 < id", "iud"),
        ("ID = 1", "d"),
    ],
)
def test_what_passes(where: str, passes: str) -> None:
    passing = condition.parse(where).passing(TABLE, rows()).to_pylist()
    assert "".join(letter for letter, passed in zip("iud", passing, strict=True) if passed) == passes


@pytest.mark.parametrize(
    "where",
    [
        "SLEEP(1)", "id = SLEEP(1)", "id = (SELECT 1)", "EXISTS (SELECT 1)", "id IN (SELECT 1)", "id = 1; DROP TABLE x",
        "id", "1", "id = 1 +", "a.b.c = 1", "t.id = 1", "id = @x", "id = id + 1", "CASE WHEN id THEN 1 END = 1",
        "__import__('os') = 1", "name LIKE id", "id <=> 1", "", ";", "(" * 500, "NOT " * 5000 + "TRUE",
        "id BETWEEN SYMMETRIC 2 AND 1", "id = 1 " + "OR id = 1 " * 2000, "name LIKE 'a|%' ESCAPE '|'", "id < 1e100",
        "id > -1e100",
    ],
)  # fmt: skip
def test_what_is_outside_of_the_closed_set_is_refused(where: str) -> None:
    with pytest.raises(ConfigurationError, match="where: "):
        condition.parse(where)


@pytest.mark.parametrize("where", ["id > 'ann'", "price > 'ann'", "name < 10", "10 >= name", "name BETWEEN 1 AND 9"])
def test_a_column_and_a_value_of_another_kind(where: str) -> None:
    with pytest.raises(FeedError, match=r"can't be asked of shop\.user"):
        condition.parse(where).passing(TABLE, rows())


MOMENTS = pa.RecordBatch.from_pylist(
    [{"op": 1, "before": None, "after": {"day": date(2024, 1, 2), "at": MOMENT, "utc": MOMENT.replace(tzinfo=UTC)}}],
    pa.schema(
        [
            ("op", pa.int8()),
            *(
                (image, pa.struct({"day": pa.date32(), "at": pa.timestamp("us"), "utc": pa.timestamp("us", "UTC")}))
                for image in ("before", "after")
            ),
        ]
    ),
)


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ("day = '2024-01-02'", True),
        ("day > '2024-01-02'", False),
        ("at = '2024-01-02 03:04:05'", True),
        ("utc = '2024-01-02 03:04:05Z'", True),
        ("utc = '2024-01-02 05:04:05+02:00'", True),
        ("utc BETWEEN '2024-01-01 00:00:00Z' AND '2024-01-02 00:00:00Z'", False),
    ],
)
def test_dates_and_times_are_compared_with_texts(where: str, passes: bool) -> None:
    assert condition.parse(where).passing(TABLE, MOMENTS).to_pylist() == [passes]


@pytest.mark.parametrize(
    "where", ["day = 20240102", "at = 20240102030405", "utc > 1", "utc = '2024-01-02 03:04:05'", "day = 'x'"]
)
def test_another_text_or_a_number_is_no_date_or_time(where: str) -> None:
    with pytest.raises(FeedError, match="isn't written as '2024-01-02"):
        condition.parse(where).passing(TABLE, MOMENTS)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (Column("n", "decimal", precision=65, scale=30), pa.string()),  # as it is staged
        (Column("n", "decimal", precision=38, scale=30), pa.decimal128(38, 30)),
    ],
)
@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ("n > 5", [True, False, False, False]),
        ("n = 10", [True, False, False, False]),
        ("n = '9.5'", [False] * 4),
        ("n BETWEEN -1 AND 9.5", [False, True, True, False]),
        ("n < 1234567890123", [True, True, True, False]),
        ("n IN (10, -0.5)", [True, False, True, False]),
        ("n <> TRUE", [True, True, True, False]),
        ("n IS NULL", [False, False, False, True]),
        ("before.n < after.n", [False] * 4),
        ("n > -0.500000000000000000000000000001", [True] * 3 + [False]),
    ],
)
def test_decimals_of_many_digits_are_numbers(column: Column, kind: pa.DataType, where: str, passes: list[bool]) -> None:
    values = pa.array(["10." + "0" * 30, "4." + "0" * 30, "-0.5" + "0" * 29, None], pa.string()).cast(kind)
    image = pa.StructArray.from_arrays([values], ["n"])
    inserts = pa.RecordBatch.from_arrays(
        [pa.array([1] * 4, pa.int8()), pa.nulls(4, image.type), image], ["op", "before", "after"]
    )
    table = FeedTable(TableName("shop", "user"), (column,), ())
    assert condition.parse(where).passing(table, inserts).to_pylist() == passes


WORDS = st.sampled_from([*"()=<>'`,.-%*;!@ \n", "id", "name", " AND ", " OR ", " NOT ", " IN ", "1", "x"])


@given(st.lists(WORDS, max_size=40).map("".join))
@example("x''")
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_condition_or_refused(where: str) -> None:
    try:
        parsed = condition.parse(where)
        assert len(parsed.passing(TABLE, rows())) == 3
    except (ConfigurationError, FeedError):
        pass
