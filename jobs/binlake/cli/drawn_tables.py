"""Tables for files and pipes, as rich draws them: of hundreds of rows rich takes a tenth of a sync's processor time."""

from __future__ import annotations

from collections.abc import Sequence


def drawn(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str | None:
    """Return a table as rich draws it without a terminal, with the end of its last line.

    width: the most characters of a line. Returns None for a table that is to be wrapped, and for characters beyond
    ASCII, which may be two places wide.
    """
    cells = [columns, *rows]
    texts = [title, *(text for row in cells for text in row)]
    if not all(text.isascii() and text.isprintable() for text in texts):
        return None
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    whole = sum(widths) + 3 * len(widths) + 1
    if not widths or whole > width or len(title) > whole:
        return None
    lines = [title.ljust(whole)] if title else []
    lines += [_border(("┏", "━", "┳", "┓"), widths), _row("┃", columns, widths), _border(("┡", "━", "╇", "┩"), widths)]
    lines += [_row("│", row, widths) for row in rows]
    return "".join(f"{line}\n" for line in [*lines, _border(("└", "─", "┴", "┘"), widths)])


def _border(characters: tuple[str, str, str, str], widths: Sequence[int]) -> str:
    left, line, between, right = characters
    return f"{left}{between.join(line * (width + 2) for width in widths)}{right}"


def _row(border: str, row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f" {text.ljust(width)} " for text, width in zip(row, widths, strict=True))
    return f"{border}{border.join(cells)}{border}"
