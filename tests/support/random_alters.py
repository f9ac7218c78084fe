"""Random CREATE TABLE and ALTER TABLE statements, as no one would write them by hand; a server refuses most of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from binlake.names import mysql_quote
from binlake.schema.table import TableSchema

_T = TypeVar("_T")
NAMES = ("a", "b", "c", "d", "e", "f", "A", "Bé", "x y")
_CHARSETS = ("latin1", "utf8mb4", "utf8mb3", "ascii", "ucs2", "cp1251", "binary", "utf16")
_COLLATIONS = (
    *("latin1_bin", "utf8mb4_bin", "utf8mb4_general_ci", "latin1_swedish_ci"),
    *("utf8mb3_general_ci", "ascii_bin"),
)
_NUMBERS = (
    *("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "INT(5)", "BOOL", "INT2", "MIDDLEINT", "INT8"),
    *("DECIMAL", "DEC(9,2)", "NUMERIC(5)", "DECIMAL(65,30)", "FIXED(6,1)"),
)
_FLOATS = ("FLOAT", "DOUBLE PRECISION", "REAL", "FLOAT(7,3)", "FLOAT(30)")
_TEXTS = (
    *("CHAR", "CHAR(5)", "VARCHAR(9)", "VARCHAR(300)", "CHARACTER VARYING(20)", "TEXT", "TINYTEXT", "MEDIUMTEXT"),
    *("LONGTEXT", "TEXT(100)", "TEXT(70000)", "LONG", "ENUM('x','y')", "SET('x','y','z')", "ENUM('é','b ')"),
)
_OTHERS = (
    *("NCHAR(4)", "NATIONAL VARCHAR(7)", "BINARY(4)", "VARBINARY(9)", "BLOB", "TINYBLOB", "BLOB(300)", "CHAR BYTE"),
    *("BIT", "BIT(9)", "DATE", "TIME", "TIME(3)", "DATETIME", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(2)", "YEAR"),
    *("TIMESTAMP NULL", "JSON"),
)
_DEFAULTS = (
    *("NULL", "1", "'1'", "'x'", "''", "'2020-01-01'", "CURRENT_TIMESTAMP", "0", "b'1'", "x'41'", "(1+1)", "('x')"),
    *("-5", "1.5", "TRUE", "'é'", "CURRENT_TIMESTAMP(6)"),
)
_ATTRIBUTES = (
    *("NULL", "NOT NULL", "NOT NULL", "COMMENT 'it''s'", "UNIQUE", "PRIMARY KEY", "INVISIBLE", "AUTO_INCREMENT"),
    *("CHECK (1)", "DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"),
)


class RandomAlters:
    """Statements of one kind of server, one after the other."""

    def __init__(self, kind: str, seed: int) -> None:
        self.random = random.Random(seed)
        self._on_mariadb = kind == "mariadb"

    def create(self, table: str) -> str:
        names = self.random.sample(NAMES[:5], self.random.randint(2, 4))
        parts = [f"{mysql_quote(name)} {self._definition(())}" for name in names]
        if self._chance(0.4):
            parts.append(f"PRIMARY KEY ({self._parts(names)})")
        if self._chance(0.5):
            parts.append(f"UNIQUE k1 ({self._parts(names)})")
        charset = f" CHARSET {self._one(_CHARSETS)}" if self._chance(0.3) else ""
        return f"CREATE TABLE {table} ({', '.join(parts)}){charset}"

    def alter(self, table: str, schema: TableSchema) -> str:
        clauses = [self._clause(schema) for _ in range(self._one((1, 1, 2, 2, 3, 4)))]
        return f"ALTER TABLE {table} {', '.join(clauses)}"

    def _one(self, choices: Sequence[_T]) -> _T:
        return self.random.choice(choices)

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _type(self) -> str:
        kind = self._one(("number", "float", "text", "text", "other", "other"))
        if kind == "number":
            return self._one(_NUMBERS) + self._one(("", "", "", " UNSIGNED", " ZEROFILL"))
        if kind == "float":
            return self._one(_FLOATS)
        if kind == "other":
            return self._one(_OTHERS)
        written = (f" CHARACTER SET {self._one(_CHARSETS)}", f" COLLATE {self._one(_COLLATIONS)}", " BINARY", "", "")
        return self._one(_TEXTS) + self._one(written)

    def _definition(self, columns: Sequence[str]) -> str:
        if columns and self._chance(0.1):
            of = mysql_quote(self._one(columns))
            expression = self._one((of, f"CONCAT({of}, 1)", "1 + 1", f"{of} + 1"))
            return f"{self._type()} AS ({expression}) {self._one(('VIRTUAL', 'STORED'))}"
        attributes = [attribute for attribute in _ATTRIBUTES if self._chance(0.08)]
        attributes += [f"DEFAULT {self._one(_DEFAULTS)}"] if self._chance(0.3) else []
        attributes += [f"COLLATE {self._one(_COLLATIONS)}"] if self._chance(0.05) else []
        self.random.shuffle(attributes)
        return " ".join([self._type(), *attributes])

    def _parts(self, columns: Sequence[str]) -> str:
        chosen = self.random.sample(columns, min(len(columns), self.random.randint(1, 3)))
        return ", ".join(mysql_quote(name) + self._one(("", "", "", "(3)", " DESC")) for name in chosen)

    def _clause(self, schema: TableSchema) -> str:
        columns = [column.name for column in schema.columns]
        old, other, new = (mysql_quote(self._one(names)) for names in (columns, columns, (*NAMES, *columns)))
        index = mysql_quote(self._one([index.name for index in schema.indexes] or ["k1"]))
        there = " IF EXISTS" if self._on_mariadb and self._chance(0.15) else ""
        absent = " IF NOT EXISTS" if self._on_mariadb and self._chance(0.15) else ""
        place = self._one(("", "", "", " FIRST", f" AFTER {other}"))
        first, second = self._definition(columns), self._definition(columns)
        return self._one(
            (
                f"ADD{absent} {new} {first}{place}",
                f"ADD {new} {first}{place}",
                f"ADD ({new} {first}, {other} {second})",
                f"DROP{there} {old}",
                f"MODIFY{there} {old} {first}{place}",
                f"CHANGE{there} {old} {new} {first}{place}",
                f"RENAME COLUMN{there} {old} TO {new}",
                f"RENAME COLUMN {old} TO {other}, RENAME COLUMN {other} TO {old}",
                f"DROP {old}, ADD {old} {first}{place}",
                f"DROP {old}, ADD {old} {first}, MODIFY {old} {second}{place}",
                f"DROP {old}, RENAME COLUMN {other} TO {old}",
                f"DROP {old}, CHANGE {other} {old} {first}{place}",
                f"RENAME COLUMN {old} TO {new}, ADD {old} {first}{place}",
                f"ALTER {old} {self._one(('SET DEFAULT ' + self._one(_DEFAULTS), 'DROP DEFAULT'))}",
                f"ADD PRIMARY KEY ({self._parts(columns)})",
                "DROP PRIMARY KEY",
                f"DROP PRIMARY KEY, ADD PRIMARY KEY ({self._parts(columns)})",
                f"ADD UNIQUE{absent} {self._one(('', 'k1', 'k2'))} ({self._parts(columns)})",
                f"ADD INDEX{absent} {self._one(('', 'k1', 'k3'))} ({self._parts(columns)})",
                f"DROP INDEX{there} {index}",
                f"RENAME INDEX{there} {index} TO {self._one(('k1', 'k4'))}",
                f"CONVERT TO CHARACTER SET {self._one((*_CHARSETS, 'DEFAULT'))}",
                f"CONVERT TO CHARACTER SET {self._one(_CHARSETS)}, COLLATE {self._one(_COLLATIONS)}",
                f"CHARSET = {self._one(_CHARSETS)}",
                f"COLLATE {self._one(_COLLATIONS)}",
                self._one(("COMMENT = 'new'", "ENGINE = InnoDB", "FORCE", f"ORDER BY {old}")),
            )
        )
