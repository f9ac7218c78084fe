"""Statements of the DDL history that give a table a foreign key that cascades, or take a key away."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from binlake.position import Flavour
from binlake.schema.lexer import Cursor, Lexer

_DECLARES = re.compile(r"\bREFERENCES\b.*\bON (DELETE|UPDATE) (CASCADE|SET)\b")
_DROPS = re.compile(r"\bALTER\b.*\bDROP\b.*\b(FOREIGN|CONSTRAINT)\b")
_MAY_DROP = re.compile(r"DROP.*(FOREIGN|CONSTRAINT)", re.IGNORECASE | re.DOTALL)


def declares_cascade(row: Mapping[str, Any], flavour: Flavour) -> bool:
    """Tell whether the statement of a row declares a foreign key that changes rows of its table."""
    return bool(_DECLARES.search(_words(row, flavour)))


def drops_key(row: Mapping[str, Any], flavour: Flavour) -> bool:
    """Tell whether the statement of a row may drop a foreign key."""
    return bool(_DROPS.search(_words(row, flavour)))


def may_drop_key(text: str) -> bool:
    """Tell whether a statement's text has the words by which ``drops_key`` knows one."""
    return bool(_MAY_DROP.search(text))


def _words(row: Mapping[str, Any], flavour: Flavour) -> str:
    """Return the words of a statement of the DDL history, without comments, names in quotes, and strings."""
    cursor = Cursor(Lexer(row["statement"], row["sql_mode"], flavour), row["database"])
    return " ".join(token.key for token in cursor.all_tokens() if token.key)
