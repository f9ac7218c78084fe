"""Where in a log a name is a ghost table's."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from binlake.binlog.border import Statement
from binlake.planner.manifest import GhostSpan, is_held
from binlake.planner.tool_tables import spans_of
from binlake.position import Flavour
from binlake.schema import lexer
from binlake.schema.table import Column, TableName, TableSchema

GHOST, NEW, T = (TableName("shop", name) for name in ("_t_gho", "_t_new", "t"))
SHAPE = TableSchema((Column("id", "int", nullable=False), Column("v", "text")), ("id",), "primary")


def spans(*texts: str, following: Collection[TableName] = (), flavour: Flavour = "mysql") -> tuple[GhostSpan, ...]:
    """Of statements at the offsets 100, 200, …"""
    read = [Statement("b.000001", 100 * n, n, 0, None, "shop", 0, text) for n, text in enumerate(texts, 1)]
    return spans_of(
        following,
        read,
        lambda name: name.database == "shop",
        {T: SHAPE}.get,
        flavour=flavour,
        lower_case_names=False,
    )


@pytest.mark.parametrize(
    ("text", "is_copy"),
    [
        ("CREATE TABLE _t_gho LIKE t", True),
        ("CREATE TABLE _t_gho LIKE u", False),
        ("CREATE TABLE _t_gho LIKE hr.t", False),
        ("CREATE TABLE _t_gho (ID INT PRIMARY KEY, V TEXT)", True),
        ("CREATE TABLE _t_gho (id INT PRIMARY KEY, salary TEXT)", False),
        ("CREATE TABLE hr._t_gho LIKE hr.t", False),
        ("CREATE TABLE IF NOT EXISTS _t_gho LIKE t", False),
    ],
)
def test_a_copy_is_made_like_its_table_or_with_its_columns(text: str, is_copy: bool) -> None:
    assert spans(text) == ((GhostSpan(GHOST, (1, 100)),) if is_copy else ())


def test_mariadb_logs_if_not_exists_where_it_made_the_table() -> None:
    assert spans("CREATE TABLE IF NOT EXISTS _t_gho LIKE t", flavour="mariadb")


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE _t_gho",
        "RENAME TABLE t TO _t_del, _t_gho TO t",
        "RENAME TABLE u TO _t_gho",
        "CREATE OR REPLACE TABLE _t_gho (salary INT)",
    ],
)
def test_a_ghost_ends_where_another_table_may_have_its_name(text: str) -> None:
    (span,) = spans("INSERT INTO t VALUES (1)", text, following=[GHOST], flavour="mariadb")
    assert span == GhostSpan(GHOST, end=(1, 200))
    assert is_held([span], GHOST, (1, 150))
    assert not is_held([span], GHOST, (1, 250))
    assert not is_held([span], NEW, (1, 150))


CLAUSES = ", ".join(["ALTER c SET DEFAULT 1"] * 20)
PAIRS = ", ".join(f"a{number} TO b{number}" for number in range(40))


@pytest.mark.parametrize(
    "text",
    [
        f"ALTER TABLE u {CLAUSES}, RENAME TO _t_gho",
        f"RENAME TABLE {PAIRS}, _t_gho TO gone, u TO `_T_gho`, `_T_gho` TO _t_gho",
        f"DROP TABLE {', '.join(f'a{number}' for number in range(80))}, _t_gho",
        f"CREATE OR REPLACE TABLE _t_gho (id INT, v TEXT, {', '.join(f'c{number} INT' for number in range(60))})",
    ],
)
def test_a_ghost_ends_in_a_statement_that_is_too_long_to_be_read(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't read of it may have given the name to a table whose rows must not be read."""
    monkeypatch.setattr(lexer, "MOST_TOKENS", 100)
    assert spans(text, following=[GHOST, NEW], flavour="mariadb") == (GhostSpan(GHOST, end=(1, 100)), GhostSpan(NEW))


def test_no_ghost_begins_in_a_statement_that_is_too_long_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexer, "MOST_TOKENS", 15)
    shape = "(id INT PRIMARY KEY, v TEXT, PRIMARY KEY (id), UNIQUE (v(9)), KEY (id), KEY (id))"
    assert spans(f"CREATE TABLE _t_gho {shape}") == ()


def test_a_ghost_ends_in_a_statement_that_is_not_understood() -> None:
    assert spans("RENAME u INTO _t_gho", following=[GHOST]) == (GhostSpan(GHOST, end=(1, 100)),)


def test_a_name_may_be_a_ghosts_again() -> None:
    assert spans("DROP TABLE _t_gho", "CREATE TABLE _t_gho LIKE t", following=[GHOST, NEW]) == (
        GhostSpan(GHOST, end=(1, 100)),
        GhostSpan(NEW),
        GhostSpan(GHOST, (1, 200)),
    )
