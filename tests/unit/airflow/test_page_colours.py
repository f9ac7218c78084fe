"""Colours of the page: what must be seen differs enough from what it lies on, by WCAG 2.2, 1.4.3 and 1.4.11."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest

from binlake_airflow.page.app import STATIC

CSS = (STATIC / "page.css").read_text()
FILLS = ("phase-0", "phase-1", "phase-2", "phase-3", "phase-4", "edge", "good", "warn", "bad", "link")
TEXTS = ("text", "quiet", "link", "good", "warn", "bad", "new")


def colours(name: str) -> tuple[str, str]:
    """Of light and dark."""
    found = re.search(rf"--{name}: light-dark\((#\w+|oklch\([^)]*\)), (#\w+|oklch\([^)]*\))\);", CSS)
    assert found, name
    return found[1], found[2]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def linear(colour: str) -> Iterator[float]:
    """The parts of a colour in linear sRGB, from hexadecimal or from OKLCH, see CSS Color 4, section 9.3."""
    if colour == "#fff":
        yield from (1.0, 1.0, 1.0)
        return
    lightness, chroma, hue = (float(part) for part in colour.removeprefix("oklch(").rstrip(")").split())
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    for of_long, of_middle, of_short in (
        (4.0767416621, -3.3077115913, 0.2309699292),
        (-1.2684380046, 2.6097574011, -0.3413193965),
        (-0.0041960863, -0.7034186147, 1.7076147010),
    ):
        yield min(1.0, max(0.0, of_long * long + of_middle * middle + of_short * short))


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_that_of_known_pairs() -> None:
    assert contrast("#fff", "oklch(0 0 0)") == pytest.approx(21)
    assert contrast("#fff", "oklch(0.5999 0 0)") == pytest.approx(3.95, abs=0.05), "the grey #808080"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["card", "ground"])
def test_what_must_be_seen_differs_from_its_ground(ground: str, dark: bool) -> None:
    below = colours(ground)[dark]
    fills = {name: round(contrast(colours(name)[dark], below), 2) for name in FILLS}
    assert {name: ratio for name, ratio in fills.items() if ratio < 3} == {}
    texts = {name: round(contrast(colours(name)[dark], below), 2) for name in TEXTS}
    assert {name: ratio for name, ratio in texts.items() if ratio < 4.5} == {}
    badges = {name: contrast(colours(name)[dark], colours(f"{name}-ground")[dark]) for name in ("good", "warn", "bad")}
    assert min(badges.values()) >= 4.5


def test_borders_of_fields_are_edges() -> None:
    (fields,) = re.findall(r"^input, select, (?:textarea, )?button \{(.*?)^\}", CSS, re.S | re.M)
    assert "border: 1px solid var(--edge);" in fields
