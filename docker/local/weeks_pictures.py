"""The course of weeks of following, drawn as lines over the batches, in SVG for light and for dark pages.

``weeks_pictures.py FOLDER FILE...`` takes the figures that tests/soak/weeks.py kept, and writes ``weeks-light.svg`` and
``weeks-dark.svg`` there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from bench_pictures import COLOURS, Colours

_PANELS = (
    ("cpu_ms", "CPU of a batch with its part of the upkeep, ms"),
    ("megabytes", "Memory of the process, MB"),
    ("longest_log", "Files of the longest log"),
    ("files", "Files in the lake"),
    ("lake_megabytes", "The lake with binlake's own tables, MB"),
    ("readable", "Versions of the lake that can be read"),
)
"""Figures that are drawn, each in a panel from zero on, with its title."""
_WIDTH, _HEIGHT, _ACROSS = 380, 120, 2
_TOP, _BETWEEN, _SIDE = 34, 52, 40


@dataclass(frozen=True)
class DrawnCourse:
    """The figures of one run. stands: oldest first, by name."""

    label: str
    stands: Sequence[dict[str, float]]

    @classmethod
    def of(cls, file: Path) -> DrawnCourse:
        """Return what weeks.py kept in a file."""
        kept = json.loads(file.read_text(encoding="utf-8"))
        stands = kept["stands"]
        return cls(f"a batch each {kept['seconds']} s, {stands[-1]['days']:.1f} days", stands)

    def points(self, name: str) -> list[tuple[float, float]]:
        """Return a figure by the number of batches."""
        return [(stand["batches"], stand[name]) for stand in self.stands]


def draw(courses: Sequence[DrawnCourse], colours: Colours) -> str:
    """Return one picture, a panel for each figure with a line for each course."""
    lines = []
    for place, (name, title) in enumerate(_PANELS):
        left = place % _ACROSS * (_WIDTH + _SIDE)
        top = place // _ACROSS * (_TOP + _HEIGHT + _BETWEEN)
        lines += _panel(courses, name, title, left, top, colours)
    rows = -(-len(_PANELS) // _ACROSS)
    size = f"0 0 {_ACROSS * (_WIDTH + _SIDE)} {rows * (_TOP + _HEIGHT + _BETWEEN)}"
    font = 'font-family="system-ui, sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" {font} role="img">'
    return "\n".join([head, *lines, "</svg>", ""])


def _panel(courses: Sequence[DrawnCourse], name: str, title: str, left: int, top: int, colours: Colours) -> list[str]:
    last = max(batches for course in courses for batches, _ in course.points(name))
    most = max(max(value for course in courses for _, value in course.points(name)), 1)
    ground, inks = top + _TOP + _HEIGHT, (colours.ours, colours.others)
    drawn = [
        _text(left, top + 20, title, colours.text, weight="600"),
        f'<path d="M{left} {top + _TOP}V{ground}H{left + _WIDTH}" fill="none" stroke="{colours.quiet}"/>',
        _text(left + 4, top + _TOP + 10, f"{most:,.0f}", colours.quiet),
        _text(left + _WIDTH, ground + 16, f"{last:,.0f} batches", colours.quiet, anchor="end"),
    ]
    for number, course in enumerate(courses):
        ink = inks[number % len(inks)]
        places = [
            f"{left + batches / last * _WIDTH:.1f},{ground - value / most * (_HEIGHT - 14):.1f}"
            for batches, value in course.points(name)
        ]
        drawn.append(f'<polyline points="{" ".join(places)}" fill="none" stroke="{ink}" stroke-width="2"/>')
        drawn.append(_text(left, ground + 16 + number * 16, course.label, ink))
    return drawn


def _text(x: int, y: int, text: str, fill: str, *, anchor: str = "start", weight: str = "400") -> str:
    about = f'x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}"'
    return f"<text {about}>{escape(text)}</text>"


if __name__ == "__main__":
    folder, *kept_files = map(Path, sys.argv[1:])
    drawn_courses = [DrawnCourse.of(file) for file in kept_files]
    for scheme, its_colours in COLOURS.items():
        (folder / f"weeks-{scheme}.svg").write_text(draw(drawn_courses, its_colours), encoding="utf-8")
