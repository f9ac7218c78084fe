"""Charts as elements, and the words of their periods."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring


def drawn(text: str) -> Element:
    """The SVG without its namespace."""
    return fromstring(text.replace('xmlns="http://www.w3.org/2000/svg"', ""))


def said(svg: Element) -> list[str]:
    return [area.attrib["data-said"] for area in svg.iterfind("*[@class='hit']")]
