"""Random ALTERs: ``random_shapes.py mysql|mariadb [STATEMENTS] [SEED]``.

What each statement that the server takes makes of a table, followed from its text alone, equals information_schema:
the columns with their types, the key, character sets, comments, and the columns of the indexes. Defaults, sizes of TEXT
and BLOB, and prefixes of indexes aren't compared, as they decide no value. Statements that aren't followed, so that the
table is copied again, are counted.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pymysql

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from binlake.ddl import statements as ddl  # noqa: E402
from binlake.ddl.evolve import with_comments  # noqa: E402
from binlake.errors import BinlakeError  # noqa: E402
from binlake.schema import lexer  # noqa: E402
from binlake.schema.statement_session import Session  # noqa: E402
from binlake.schema.table import Column, TableName, TableSchema  # noqa: E402
from binlake.source import catalog  # noqa: E402
from binlake.source.endpoint import Endpoint  # noqa: E402
from binlake.source.server import Source  # noqa: E402
from random_alters import RandomAlters  # noqa: E402
from servers import Kind, Server  # noqa: E402

DATABASE = "shapes"
MODES = {"STRICT_TRANS_TABLES": lexer.STRICT_TRANS_TABLES, "": 0}


class Shapes:
    """Tables of one server that are altered at random. counts: of what became of the statements."""

    def __init__(self, kind: Kind, server: Server, seed: int) -> None:
        self._kind, self._alters, self._server = kind, RandomAlters(kind, seed), server
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, statements: int) -> None:
        self._server.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET latin1")
        endpoint = Endpoint("127.0.0.1", self._server.port, "root", "")
        with Source.open(endpoint) as source, self._server.connect(database=DATABASE) as connection:
            table = 0
            while self.counts["followed"] + self.counts["not followed"] < statements:
                table += 1
                with connection.cursor() as cursor:
                    self._one_table(f"t{table}", source, cursor)

    def _one_table(self, table: str, source: Source, cursor: pymysql.cursors.Cursor) -> None:
        mode = self._alters.random.choice([*MODES])
        cursor.execute("SET sql_mode = %s", (mode,))
        history, shown = [self._alters.create(table)], None
        for _ in range(12):
            if not self._taken(cursor, history[-1]):
                if shown is None:
                    return
                history.pop()
            else:
                try:
                    now = self._shown(source, table)
                except BinlakeError:  # a table that can't be mirrored
                    break
                self._compare(history, self._followed(history[-1], shown, MODES[mode]), now)
                shown = now
            history.append(self._alters.alter(table, shown))
        cursor.execute(f"DROP TABLE {table}")

    def _taken(self, cursor: pymysql.cursors.Cursor, statement: str) -> bool:
        try:
            cursor.execute(statement)
        except pymysql.err.MySQLError:
            self.counts["refused by the server"] += 1
            return False
        return True

    def _shown(self, source: Source, table: str) -> TableSchema:
        name = TableName(DATABASE, table)
        return catalog.read_tables(source, [name])[name].schema

    def _followed(self, statement: str, before: TableSchema | None, sql_mode: int) -> TableSchema | None:
        """Return the shape after a statement; None where it isn't followed."""
        session = Session(explicit_timestamps=True)
        parsed = ddl.parse(
            statement,
            database=DATABASE,
            sql_mode=sql_mode,
            flavour=self._kind,
            session=session,
            charsets={DATABASE: "latin1"},
        )
        match parsed.changes:
            case (ddl.CreateTable(schema=schema),):
                return schema
            case (ddl.AlterTable() as change,) if before and change.describes:
                return with_comments(before, change.alterations)
            case (ddl.AlterTable() as change,) if before:
                try:
                    return ddl.evolve(before, change, flavour=self._kind).after
                except BinlakeError:
                    return None
            case (ddl.NoShapeChange(),):
                return before
        return None

    def _compare(self, history: list[str], followed: TableSchema | None, shown: TableSchema) -> None:
        self.counts["followed" if followed else "not followed"] += 1
        if followed and (different := _different(followed, shown)):
            self.wrong.append("\n  ".join([*history, *different]))


def _different(followed: TableSchema, shown: TableSchema) -> list[str]:
    """Return what two shapes differ in, one line for each."""
    prefixed = (index.columns for index in shown.indexes if index.unique and any(index.prefixes))
    if shown.key_kind == "none" and followed.key in prefixed:  # what is unique by a prefix is unique
        followed = replace(followed, key=(), key_kind="none")
    pairs = zip(_compared(followed), _compared(shown), strict=False)
    return [f"followed as {here}, shown as {there}" for here, there in pairs if here != there]


def _compared(schema: TableSchema) -> list[object]:
    indexes = sorted((index.name, str(index.columns), index.unique) for index in schema.indexes)
    names = [column.name for column in schema.columns]
    comments = [schema.comment, *(column.comment for column in schema.columns)]
    return [names, schema.key_kind, schema.key, schema.charset, indexes, comments, *map(_of_values, schema.columns)]


def _of_values(column: Column) -> Column:
    """Return the column without what decides no value: its default, and the size of TEXT and BLOB."""
    sizeless = next((kind for kind in ("text", "blob") if column.type.endswith(kind)), column.type)
    return replace(column, type=sizeless, default=None, default_is_expression=False)


def main(kind: Kind, statements: int, seed: int) -> None:
    with Server(kind) as server:
        shapes = Shapes(kind, server, seed)
        shapes.run(statements)
    print(f"{kind}, seed {seed}:", ", ".join(f"{count:,} {what}" for what, count in shapes.counts.items()))
    if shapes.wrong:
        sys.exit("\n\n".join([f"{len(shapes.wrong)} shapes are wrong", *shapes.wrong[:5]]))


if __name__ == "__main__":
    asked = sys.argv[1:]
    if not asked or asked[0] not in ("mysql", "mariadb"):
        sys.exit(__doc__)
    main(asked[0], *(int(text) for text in (*asked[1:], *("3000", "1")[len(asked) - 1 :])))  # type: ignore[arg-type]
