"""Conditions over rows in the log are what the server says, for any column, value and collation that is understood."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import drawn_conditions
from binlake.binlog.border import Mutations
from binlake.schema.row_condition import parsed, server_sql
from binlake.schema.row_matching import RowMatcher
from binlake.schema.table import TableSchema
from binlake.schema.text_equality import text_equality
from binlog_slices import from_server, read_all, written
from servers import Server

ROWS, CONDITIONS = 400, 80


def logged(server: Server, database: str, table: str, statement: str) -> Mutations:
    with written(server) as log:
        server.execute(statement, database=database)
    (mutations,) = [item for item in read_all(from_server(server), log.part, database) if isinstance(item, Mutations)]
    assert mutations.name.table == table
    return mutations


@pytest.mark.parametrize("seed", [1])
def test_conditions_are_true_where_the_server_says_so(server: Server, database: str, seed: int) -> None:
    chance, columns = random.Random(seed), drawn_conditions.columns_of(server.kind)
    declared = ", ".join(f"`{name}` {definition}" for name, definition in columns.items())
    server.execute(f"CREATE TABLE v (id INT PRIMARY KEY AUTO_INCREMENT, {declared})", database=database)
    rows = [", ".join(drawn_conditions.value(chance, *column) for column in columns.items()) for _ in range(ROWS)]
    names = ", ".join(f"`{name}`" for name in columns)
    values = ", ".join(f"({row})" for row in rows)
    mutations = logged(server, database, "v", f"INSERT IGNORE INTO v ({names}) VALUES {values}")
    shape = TableSchema(mutations.columns, ("id",), "primary")
    images = mutations.batch.column("after")
    ids = images.field("id").to_pylist()
    seen: Counter[str] = Counter()
    for _ in range(CONDITIONS):
        text = drawn_conditions.condition(chance, columns)
        matched = RowMatcher(text, mutations.columns, mutations.collations).matched(images)
        utc = "SET time_zone='+00:00', sql_mode=''"
        as_written, as_asked = (
            {row[0] for row in server.execute(utc, f"SELECT id FROM v WHERE {where}", database=database)}
            for where in (text, f"IF({server_sql(parsed(text), shape)}, 1, 0)")
        )
        assert as_written == as_asked, text
        undecided = matched.undecided if matched.undecided is not None else [False] * len(ids)
        ours = {row for row, met, open_ in zip(ids, matched.met, undecided, strict=True) if met and not open_}
        unknown = {row for row, open_ in zip(ids, undecided, strict=True) if open_}
        wrong = (ours ^ as_asked) - unknown
        assert not wrong, (text, [dict(zip(columns, rows[row - 1].split(", "), strict=False)) for row in wrong][:3])
        seen += Counter(met=len(ours), unknown=len(unknown), all=len(ids))
    assert seen["met"] > seen["all"] / 10
    assert seen["unknown"] < seen["all"] / 5


PLAIN = ["", *(chr(code) for code in range(0x20, 0x7F)), "ss", "ae", "AE", "ch", "a ", "A b", "a-b", "ab"]


def known_collations(server: Server) -> list[tuple[int, str, str]]:
    """Number, name and character set of the server's collations that are known."""
    listed = [(row[2], row[0], row[1]) for row in server.execute("SHOW COLLATION") if row[2] is not None]
    if server.kind == "mariadb":
        listed += server.execute(
            "SELECT id, full_collation_name, character_set_name"
            " FROM information_schema.collation_character_set_applicability WHERE full_collation_name LIKE '%uca1400%'"
        )
    return [collation for collation in listed if text_equality(collation[0])]


def test_collations_compare_plain_texts_as_it_is_known_of_them(server: Server, database: str) -> None:
    collations = known_collations(server)
    assert {46, 45, 8, 224} < {number for number, _, _ in collations}
    values = ", ".join("(_utf8mb4 0x" + text.encode().hex() + ")" if text else "('')" for text in PLAIN)
    for number, name, charset in collations:
        equality = text_equality(number)
        assert equality is not None
        pairs = server.execute(
            "DROP TABLE IF EXISTS p",
            f"CREATE TABLE p (v VARCHAR(9) CHARACTER SET {charset} COLLATE {name})",
            f"INSERT INTO p VALUES {values}",
            "SELECT CAST(a.v AS BINARY), CAST(b.v AS BINARY) FROM p a JOIN p b ON a.v = b.v",
            database=database,
        )
        ours = {(one, other) for one in PLAIN for other in PLAIN if equality.decides(one, other)}
        assert {(one.decode(), other.decode()) for one, other in pairs} == ours, name
