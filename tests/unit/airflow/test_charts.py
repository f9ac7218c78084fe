"""Charts over time: numbers in, an SVG with axes and words out."""

from __future__ import annotations

from itertools import pairwise
from xml.etree.ElementTree import Element
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from binlake_airflow.page.charts import (
    BYTES,
    COUNT,
    SECONDS,
    Periods,
    Series,
    Unit,
    columns,
    lanes,
    line,
    time_labels,
)
from binlake_airflow.page.lag import Batches, Carried, headroom, most_behind
from binlake_airflow.page.over_time import SPANS, Span
from drawn import drawn, said

MINUTE = 60_000_000
HOUR = 60 * MINUTE
NOON = 1_772_366_400_000_000
"""2026-03-01 12:00 UTC."""
QUARTERS = Periods(NOON, 15 * MINUTE, 4)


def words(svg: Element, look: str) -> list[str | None]:
    return [text.text for text in svg.iterfind(f"text[@class='{look}']")]


def rectangles(svg: Element, look: str) -> list[dict[str, float]]:
    shapes = svg.iterfind(f"rect[@class='{look}']")
    return [{name: float(shape.attrib[name]) for name in ("x", "y", "height")} for shape in shapes]


def test_periods_end_with_the_one_that_is_now() -> None:
    periods = Periods.until(NOON + 7 * MINUTE, 15 * MINUTE, 4)
    assert (periods.since_us, periods.until_us) == (NOON - 45 * MINUTE, NOON + 15 * MINUTE)
    assert periods.said(3) == "12:00 to 12:15"
    assert Periods(NOON, 6 * HOUR, 2).said(1) == "Mar 1, 18:00 to 00:00"


def test_columns_stand_on_each_other_and_say_their_numbers() -> None:
    series = [Series("inserted", "inserted", [30, 0, 0, 5]), Series("deleted", "deleted", [10, 0, 2, 0])]
    svg = drawn(columns("Rows <changed>", QUARTERS, series, COUNT, 500))
    assert svg.attrib["aria-label"] == "Rows <changed>"
    assert said(svg)[0] == "12:00 to 12:15: inserted 30, deleted 10"
    assert said(svg)[1] == "12:15 to 12:30: inserted 0, deleted 0"
    inserted, deleted = (rectangles(svg, look) for look in ("inserted", "deleted"))
    assert [len(inserted), len(deleted)] == [2, 2], "nothing is drawn of nothing"
    assert inserted[0]["x"] == deleted[0]["x"]
    assert deleted[0]["y"] + deleted[0]["height"] == pytest.approx(inserted[0]["y"], abs=0.2)
    assert inserted[0]["height"] == pytest.approx(3 * deleted[0]["height"], abs=0.5)
    assert words(svg, "scale")[:5] == ["0", "10", "20", "30", "40"]
    assert words(svg, "scale")[5:] == ["12:00", "12:10", "12:20", "12:30", "12:40", "12:50"]


def test_a_line_is_interrupted_where_nothing_is_known_and_has_its_limit() -> None:
    svg = drawn(
        line(
            "Behind by",
            QUARTERS,
            Series("behind by", "behind", [None, 60.0, None, 90.0]),
            SECONDS,
            500,
            300.0,
        )
    )
    assert [line.attrib["d"].count("L") for line in svg.iterfind("path[@class='line behind']")] == [1, 1]
    assert words(svg, "limit") == [], "its words stand in the legend, where no curve crosses them"
    limit = svg.find("line[@class='limit']")
    assert limit is not None
    heights = [float(line.attrib["d"].split()[-1]) for line in svg.iterfind("path[@class='line behind']")]
    assert float(limit.attrib["y1"]) < heights[1] < heights[0], "the more, the higher"
    assert said(svg) == [
        "12:00 to 12:15: behind by not known", "12:15 to 12:30: behind by 60 s",
        "12:30 to 12:45: behind by not known", "12:45 to 13:00: behind by 90 s",
    ]  # fmt: skip


def test_a_lane_has_a_mark_where_something_happened() -> None:
    svg = drawn(
        lanes("What happened", QUARTERS, [Series("syncs", "a", [1, 0, 7, 1]), Series("DDL", "b", [0, 0, 2, 0])], 500)
    )
    assert len(svg.findall("circle[@class='mark a']")) == 3
    assert len(svg.findall("circle[@class='mark b']")) == 1
    assert said(svg)[1:3] == ["12:15 to 12:30: nothing", "12:30 to 12:45: syncs 7, DDL 2"]


@pytest.mark.parametrize("unit", [COUNT, SECONDS, BYTES], ids=["count", "seconds", "bytes"])
def test_a_number_axis_has_four_to_seven_labels_of_which_none_is_cut(unit: Unit) -> None:
    for most in (0, 0.2, 1, 3, 7, 59, 61, 100, 86_400, 999_999, 1_500_000, 7 * 10**13):
        grid = unit.grid(most)
        assert 4 <= len(grid) <= 7, (most, grid)
        assert grid[-1] >= most
        numbers = [most] if most == int(most) else []
        svg = drawn(columns("x", QUARTERS, [Series("x", "x", [*numbers, 0, 0, 0, 0][:4])], unit, 280))
        for text in svg.iterfind("text[@text-anchor='end']"):
            assert float(text.attrib["x"]) >= 6 * len(text.text or ""), "it begins within the picture"
    assert [COUNT.short(number) for number in (0, 9_500, 10_000, 1_500_000)] == ["0", "9,500", "10 k", "1.5 M"]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
