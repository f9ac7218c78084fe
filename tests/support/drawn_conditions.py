"""Conditions drawn at random, with a table of columns that they can be about and values at their limits."""

from __future__ import annotations

import random

COLUMNS = {
    "tiny": "TINYINT", "size": "INT UNSIGNED", "big": "BIGINT", "huge": "BIGINT UNSIGNED", "flag": "BIT(1)",
    "price": "DECIMAL(9,2)", "exact": "DECIMAL(38,10)", "ratio": "DOUBLE", "part": "FLOAT", "since": "YEAR",
    "day": "DATE", "at": "DATETIME(3)", "seen": "TIMESTAMP NULL", "raw": "VARBINARY(20)", "fixed": "BINARY(4)",
    "kind": "ENUM('draft','Open','closed now','') CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "general": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "bin": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "short": "CHAR(8) CHARACTER SET latin1 COLLATE latin1_swedish_ci",
    "uca": "TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
}  # fmt: skip
NEWEST = {
    "mysql": {
        "ai": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci",
        "cs": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_cs",
        "code": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin",
    },
    "mariadb": {
        "ai": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci",
        "cs": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_as_cs",
        "code": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
    },
}
NUMBERS = ["0", "1", "-1", "2", "127", "-128", "2.5", "-0.5", "0.1", "1.005", "4294967295", "9223372036854775807"]
NUMBERS += ["-9223372036854775808", "18446744073709551615", "99999999999999999999", "0.0000000001", "1234567.89"]
FEW = ["0", "1", "-1", "2", "0.1", "2.5", "-0.5", "0.125", "1234567.89", "16777217"]
_WHOLE = [number for number in NUMBERS if "." not in number]
HELD = {
    "BIT": ["0", "1", "TRUE", "FALSE"],
    "TINYINT": [*(number for number in _WHOLE if len(number) < 5), "TRUE"],
    "INT": [number for number in _WHOLE if len(number) < 11],
    "BIGINT": [number for number in _WHOLE if len(number) < 20 or number.startswith("-")],
}
TEXTS = [
    "",
    " ",
    "a",
    "A",
    "draft",
    "Draft",
    "draft ",
    "DRAFT",
    "open",
    "Open",
    "closed now",
    "a b",
    "a-b",
    "a''b",
    "0",
]
TEXTS += ["ab", "ss", "ae", "dr", "fi", "_", "%", "x1", "o", "oe"]
ODD = [
    "dräft",
    "é",
    "e",
    "ß",
    "ﬁ",
    "\u0001",
    "draft\t",
    "a\u0000",
    "æ",
    "œ",
    "\u200b",
    "a\u0301",
    "drаft",
    "😀",
    "日本",
]
ODD += ["draft\u200b", "A\u0308", "l·", "ﬃ", "\u00a0", "draft\u00a0", "ÄÖ", "ÿ", "¼", "x\n"]
DAYS = ["2026-01-31", "1000-01-01", "9999-12-31", "2024-02-29", "1970-01-02"]
MOMENTS = ["2026-01-31 23:59:59", "2026-01-31", "1970-01-01 00:00:01", "2024-02-29 12:00:00"]
YEARS = ["1901", "2026", "2155", "1999"]
ORDERED = ["=", "<>", "!=", "<", "<=", ">", ">=", "<=>"]


def columns_of(kind: str) -> dict[str, str]:
    """The columns of the table on a server of this kind, with their definitions."""
    return COLUMNS | NEWEST["mysql" if kind == "mysql" else "mariadb"]


def _quoted(text: str) -> str:
    return "_utf8mb4 0x" + text.encode().hex() if text else "''"


def value(chance: random.Random, column: str, declared: str) -> str:
    """A column's value as the server reads it."""
    if chance.random() < 0.12:
        return "NULL"
    first = declared.split("(")[0].split()[0]
    if first in ("VARBINARY", "BINARY"):
        return chance.choice(["'draft'", "'a'", "'A'", "'a '", "''", "x'00'", "x'FF00'", "'ab'", "'abcd'"])
    if first == "ENUM":
        return chance.choice(["'draft'", "'Open'", "'closed now'", "''", "1", "2"])
    if "CHAR" in first or first == "TEXT":
        latin = [text for text in ODD if text.isascii() or max(text) <= "\xff"]
        return _quoted(chance.choice(TEXTS + (latin if column == "short" else ODD)).replace("''", "'")[:8])
    if first == "BIT":
        return chance.choice(["b'0'", "b'1'"])
    if first == "YEAR":
        return chance.choice(YEARS)
    if first == "DATE":
        return f"'{chance.choice(DAYS)}'"
    if first in ("DATETIME", "TIMESTAMP"):
        text = chance.choice(MOMENTS)
        return f"'{text}.5'" if first == "DATETIME" and " " in text and chance.random() < 0.5 else f"'{text}'"
    return chance.choice(FEW if first in ("DOUBLE", "FLOAT") else NUMBERS)


def leaf(chance: random.Random, column: str, declared: str) -> str:
    """A part of a condition that looks at a column."""
    name = chance.choice([column, column.upper(), f"`{column}`"])
    negated = "NOT " if chance.random() < 0.3 else ""
    if chance.random() < 0.1:
        return f"{name} IS {negated}NULL"
    first = declared.split("(")[0].split()[0]
    if first in ("VARBINARY", "BINARY", "ENUM", "TEXT") or "CHAR" in first:
        constants, operators = [f"'{text}'" for text in TEXTS], ["=", "<>", "!=", "<=>"]
    else:
        operators = ORDERED
        if first == "DATE":
            constants = [f"'{day}'" for day in DAYS]
        elif first in ("DATETIME", "TIMESTAMP"):
            constants = [f"'{moment}'" for moment in MOMENTS] + (
                ["'2026-01-31 23:59:59.5'"] if first == "DATETIME" else []
            )
        elif first == "YEAR":
            constants = YEARS
        else:
            constants = FEW if first in ("DOUBLE", "FLOAT") else HELD.get(first, NUMBERS)
            if first == "INT" or declared.endswith("BIGINT UNSIGNED"):
                constants = [number for number in constants if not number.startswith("-")]
    drawn = chance.random()
    if drawn < 0.25:
        listed = ", ".join(chance.choices(constants, k=chance.randint(1, 4)))
        return f"{name} {negated}IN ({listed})"
    if drawn < 0.35 and operators is ORDERED:
        return f"{name} {negated}BETWEEN {chance.choice(constants)} AND {chance.choice(constants)}"
    if drawn < 0.4 and first in ("TINYINT", "INT", "BIGINT", "DECIMAL"):
        return name
    if drawn < 0.5:
        return f"{chance.choice(constants)} {chance.choice(operators)} {name}"
    return f"{name} {chance.choice(operators)} {chance.choice(constants)}"


def condition(chance: random.Random, columns: dict[str, str], depth: int = 2) -> str:
    """A condition over some of the columns."""
    if depth == 0 or chance.random() < 0.3:
        return leaf(chance, *chance.choice(list(columns.items())))
    parts = [condition(chance, columns, depth - 1) for _ in range(chance.randint(1, 3))]
    joined = f" {chance.choice(['AND', 'OR'])} ".join(parts)
    return f"NOT ({joined})" if chance.random() < 0.25 else f"({joined})" if chance.random() < 0.7 else joined
