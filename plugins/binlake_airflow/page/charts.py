"""Charts over time as SVG, with axes: columns, a line with its limit, and lanes of events. Pure: numbers in, text out.

Colours are classes of the page's style sheet. Each period of time has an area of its own with the words that say its
numbers, which the page's script shows to the pointer and to the keyboard. Each axis has four to seven labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from math import ceil
from xml.etree.ElementTree import Element, SubElement, tostring

from binlake.config.units import DAY_US, HOUR_US

MINUTE_US = HOUR_US // 60
_TOP, _BOTTOM, _LEFT, _RIGHT = 10, 22, 40, 22
"""Space around the drawing, in pixels: half a number's height, the times, the numbers at least, and half a time's
width."""
_HEIGHT, _LANE = 150, 24
_CHARACTER = 6.6
"""Pixels of a label's character, at most on average."""
_FEWEST, _MOST = 4, 7
"""Numbers of labels of an axis."""
_TIME_WIDTH, _DAY_WIDTH = 46, 32
"""Pixels that a time or a date below the axis needs, and a day of the week."""
_MINUTES = (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 720)
_DAYS = (1, 2, 5, 7, 14)
"""Distances between times below the axis, within a day and beyond."""
_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_FAR = 4
"""A limit that is more than so many times above all numbers isn't drawn: it would press them flat."""


