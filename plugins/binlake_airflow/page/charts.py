"""Charts over time as SVG, with axes: columns, a line with its limit, and lanes of events. Pure: numbers in, text out.

Colours are classes of the page's style sheet. Each period of time has an area of its own with the words that say its
numbers, which the page's script shows to the pointer and to the keyboard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement, tostring

from binlake.config.units import DAY_US, HOUR_US

MINUTE_US = HOUR_US // 60
_TOP, _BOTTOM, _LEFT, _RIGHT = 16, 22, 56, 12
"""Space around the drawing, in pixels: for a word about the limit, the times, the numbers, and half a time's width."""
_HEIGHT, _LANE = 150, 24
_LANES_LEFT = 96
_LABEL_WIDTH = 76
"""Pixels that a time below the axis needs."""
_TIME_STEPS = tuple(
    minutes * MINUTE_US for minutes in (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7 * 1440, 14 * 1440)
)
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True)
class Periods:
    """Equal periods of time, the oldest first. Times are microseconds since 1970 UTC."""

    since_us: int
    width_us: int
    count: int

    @classmethod
    def until(cls, now_us: int, width_us: int, count: int) -> Periods:
        """Return the periods of which the last one contains ``now_us``; they begin at multiples of their width."""
        return cls((now_us // width_us + 1 - count) * width_us, width_us, count)

    @property
    def until_us(self) -> int:
        """Return the end of the last period."""
        return self.since_us + self.count * self.width_us

    def said(self, index: int) -> str:
        """Return a period in words."""
        begin, end = (_moment(self.since_us + at * self.width_us) for at in (index, index + 1))
        if self.width_us >= HOUR_US:
            return f"{begin:%b %-d, %H:%M} to {end:%H:%M}"
        return f"{begin:%H:%M} to {end:%H:%M}"


@dataclass(frozen=True)
class Unit:
    """A unit of numbers. text: returns a number in words. steps: distances between lines of the grid that read well;
    empty for 1, 2 and 5 of each power of ten."""

    text: Callable[[float], str]
    steps: tuple[float, ...] = ()

    def grid(self, most: float) -> list[float]:
        """Return the numbers at which lines are drawn: three to five, from 0 to at least ``most``."""
        fits = (step for step in self._distances() if step * 4 >= most)
        step = next(fits)
        lines = [0.0]
        while lines[-1] < most or len(lines) < 2:
            lines.append(lines[-1] + step)
        return lines

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


def _bytes(number: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"


COUNT = Unit(_count)
BYTES = Unit(_bytes)
SECONDS = Unit(duration, _SECONDS)


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


def line(
    label: str, periods: Periods, series: Series, unit: Unit, width: int, limit: tuple[str, float] | None = None
) -> str:
    """Return a line, interrupted where nothing is known. limit: what to call a limit, which has a line of its own."""
    known = [value for value in series.values if value is not None]
    plot = _Plot(label, periods, width, unit, max([*known, *([limit[1]] if limit else [])], default=0))
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
    if limit:
        y = plot.y(limit[1])
        plot.draw("line", "limit", x1=_LEFT, x2=width - _RIGHT, y1=y, y2=y)
        plot.write(width - _RIGHT, y - 4, f"{limit[0]}: {unit.text(limit[1])}", "limit", anchor="end")
    plot.hits(lambda at: _said([series], at, unit))
    return plot.text()


def lanes(label: str, periods: Periods, series: Sequence[Series], width: int) -> str:
    """Return a lane for each series, with a mark in each period in which something happened."""
    plot = _Plot(label, periods, width, None, 0, height=_LANE * len(series), left=_LANES_LEFT)
    for lane, member in enumerate(series):
        middle = _TOP + lane * _LANE + _LANE / 2
        plot.draw("line", "grid", x1=_LANES_LEFT, x2=width - _RIGHT, y1=middle, y2=middle)
        plot.write(_LANES_LEFT - 8, middle + 4, member.name, "scale", anchor="end")
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


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


class _Plot:
    """An SVG with axes: times below, and numbers at its left if it has a unit. Lengths are pixels."""

    def __init__(
        self,
        label: str,
        periods: Periods,
        width: int,
        unit: Unit | None,
        most: float,
        *,
        height: int = _HEIGHT,
        left: int = _LEFT,
    ) -> None:
        self._periods, self._width, self._height, self._left = periods, width, height, left
        self.step = (width - left - _RIGHT) / periods.count
        whole = height + _TOP + _BOTTOM
        self._root = Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg", "class": "over-time", "viewBox": f"0 0 {width} {whole}",
                "role": "img", "aria-label": label, "tabindex": "0",
            },
        )  # fmt: skip
        numbers = unit.grid(most) if unit else []
        self._most = numbers[-1] if numbers else 1
        for number in numbers:
            y = self.y(number)
            self.draw("line", "axis" if number == 0 else "grid", x1=left, x2=width - _RIGHT, y1=y, y2=y)
            self.write(left - 6, y + 4, unit.text(number) if unit else "", "scale", anchor="end")
        self._times()

    def x(self, index: float) -> float:
        """Return where a period begins."""
        return round(self._left + index * self.step, 1)

    def y(self, number: float) -> float:
        return round(_TOP + self._height * (1 - number / self._most), 1)

    def draw(self, shape: str, look: str, **where: object) -> Element:
        return SubElement(self._root, shape, {"class": look, **{name: str(value) for name, value in where.items()}})

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
        """Write times below the axis, as many as there is space for, each at a round time in UTC."""
        span = self._periods.count * self._periods.width_us
        most = max(1, int((self._width - self._left - _RIGHT) // _LABEL_WIDTH))
        step = next((step for step in _TIME_STEPS if span / step <= most), _TIME_STEPS[-1])
        first = -(-self._periods.since_us // step) * step
        floor = _TOP + self._height
        for us in range(first, self._periods.until_us, step):
            x = self.x((us - self._periods.since_us) / self._periods.width_us)
            self.draw("line", "axis", x1=x, x2=x, y1=floor, y2=floor + 4)
            words = f"{_moment(us):%b %-d}" if us % DAY_US == 0 else f"{_moment(us):%H:%M}"
            self.write(x, floor + 16, words, "scale", anchor="middle")
