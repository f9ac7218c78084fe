"""Decoding of texts in query events."""

from __future__ import annotations

from binlake.schema import charsets


def statement_text(raw: bytes, collation: int) -> str:
    """Decode a statement. collation: the client's collation number; 0 if the event lacks it.

    Bytes of literals in another character set (_latin1'…') may become U+FFFD; keywords and names are still right.
    """
    name = charset_of(collation)
    return charsets.decoder("utf8mb4" if name == "binary" else name, "replace")(raw)


def charset_of(collation: int) -> str:
    """Return the character set of a collation number; utf8mb4 for 0."""
    return str(charsets.charset(collation) or "utf8mb4") if collation else "utf8mb4"


def normal_xid(text: str) -> str:
    """Convert an XA id from the servers' spelling to ``X'6162',X'',1`` with lower-case digits."""
    pieces = [piece.strip() for piece in text.split(",")]
    hexes = [piece[2:-1].lower() for piece in pieces[:2] if piece[:2].upper() == "X'" and piece.endswith("'")]
    if len(hexes) != 2 or len(pieces) < 3:
        return text
    return f"X'{hexes[0]}',X'{hexes[1]}',{pieces[2].split()[0]}"