@dataclass(frozen=True)
class Periods:
    """Equal periods of time, the oldest first. Times are microseconds since 1970 UTC. zone: in which they are said."""

    since_us: int
    width_us: int
    count: int
    zone: tzinfo = UTC

    @classmethod
    def until(cls, now_us: int, width_us: int, count: int, zone: tzinfo = UTC) -> Periods:
        """Return the periods of which the last one contains ``now_us``; they begin at multiples of their width."""
        return cls((now_us // width_us + 1 - count) * width_us, width_us, count, zone)

    @property
    def until_us(self) -> int:
        """Return the end of the last period."""
        return self.since_us + self.count * self.width_us

    def said(self, index: int) -> str:
        """Return a period in words."""
        begin, end = (self.moment(self.since_us + at * self.width_us) for at in (index, index + 1))
        if self.width_us >= HOUR_US:
            return f"{begin:%b %-d, %H:%M} to {end:%H:%M}"
        return f"{begin:%H:%M} to {end:%H:%M}"

    def moment(self, us: int) -> datetime:
        """Return a time in the zone."""
        return datetime.fromtimestamp(us / 1e6, self.zone)


@dataclass(frozen=True)
class Unit:
    """A unit of numbers. text: returns a number in words. short: the same in few characters, for an axis. steps:
    distances between lines of the grid that read well; empty for 1, 2 and 5 of each power of ten."""

    text: Callable[[float], str]
    short: Callable[[float], str]
    steps: tuple[float, ...] = ()

    def grid(self, most: float) -> list[float]:
        """Return the numbers at which lines are drawn: four to seven, from 0 to at least ``most``."""
        step = next(step for step in self._distances() if step * (_MOST - 1) >= most)
        return [step * at for at in range(max(_FEWEST, ceil(most / step) + 1))]

    def _distances(self) -> Iterator[float]:
        yield from self.steps
        power = self.steps[-1] if self.steps else 1
        while True:
            yield from (power * digit for digit in (1, 2, 5))
            power *= 10


@dataclass(frozen=True)
class Series:
    """Numbers of one kind, one for each period; None where it isn't known. look: the class that colours it."""

    name: str
    look: str
    values: Sequence[float | None]


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least two, with three digits."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _short_count(number: float) -> str:
    """Return a number in at most six characters: ``1.5 M``."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 10_000 and number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"


def _bytes(number: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"


COUNT = Unit(_count, _short_count)
BYTES = Unit(_bytes, _bytes)
SECONDS = Unit(duration, duration, _SECONDS)


def columns(label: str, periods: Periods, series: Sequence[Series], unit: Unit, width: int) -> str:
    """Return columns in which the series are stacked."""
    sums = [sum(member.values[at] or 0 for member in series) for at in range(periods.count)]
    plot = _Plot(label, periods, width, unit, max(sums, default=0))
    for at in range(periods.count):
        base = 0.0
        for member in series:
            value = member.values[at] or 0
            if value:
                top, bottom = plot.y(base + value), plot.y(base)
                plot.rectangle(at, top, max(bottom - top, 0.5), member.look)
            base += value
    plot.hits(lambda at: _said(series, at, unit))
    return plot.text()


def line(label: str, periods: Periods, series: Series, unit: Unit, width: int, limit: float | None = None) -> str:
    """Return a line, interrupted where nothing is known. limit: has a line of its own, unless it is far above; its name
    is in the legend, where no curve crosses it."""
    known = max((value for value in series.values if value is not None), default=0)
    drawn = [limit] if limit is not None and not is_far(series, limit) else []
    plot = _Plot(label, periods, width, unit, max(known, *drawn, 0))
    for first, values in _stretches(series.values):
        corners = [
            (round(plot.x(first + at) + part * plot.step, 1), plot.y(value))
            for at, value in enumerate(values)
            for part in (0, 1)
        ]
        path = " ".join(f"L{x} {y}" for x, y in corners)[1:]
        floor = plot.y(0)
        plot.draw("path", "area " + series.look, d=f"M{corners[0][0]} {floor} L{path} L{corners[-1][0]} {floor} Z")
        plot.draw("path", "line " + series.look, d=f"M{path}")
    for number in drawn:
        plot.across("limit", plot.y(number))
    plot.hits(lambda at: _said([series], at, unit))
    return plot.text()


def is_far(series: Series, limit: float) -> bool:
    """Return whether a limit is so far above a series that it isn't drawn."""
    known = max((value for value in series.values if value is not None), default=0)
    return known > 0 and limit > _FAR * known


def lanes(label: str, periods: Periods, series: Sequence[Series], width: int) -> str:
    """Return a lane for each series, with a mark in each period in which something happened."""
    names = [member.name for member in series]
    plot = _Plot(label, periods, width, None, 0, height=_LANE * len(series), labels=names)
    for lane, member in enumerate(series):
        middle = _TOP + lane * _LANE + _LANE / 2
        plot.across("grid", middle)
        plot.write(plot.left - 8, middle + 4, member.name, "scale", anchor="end")
        for at, value in enumerate(member.values):
            if value:
                radius = 3.5 if value < 2 else 5
                plot.draw("circle", "mark " + member.look, cx=round(plot.x(at) + plot.step / 2, 1), cy=middle, r=radius)
    plot.hits(lambda at: _said([member for member in series if member.values[at]], at, COUNT) or "nothing")
    return plot.text()


def _said(series: Sequence[Series], at: int, unit: Unit) -> str:
    values = ((member.name, member.values[at]) for member in series)
    return ", ".join(f"{name} {'not known' if value is None else unit.text(value)}" for name, value in values)


def _stretches(values: Sequence[float | None]) -> Iterator[tuple[int, list[float]]]:
    """Yield the stretches in which values are known, with the index of their first."""
    first, known = 0, list[float]()
    for at, value in enumerate([*values, None]):
        if value is None:
            if known:
                yield first, known
            first, known = at + 1, []
        else:
            known.append(value)


class _Plot:
    """An SVG with axes: times below, and numbers at its left if it has a unit, or other labels, for which there is
    space. Lengths are pixels."""

    def __init__(
        self,
        label: str,
        periods: Periods,
        width: int,
        unit: Unit | None,
        most: float,
        *,
        height: int = _HEIGHT,
        labels: Sequence[str] = (),
    ) -> None:
        self._periods, self._width, self._height = periods, width, height
        numbers = unit.grid(most) if unit else []
        labels = [unit.short(number) for number in numbers] if unit else labels
        self.left = max(_LEFT, ceil(max(map(len, labels), default=0) * _CHARACTER) + 8)
        self.step = (width - self.left - _RIGHT) / periods.count
        whole = height + _TOP + _BOTTOM
        self._root = Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg", "class": "over-time", "viewBox": f"0 0 {width} {whole}",
                "role": "img", "aria-label": label, "tabindex": "0",
            },
        )  # fmt: skip
        self._most = numbers[-1] if numbers else 1
        for number, words in zip(numbers, labels, strict=False):
            self.across("grid" if number else "axis", self.y(number))
            self.write(self.left - 6, self.y(number) + 4, words, "scale", anchor="end")
        self._times()

    def x(self, index: float) -> float:
        """Return where a period begins."""
        return round(self.left + index * self.step, 1)

    def y(self, number: float) -> float:
        return round(_TOP + self._height * (1 - number / self._most), 1)

    def draw(self, shape: str, look: str, **where: object) -> Element:
        return SubElement(self._root, shape, {"class": look, **{name: str(value) for name, value in where.items()}})

    def across(self, look: str, y: float) -> None:
        """Draw a line from left to right."""
        self.draw("line", look, x1=self.left, x2=self._width - _RIGHT, y1=y, y2=y)

    def write(self, x: float, y: float, words: str, look: str, *, anchor: str) -> None:
        self.draw("text", look, x=x, y=round(y, 1), **{"text-anchor": anchor}).text = words

    def rectangle(self, index: int, y: float, height: float, look: str) -> None:
        gap = min(1.0, self.step / 5)
        self.draw("rect", look, x=self.x(index), y=y, width=round(self.step - gap, 1), height=round(height, 1))

    def hits(self, said: Callable[[int], str]) -> None:
        """Add an area for each period, with its words."""
        for index in range(self._periods.count):
            area = self.draw("rect", "hit", x=self.x(index), y=_TOP, width=round(self.step, 1), height=self._height)
            area.set("data-said", f"{self._periods.said(index)}: {said(index)}")

    def text(self) -> str:
        return tostring(self._root, encoding="unicode")

    def _times(self) -> None:
        """Write times below the axis, each a round one in the zone."""
        floor = _TOP + self._height
        for us, words in time_labels(self._periods, self._width - self.left - _RIGHT):
            x = self.x((us - self._periods.since_us) / self._periods.width_us)
            self.draw("line", "axis", x1=x, x2=x, y1=floor, y2=floor + 4)
            self.write(x, floor + 16, words, "scale", anchor="middle")


