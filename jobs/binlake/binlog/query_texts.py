"""Decoding of texts in query events."""

from __future__ import annotations

import re

from binlake.position import Flavour
from binlake.schema import charsets
from binlake.schema.lexer import Lexer

_LONGEST_SAVEPOINT = 1000
"""Bytes of a statement about a savepoint, whose name has at most 64 characters."""
_SAVEPOINT = re.compile(rb"\s*(?:SAVEPOINT|ROLLBACK\s+TO(?:\s+SAVEPOINT)?)\s+(?P<name>.+?)[;\s\0]*", re.I | re.S)


def statement_text(raw: bytes, collation: int) -> str:
    """Decode a statement. collation: the client's collation number; 0 if the event lacks it.

    Bytes of literals in another character set (_latin1'…') may become U+FFFD; keywords and names are still right.
    """
    name = charset_of(collation)
    return charsets.decoder("utf8mb4" if name == "binary" else name, "replace")(raw)


_NO_BREAK = "\u00a0"
_LONGEST = 100_000
"""Characters of a statement that is looked through for spaces. Longer ones are DML."""


def spaced_text(raw: bytes, collation: int, sql_mode: int, flavour: Flavour) -> str:
    """Decode a statement, with plain spaces where the server read a no-break space as one.

    In sessions with one byte per character it parts words, on both servers; in UTF-8 it belongs to a name.
    """
    text = statement_text(raw, collation)
    name = charset_of(collation)
    if _NO_BREAK not in text or name == "binary" or charsets.bytes_per_character(name) > 1 or len(text) > _LONGEST:
        return text
    lexer = Lexer(text, sql_mode, flavour)
    while lexer.step():
        pass
    letters = list(text)
    for token in lexer.tokens:
        if token.kind == "word":
            letters[token.start : token.end] = text[token.start : token.end].replace(_NO_BREAK, " ")
    return "".join(letters)


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


def savepoint_name(raw: bytes) -> str:
    """Return the name in SAVEPOINT `s` and ROLLBACK TO `s` as names are compared; empty where there is none.

    The servers quote it by the session's sql_mode of then, which may change between the two.
    """
    match = _SAVEPOINT.fullmatch(raw) if len(raw) <= _LONGEST_SAVEPOINT else None
    name = match["name"].decode("utf-8", "replace") if match else ""
    if len(name) > 1 and name[0] in '`"' and name[-1] == name[0]:
        name = name[1:-1].replace(2 * name[0], name[0])
    return name.lower()