@pytest.mark.parametrize("width", [332, 560, 1200])
@pytest.mark.parametrize("span", list(SPANS))
def test_a_time_axis_has_four_to_seven_round_times_of_the_zone(span: Span, width: int, zone: str) -> None:
    for day in range(0, 400, 9):
        periods = Periods.until(NOON + day * 25 * HOUR + day * 7 * MINUTE, *SPANS[span], ZoneInfo(zone))
        labels = time_labels(periods, width - 62)
        assert 4 <= len(labels) <= 7, (periods.moment(periods.since_us), labels)
        for us, text in labels:
            assert (periods.moment(us).minute % 5, periods.moment(us).second) == (0, 0)
            assert text in (f"{periods.moment(us):%H:%M}", f"{periods.moment(us):%b %-d}", f"{periods.moment(us):%a}")


def test_a_limit_far_above_does_not_press_the_line_flat() -> None:
    behind = Series("behind by", "behind", [1.0, 2.0, 3.0, 2.0])
    assert "limit" in line("x", QUARTERS, behind, SECONDS, 500, 12.0)
    assert "limit" not in line("x", QUARTERS, behind, SECONDS, 500, 13.0)


@pytest.mark.parametrize("width", [280, 640, 1400])
def test_times_below_have_space_at_any_width(width: int) -> None:
    svg = drawn(lanes("x", Periods(NOON, 15 * MINUTE, 96), [Series("syncs", "a", [1] * 96)], width))
    times = [(float(text.attrib["x"]), text.text) for text in svg.iterfind("text[@text-anchor='middle']")]
    assert len(times) >= 2
    if width >= 640:
        assert "Mar 2" in [text for _, text in times], "midnight says the day"
    assert min(after - before for (before, _), (after, _) in pairwise(times)) >= 40


def times(*minutes: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([NOON + round(minute * MINUTE) for minute in minutes], np.int64)


def behind(carried: Carried, now: float = 60) -> list[float | None]:
    """In minutes."""
    most = most_behind(QUARTERS, carried, NOON + round(now * MINUTE))
    return [None if value is None else round(value / 60, 1) for value in most]


def test_the_lake_falls_behind_until_a_batch_is_recorded() -> None:
    batches = Batches(np.array([7, 8, 9]), times(-10, 12, 40), times(-11, 10, 39))
    assert behind(Carried.by(batches, [])) == [23, 20, 30, 21]
    assert behind(Carried.by(batches, []), now=50)[3] == 11, "what isn't yet over counts up to now"


def test_a_batch_that_stops_before_the_logs_end_carries_no_more_than_it_has() -> None:
    batches = Batches(np.array([7, 8]), times(-10, 12), times(-11, -5))
    assert behind(Carried.by(batches, []))[:2] == [23, 35]


def test_a_look_that_finds_nothing_new_proves_what_a_batch_would_unless_one_is_open() -> None:
    batches = Batches(np.array([7, 8]), times(-10, 28), times(-11, 26))
    nothing_new = [(NOON + minute * MINUTE, batch) for minute, batch in ((5, 7), (27, 8), (44, 8))]
    assert behind(Carried.by(batches, nothing_new)) == [10, 23, 1, 16], "batch 8 was open at 12:27"


def test_lag_does_not_grow_between_looks_at_an_idle_server() -> None:
    batches = Batches(np.array([7]), times(-10), times(-11))
    carried = Carried.by(batches, [(NOON + minute * MINUTE, 7) for minute in (20, 58)])
    most = most_behind(QUARTERS, carried, NOON + 60 * MINUTE, lag_now=0.0)
    assert most == [0, 0, 0, 0]
    behind_now = most_behind(QUARTERS, carried, NOON + 60 * MINUTE, lag_now=90.0)
    assert behind_now == [0, 0, 0, pytest.approx(90, abs=0.1)], "as the card says it"


def test_nothing_is_known_before_the_first_snapshot() -> None:
    empty = np.array([], np.int64)
    nothing = Carried.by(Batches(empty, empty, empty), [])
    assert behind(nothing) == [None] * 4
    assert behind(nothing.also(NOON + 20 * MINUTE, NOON + 18 * MINUTE)) == [None, 12, 27, 42]


def test_headroom_is_what_the_lag_leaves_of_the_retention() -> None:
    looks = [(NOON - HOUR, 2.0), (NOON + 31 * MINUTE, 1.0), (NOON + 50 * MINUTE, None)]
    assert headroom(QUARTERS, [600.0, None, 600.0, 9.0], looks) == [6600, None, 3000, None]
    assert headroom(QUARTERS, [9000.0] * 4, [(NOON, 2.0)]) == [0, 0, 0, 0]
    assert headroom(QUARTERS, [1.0] * 4, []) == [None] * 4