def time_labels(periods: Periods, width: float) -> list[tuple[int, str]]:
    """Return times for an axis of a width in pixels, each with its words: as many as there is space for, at most
    seven."""
    for minutes, days in (*((step, 1) for step in _MINUTES), *((DAY_US // MINUTE_US, step) for step in _DAYS)):
        times = list(_round_times(periods, minutes, days))
        space = minutes * MINUTE_US * days / (periods.count * periods.width_us) * width
        as_weekdays = minutes * MINUTE_US == DAY_US and days == 1 and space < _TIME_WIDTH
        if space >= (_DAY_WIDTH if as_weekdays else _TIME_WIDTH) and len(times) <= _MOST:
            return [(us, _time_words(periods.moment(us), as_weekday=as_weekdays)) for us in times]
    return []


def _time_words(at: datetime, *, as_weekday: bool) -> str:
    if at.hour or at.minute:
        return f"{at:%H:%M}"
    return f"{at:%a}" if as_weekday else f"{at:%b %-d}"


def _round_times(periods: Periods, minutes: int, days: int) -> Iterator[int]:
    """Yield times within the periods: each so many minutes from a midnight in the zone on, of each so many days."""
    day = periods.moment(periods.since_us).replace(hour=0, minute=0, second=0, microsecond=0)
    while (us := round(day.timestamp() * 1e6)) < periods.until_us:
        after = (day + timedelta(days=1)).replace(hour=0, minute=0)
        if day.toordinal() % days == 0:
            until = min(round(after.timestamp() * 1e6), periods.until_us)
            yield from (at for at in range(us, until, minutes * MINUTE_US) if at >= periods.since_us)
        day = after
