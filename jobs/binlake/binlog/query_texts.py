"""Texts of query events."""

from __future__ import annotations

from binlake.schema import charsets


def statement_text(raw: bytes, collation: int) -> str:
    """By the client's collation number (0: not told).

    U+FFFD stands for bytes of literals in another character set (_latin1'…'): keywords and names still count.
    """
    name = charset_of(collation)
    return charsets.decoder("utf8mb4" if name == "binary" else name, "replace")(raw)


def charset_of(collation: int) -> str:
    """The character set of a collation number; utf8mb4 where it isn't told."""
    return str(charsets.charset(collation) or "utf8mb4") if collation else "utf8mb4"


def normal_xid(text: str) -> str:
    """``X'6162',X'',1`` from the servers' spelling, in lower-case hex."""
    pieces = [piece.strip() for piece in text.split(",")]
    hexes = [piece[2:-1].lower() for piece in pieces[:2] if piece[:2].upper() == "X'" and piece.endswith("'")]
    if len(hexes) != 2 or len(pieces) < 3:
        return text
    return f"X'{hexes[0]}',X'{hexes[1]}',{pieces[2].split()[0]}"
