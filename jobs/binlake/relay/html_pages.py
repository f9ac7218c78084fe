"""Pages as HTML without scripts: their frame, their tables, and what a browser may do with them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""The page runs no script, loads nothing, can't be put into another page's frame, and is kept nowhere."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1c2733;
  background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; }
table { border-collapse: collapse; margin: 0.4rem 0 1rem; }
th, td { text-align: left; padding: 0.2rem 1rem 0.2rem 0; border-bottom: 1px solid #d8dee4; vertical-align: top; }
th { font-weight: 600; color: #57636f; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code { overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { body { color: #dde4ea; background: #14191f; } th { color: #9aa7b3; }
  th, td { border-color: #2e3843; } }
"""


def html_page(title: str, heading: str, parts: Iterable[str], *, style: str = "", refreshed_every: int = 0) -> str:
    """Return a page of parts that are HTML. title, heading: text. refreshed_every: seconds after which a browser loads
    it again; 0 for never."""
    refresh = f'<meta http-equiv="refresh" content="{refreshed_every}">' if refreshed_every else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{refresh}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>\n"
        f"<body><h1>{escape(heading)}</h1>\n{''.join(parts)}</body></html>\n"
    )


def html_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; numbers are aligned to the right."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{names}</tr>{body}</table>"


def _cell(value: Any) -> str:
    return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f"<td>{escape(str(value))}</td>"
