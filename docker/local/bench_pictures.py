"""The bench's figures as bars, drawn as SVG for light and for dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_WIDTH, _LABEL, _BAR, _ROW, _GAP = 800, 320, 340, 26, 34


@dataclass(frozen=True)
class Bar:
    """ours: binlake's own, beside which the others stand."""

    label: str
    value: float
    ours: bool = True


@dataclass(frozen=True)
class Chart:
    title: str
    unit: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Colours:
    text: str
    quiet: str
    ours: str
    others: str


COLOURS = {
    "light": Colours("#1f2328", "#59636e", "#2f6fdb", "#b6bec8"),
    "dark": Colours("#e6edf3", "#9198a1", "#5b9dff", "#4d5763"),
}


def draw(charts: Sequence[Chart], colours: Colours) -> str:
    """One picture, the charts below each other; each chart's bars are drawn to its longest."""
    lines: list[str] = []
    top = 0
    for chart in charts:
        lines.append(_text(0, top + 20, f"{chart.title}, {chart.unit}", colours.text, weight="600"))
        top += _GAP
        most = max(bar.value for bar in chart.bars)
        for bar in chart.bars:
            length = max(2, round(_BAR * bar.value / most))
            fill = colours.ours if bar.ours else colours.others
            lines.append(_text(_LABEL - 12, top + 16, bar.label, colours.text, anchor="end"))
            lines.append(
                f'<rect x="{_LABEL}" y="{top + 3}" width="{length}" height="{_ROW - 8}" rx="3" fill="{fill}"/>'
            )
            lines.append(_text(_LABEL + length + 8, top + 16, _figure(bar.value), colours.quiet))
            top += _ROW
        top += _GAP // 2
    font = 'font-family="system-ui, sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" {font} role="img">'
    return "\n".join([head, *lines, "</svg>", ""])


def write(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """``bench-light.svg`` and ``bench-dark.svg``."""
    paths = [folder / f"bench-{name}.svg" for name in COLOURS]
    for path, colours in zip(paths, COLOURS.values(), strict=True):
        path.write_text(draw(charts, colours), encoding="utf-8")
    return paths


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _text(x: int, y: int, text: str, fill: str, *, anchor: str = "start", weight: str = "400") -> str:
    about = f'x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}"'
    return f"<text {about}>{escape(text)}</text>"
