"""Where keys are in the rows of a data file."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from binlake.merge.key_places import among, in_order

MANY = 5000
ASCENDING = [3 * number - 4000 for number in range(MANY)]


def shuffled(values: list[int]) -> list[int]:
    return random.Random(7).sample(values, len(values))


@pytest.mark.parametrize("kind", [pa.int64(), pa.int16()])
@pytest.mark.parametrize(
    "values",
    [
        ASCENDING,
        shuffled(ASCENDING),
        [*ASCENDING, ASCENDING[-1]],
        [None, *ASCENDING],
        ASCENDING[:9],
        [],
    ],
    ids=["ascending", "shuffled", "twice", "with NULL", "few", "none"],
)
@pytest.mark.parametrize(
    "wanted",
    [[-4000, -3999, 2, 10997, 10998, None], [32767, -32768], [5, 5, 2], []],
    ids=["ends", "beyond", "twice", "none"],
)
def test_places_are_those_of_a_comparison_with_each_row(
    values: list[int | None], wanted: list[int | None], kind: pa.DataType
) -> None:
    places = among(pa.chunked_array([values[:2], values[2:]], kind), pa.array(wanted, kind))
    expected = [place for place, value in enumerate(values) if value is not None and value in wanted]
    assert sorted(set(places.tolist())) == expected


def test_the_rows_of_a_large_file_are_in_the_order_of_their_key() -> None:
    rows = pa.table({"id": shuffled(ASCENDING), "v": pa.array(map(str, shuffled(ASCENDING)))})
    ordered = in_order(rows, ["id"])
    assert ordered["id"].to_pylist() == ASCENDING
    assert ordered.sort_by("id") == rows.sort_by("id")


def test_other_rows_stay_as_they_are() -> None:
    rows = pa.table({"id": shuffled(ASCENDING), "name": pa.array(map(str, shuffled(ASCENDING)))})
    for few, key in ((rows.slice(0, 9), ["id"]), (rows, ["name"]), (rows, ["id", "name"])):
        assert in_order(few, key) == few
