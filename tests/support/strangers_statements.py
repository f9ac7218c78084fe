"""Statements as anybody may write them: nested, long and many at the servers' own limits, or cut off anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from binlake.binlog.border import Statement
from binlake.config import Policy
from binlake.planner.epochs import split
from binlake.planner.manifest import Manifest, StagedFile, StagedSlice
from binlake.planner.rules import Rules
from binlake.planner.steps import BatchSteps, Life
from binlake.planner.walk import BatchInputs
from binlake.position import Flavour, Position, Range, Slice
from binlake.schema.table import Column, TableName, TableSchema
from binlake.schema.virtual import leaving_out

_FILE = "binlog.000001"
_NAMES = (
    "t", "u", "`t`", "`T`", "shop.t", "`shop`.`u`", "other.x", "`a.b`", "`a``b`", "`select`", "x", "_t_gho", "é",
    "`😀`", "`" + "n" * 64 + "`", "year", "`key`", "`_row_id_`", "1st", "$d",
)  # fmt: skip
_COLUMNS = ("id", "a", "b", "c", "year", "`date`", "`a b`", "`d``e`", "é")
_TYPES = (
    "INT", "BIGINT UNSIGNED", "TINYINT(1)", "DECIMAL(65,30)", "DECIMAL(10,2)", "DOUBLE", "FLOAT(7,4)", "CHAR(255)",
    "VARCHAR(16383)", "VARCHAR(20) CHARACTER SET latin1", "TEXT", "LONGBLOB", "JSON", "DATE", "DATETIME(6)", "TIME(3)",
    "TIMESTAMP", "YEAR", "BIT(64)", "SET('a','b')", "ENUM('x','y')", "POINT SRID 4326", "BINARY(16)", "BOOLEAN",
)  # fmt: skip
_LITERALS = (
    "1", "-1", "0", "1.5e300", "0x" + "ff" * 40, "x'41'", "b'1010'", "'it''s'", "'\\\\'", "_latin1'e'", "N'x'", "NULL",
    "TRUE", "DATE'2020-01-01'", "9" * 65, "'" + "y" * 300 + "'", "NOW()", "CURRENT_TIMESTAMP(6)", "(UUID())",
)  # fmt: skip
_FUNCTIONS = (
    "ABS", "CONCAT", "COALESCE", "IF", "DATE_ADD", "CAST", "JSON_EXTRACT", "WEEK", "UNIX_TIMESTAMP", "GREATEST", "SHA2",
    "MD5", "TIMESTAMP", "DATE_FORMAT", "UNKNOWN", "CONVERT",
)  # fmt: skip
_CLAUSES = (
    "DROP COLUMN a", "DROP a", "ADD INDEX (a)", "ADD UNIQUE KEY k (a, b(10))", "DROP INDEX k", "DROP PRIMARY KEY",
    "ADD PRIMARY KEY (id)", "RENAME TO other.y", "RENAME COLUMN a TO b", "ALTER a SET DEFAULT 1",
    "ALTER a DROP DEFAULT",
    "CONVERT TO CHARACTER SET latin1", "DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin", "ENGINE=InnoDB", "COMMENT 'x'",
    "ADD FOREIGN KEY (a) REFERENCES u (id) ON DELETE CASCADE", "DROP FOREIGN KEY f", "FORCE", "ALGORITHM=INPLACE",
    "ORDER BY a, b DESC", "EXCHANGE PARTITION p WITH TABLE other.x", "TRUNCATE PARTITION p0", "ADD CHECK (a > 0)",
    "REMOVE PARTITIONING", "ADD SYSTEM VERSIONING", "DROP CONSTRAINT c", "UNION=(t, u)", "DISABLE KEYS",
)  # fmt: skip


class StrangersStatements:
    """Generator of statements, the same for a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def statement(self) -> str:
        """Return a statement; one of ten is damaged."""
        kinds: tuple[tuple[int, Callable[[], str]], ...] = (
            (8, self._create), (8, self._alter), (1, self._rename), (1, self._drop), (1, self._index), (1, self._dml),
            (1, self._other),
        )  # fmt: skip
        weights, makers = zip(*kinds, strict=True)
        text = self.random.choices(makers, weights)[0]()
        return self._damaged(text) if self.random.random() < 0.1 else text

    def _some(self, usual: int, limit: int) -> int:
        """Return a number: mostly small, at times at the servers' limit."""
        chance = self.random.random()
        if chance < 0.004:
            return limit
        return self.random.randint(1, max(1, limit // 20)) if chance < 0.02 else self.random.randint(1, usual)

    def _name(self) -> str:
        return self.random.choice(_NAMES)

    def _column(self) -> str:
        return self.random.choice(_COLUMNS)

    def _expression(self) -> str:
        """Return an expression that is nested up to 20,000 levels deep, or has up to 60,000 characters."""
        inner = self.random.choice((self._column(), self.random.choice(_LITERALS), "'$.a[0]'", "?", "@v"))
        for _ in range(self._some(4, 8)):
            operator = self.random.choice(("+", "-", "*", "/", "AND", "OR", "=", "<=>", "LIKE", "->>", "||", "DIV"))
            inner = f"{inner} {operator} {self.random.choice((self._column(), self.random.choice(_LITERALS)))}"
        depth = self._some(4, 20_000)
        function = self.random.choice(_FUNCTIONS)
        before, behind = self.random.choice((
            ("(", ")"), (f"{function}(", ")"), ("-", ""), (f"{function}(a, ", ", 1)"), ("CASE WHEN a THEN ", " END"),
            ("CAST(", " AS CHAR)"), ("NOT ", ""), ("INTERVAL(", ", 1)"), ("DATE_ADD(d, INTERVAL ", " DAY)"),
        ))  # fmt: skip
        depth = min(depth, 60_000 // (len(before) + len(behind)))
        return before * depth + inner + behind * depth

    def _definition(self, name: str) -> str:
        text = f"{name} {self.random.choice(_TYPES)}"
        if self.random.random() < 0.02:
            values = ",".join(f"'m{number}'" for number in range(self._some(20, 65_535)))
            text = f"{name} {self.random.choice(('ENUM', 'SET'))}({values})"
        if self.random.random() < 0.3:
            return f"{text} {self.random.choice(('AS', 'GENERATED ALWAYS AS'))} ({self._expression()}) " + (
                self.random.choice(("", "VIRTUAL", "STORED", "PERSISTENT"))
            )
        for _ in range(self.random.randint(0, 3)):
            text += " " + self.random.choice((
                "NOT NULL", "NULL", "UNIQUE", "PRIMARY KEY", "AUTO_INCREMENT", "INVISIBLE", "REFERENCES u (id)",
                f"DEFAULT {self.random.choice(_LITERALS)}", f"COMMENT '{'c' * self._some(20, 1024)}'",
                "COLLATE utf8mb4_bin", f"CHECK ({self._expression()})",
                f"DEFAULT ({self._expression()})", "ON UPDATE CURRENT_TIMESTAMP",
            ))  # fmt: skip
        return text

    def _columns(self) -> list[str]:
        count = self._some(6, 4096)
        chance = self.random.random()
        if chance < 0.05:  # each refers to the one before, once or twice
            between = self.random.choice(("{0} + 1", "{0} + {0}", "ABS({0})", "{0} * {0} - id", "CONCAT({0}, {0})"))
            chained = (f"g{n} INT AS ({between.format(f'g{n - 1}')})" for n in range(1, min(count * 10, 1017)))
            return ["id INT PRIMARY KEY AUTO_INCREMENT", "g0 INT AS (id)", *chained]
        names = [*_COLUMNS[: min(count, len(_COLUMNS))], *(f"c{number}" for number in range(count - len(_COLUMNS)))]
        definitions = [self._definition(name) for name in names[:100]]
        return [*definitions, *(f"{name} INT" for name in names[100:])]

    def _create(self) -> str:
        head = self.random.choice(("CREATE TABLE", "CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS"))
        if self.random.random() < 0.05:
            return f"{head} {self._name()} LIKE {self._name()}"
        elements = self._columns()
        for _ in range(self._some(3, 64) if self.random.random() < 0.5 else 0):
            parts = ", ".join(self._column() for _ in range(self._some(2, 32)))
            elements.append(f"{self.random.choice(('KEY', 'UNIQUE', 'FULLTEXT KEY'))} ({parts})")
        options = self.random.choice(("", "ENGINE=InnoDB", "ENGINE=MERGE UNION=(t, u)", "COMMENT='x'", "SELECT 1 AS a"))
        if self.random.random() < 0.05:
            lists = ", ".join(f"PARTITION p{n} VALUES LESS THAN ({n})" for n in range(self._some(5, 8192)))
            options += f" PARTITION BY RANGE (id) ({lists})"
        return f"{head} {self._name()} ({', '.join(elements)}) {options}"

    def _alter(self) -> str:
        clauses: list[str] = []
        for _ in range(self._some(3, 40_000)):
            clause = self.random.choice(_CLAUSES)
            if self.random.random() < 0.3 and len(clauses) < 200:
                how = self.random.choice(("ADD COLUMN", "MODIFY", "CHANGE a"))
                place = self.random.choice(("", " FIRST", " AFTER a"))
                clause = f"{how} {self._definition(self._column())}{place}"
            clauses.append(clause)
        return f"ALTER {self.random.choice(('', '', 'IGNORE '))}TABLE {self._name()} {', '.join(clauses)}"

    def _rename(self) -> str:
        pairs = ", ".join(f"{self._name()} TO {self._name()}" for _ in range(self._some(3, 20_000)))
        return f"RENAME TABLE {self.random.choice(('', 'IF EXISTS '))}{pairs}"

    def _drop(self) -> str:
        names = ", ".join(self._name() for _ in range(self._some(3, 50_000)))
        return f"{self.random.choice(('DROP TABLE IF EXISTS', 'DROP TEMPORARY TABLE', 'TRUNCATE'))} {names}"

    def _index(self) -> str:
        parts = ", ".join(f"({self._expression()})" for _ in range(self.random.randint(1, 3)))
        return f"CREATE {self.random.choice(('UNIQUE ', ''))}INDEX k ON {self._name()} (a, {parts})"

    def _dml(self) -> str:
        verb = self.random.choice(
            ("INSERT INTO", "REPLACE", "UPDATE", "DELETE FROM", "WITH r AS (SELECT 1) DELETE FROM")
        )
        return f"{verb} {self._name()} {'SET a = 1, ' * self._some(10, 400_000)}"

    def _other(self) -> str:
        return self.random.choice((
            f"CREATE DATABASE {self._name()} CHARSET latin1", f"DROP DATABASE {self._name()}", "FLUSH TABLES",
            f"GRANT ALL ON *.* TO {self._name()}", "CREATE VIEW v AS SELECT " + "(" * 5000 + "1" + ")" * 5000,
            f"SET STATEMENT sql_mode='' FOR {self._create()}", f"CREATE PROCEDURE p() {self._alter()}", "",
            f"ANALYZE TABLE {self._name()}", f"CALL {self._name()}()", f"XA COMMIT {self._name()}",
        ))  # fmt: skip

    def _damaged(self, text: str) -> str:
        """Return the text cut off, with something put in, or with a stretch of it many times."""
        at = self.random.randint(0, len(text))
        what = self.random.choice((
            "'", '"', "`", "/*", "*/", "/*!50000 ", "/*M!100000 ", "(", ")", ",", ";", "\0", "--", "#", "\\", "\u00a0",
            "😀", " " * 100_000, "(" * 30_000, "/*!" * 5000, "'" * 5001, "-- \n" * 5000, "." * 5000, "@" * 100, "{d",
        ))  # fmt: skip
        return self.random.choice((text[:at], text[:at] + what + text[at:], text[:at] + what))


_ID = Column("id", "int", nullable=False)
_SHAPE = TableSchema(
    (_ID, Column("a", "int"), Column("b", "varchar", length=20, charset="utf8mb4")), ("id",), "primary"
)


def followed(text: str, flavour: Flavour) -> BatchSteps:
    """Return the steps of a batch in which a statement stands between mutations of two tables, t and u."""
    server = "server" if flavour == "mysql" else "1@host@0"
    start = Position(server, _FILE, 4, 1)
    lives = [Life(name, TableName("shop", name), _SHAPE, start, start) for name in "tu"]
    rules = Rules(lambda name: name.database == "shop", excluding=lambda name, schema: leaving_out(schema))
    rules = replace(rules, policy=lambda name: Policy(on_unfollowable="stop"))
    rows = tuple(_row(offset, before, life.name) for offset, before in ((50, 0), (150, 1)) for life in lives)
    part = StagedSlice(0, rows, (Statement(_FILE, 100, 0, 0, None, "shop", 0, text),), ())
    read = Range(start, Position(server, _FILE, 10_000, 1), (Slice(_FILE, 4, 10_000, 1, False),))
    return split(Manifest(1, "a", (part,)), BatchInputs("s", rules, read, lives))


def _row(offset: int, before: int, name: TableName) -> StagedFile:
    place = (1, offset, 0)
    return StagedFile(f"{name}", name, _SHAPE.columns, ("id",), 0, before, 1, 0, 0, place, place, 1, "", {})
