"""Statements of a session that logs them concern its temporary tables first."""

import pytest

from binlake.ddl import statements
from binlake.ddl.changes import NoShapeChange, ParsedStatement, RenameTables, TruncateTable, Unfollowed
from binlake.ddl.temporary import TemporaryTables
from binlake.position import Flavour
from binlake.schema.table import TableName

T, U = TableName("shop", "t"), TableName("shop", "u")


def last(
    *texts: str, flavour: Flavour = "mariadb", threads: tuple[int, ...] = (), needs_session: bool = False
) -> ParsedStatement:
    """What is left of the last statement; all of one session unless threads says which they are of."""
    tables = TemporaryTables(flavour)
    left = ParsedStatement("")
    for number, text in enumerate(texts):
        parsed = statements.parse(text, database="shop", sql_mode=0, flavour=flavour)
        left = tables.hidden(parsed, threads[number] if threads else 1, needs_session=needs_session)
    return left


@pytest.mark.parametrize(
    "text", ["TRUNCATE t", "ALTER TABLE t ADD x INT", "DELETE FROM t", "CREATE INDEX i ON t (a)", "RENAME TABLE t TO v"]
)
def test_it_hides_the_table_of_its_name(text: str) -> None:
    left = last("CREATE TEMPORARY TABLE t (a INT)", text)
    assert (left.changes, left.kind != "DML") == ((), True)


@pytest.mark.parametrize(
    ("text", "concerned"),
    [
        ("TRUNCATE t", [T]),
        ("ALTER TABLE t ADD x INT", [T]),
        ("ALTER TABLE t DROP x, RENAME TO u", [T, U]),
        ("CREATE INDEX i ON t (a)", [T]),
        ("RENAME TABLE t TO u", [T, U]),
    ],
)
def test_where_it_was_made_before_the_log_that_is_read_nothing_is_taken_for_certain(
    text: str, concerned: list[TableName]
) -> None:
    left = last(text, needs_session=True)
    assert all(isinstance(change, Unfollowed) for change in left.changes)
    assert list(dict.fromkeys(change.name for change in left.changes if isinstance(change, Unfollowed))) == concerned
    assert last("CREATE TEMPORARY TABLE t (a INT)", text, needs_session=True).changes == ()


def test_what_changes_no_shape_stays() -> None:
    assert last("OPTIMIZE TABLE t", needs_session=True) == last("OPTIMIZE TABLE t")


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_table_like_it_has_not_the_columns_of_the_one_behind_it(flavour: Flavour) -> None:
    made, like = "CREATE TEMPORARY TABLE u (a INT)", "CREATE TABLE t LIKE u"
    unknown = (Unfollowed(T, "its columns are those of shop.u, which is or may be a temporary table"),)
    assert last(made, like, flavour=flavour).changes == unknown
    assert last(like, flavour=flavour, needs_session=True).changes == unknown
    assert last(made, like, flavour=flavour, threads=(1, 2)).changes == (statements.CreateLike(T, U),)


def test_from_its_own_session_alone() -> None:
    left = last("CREATE TEMPORARY TABLE t (a INT)", "TRUNCATE t", threads=(1, 2))
    assert left.changes == (TruncateTable(T),)


def test_until_it_is_dropped() -> None:
    left = last("CREATE TEMPORARY TABLE t (a INT)", "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`", "TRUNCATE t")
    assert left.changes == (TruncateTable(T),)


def test_under_its_new_name() -> None:
    made = "CREATE TEMPORARY TABLE t (a INT)", "ALTER TABLE t RENAME TO u"
    assert last(*made, "TRUNCATE t").changes == (TruncateTable(T),)
    assert last(*made, "TRUNCATE u").changes == ()


def test_mysql_renames_the_table_behind_it() -> None:
    made = "CREATE TEMPORARY TABLE t (a INT)"
    assert last(made, "RENAME TABLE t TO v", flavour="mysql").changes != ()


def test_other_tables_of_the_statement_are_left() -> None:
    made = "CREATE TEMPORARY TABLE t (a INT)"
    assert last(made, "ANALYZE TABLE t, u").changes == (NoShapeChange(U, "ANALYZE TABLE"),)
    moved = last(made, "RENAME TABLE t TO v, u TO w").changes
    assert moved == (RenameTables(((U, TableName("shop", "w")),)),)
    assert last(made, "UPDATE t, u SET t.a = 1, u.a = 1").tables == (U,)


def test_create_and_drop_are_of_the_table_behind_it() -> None:
    made = "CREATE TEMPORARY TABLE t (a INT)"
    assert last(made, "DROP TABLE t").changes == (statements.DropTable(T),)
    assert [type(change).__name__ for change in last(made, "CREATE TABLE t (a INT)").changes] == ["CreateTable"]
