"""The language of the servers' test files: what reaches a server, and what doesn't."""

from __future__ import annotations

import pytest

from strangers.harmful import reason_to_skip
from strangers.script import (
    Block,
    Connect,
    Count,
    Disconnect,
    Exit,
    Let,
    Source,
    Statement,
    Step,
    Switch,
    steps_of,
)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("CREATE TABLE t1 (a INT);\nCOMMIT;", [Statement("CREATE TABLE t1 (a INT)"), Statement("COMMIT")]),
        ("# a comment; of one line\n-- and another; one\nBEGIN;", [Statement("BEGIN")]),
        ("INSERT INTO t1\nVALUES ('a;b', \"c;d\", 'it\\'s;', `e;`);",
         [Statement("INSERT INTO t1\nVALUES ('a;b', \"c;d\", 'it\\'s;', `e;`)")]),
        ("delimiter |;\nCREATE PROCEDURE p() BEGIN SELECT 1; END|\ndelimiter ;|\nCALL p();",
         [Statement("CREATE PROCEDURE p() BEGIN SELECT 1; END"), Statement("CALL p()")]),
        ("--delimiter //\nBEGIN//\n--delimiter ;\nCOMMIT;", [Statement("BEGIN"), Statement("COMMIT")]),
        ("--error ER_DUP_ENTRY, 1062\nINSERT INTO t1 VALUES (1);", [Statement("INSERT INTO t1 VALUES (1)")]),
        ("--eval SET @a = $b\neval SET @a = $c;", [Statement("SET @a = $b", True), Statement("SET @a = $c", True)]),
        ("let $a= 5;\n--let $b = `SELECT 1`", [Let("a", "5"), Let("b", "`SELECT 1`")]),
        ("inc $a;\n--dec $a", [Count("a", 1), Count("a", -1)]),
        ("--source include/have_innodb.inc\nsource a.inc;", [Source("include/have_innodb.inc"), Source("a.inc")]),
        ("connect (con1,localhost,root,,db1);\nconnection default;\n--disconnect con1",
         [Connect("con1", "db1"), Switch("default"), Disconnect("con1")]),
        ("sync_slave_with_master;", [Switch("slave")]),
        ("--source include/rpl/sync_to_replica.inc", [Switch("slave")]),
        ("send UPDATE t1 SET a = 1;\n--reap", [Statement("UPDATE t1 SET a = 1")]),
        ("--disable_query_log\n--sorted_result\necho Hello; disable_warnings;\n--exit", [Exit()]),
        ("--perl\nprint 'x;';\nEOF\nBEGIN;", [Statement("BEGIN")]),
        ("--write_file $DIR/a.txt\nx;\nEOF\n--append_file $DIR/a.txt END\ny;\nEND\nBEGIN;", [Statement("BEGIN")]),
        ("CREATE TABLE unended (a INT)", [Statement("CREATE TABLE unended (a INT)")]),
    ],
)  # fmt: skip
def test_steps_of_a_file(text: str, steps: list[Step]) -> None:
    assert list(steps_of(text)) == steps


def test_blocks_hold_their_steps() -> None:
    text = "while ($i)\n{\n  BEGIN;\n  if (`SELECT f(1) = ')'`) { COMMIT; }\n  dec $i;\n}\nROLLBACK;"
    inner = Block(False, "`SELECT f(1) = ')'`", (Statement("COMMIT"),))
    assert steps_of(text) == (Block(True, "$i", (Statement("BEGIN"), inner, Count("i", -1))), Statement("ROLLBACK"))


@pytest.mark.parametrize(
    "statement",
    ["SHUTDOWN", "reset binary logs and gtids", "/* x */ KILL 5", "SET GLOBAL binlog_format = STATEMENT",
     "set @@global.read_only=1", "SET SESSION sql_log_bin=0", "LOAD DATA INFILE 'x' INTO TABLE t", "DROP USER u@h",
     "SELECT 1 INTO OUTFILE 'x'", "UPDATE mysql.user SET a = 1", "FLUSH TABLES WITH READ LOCK", "SELECT * FROM t1",
     "(SELECT 1)", "SHOW TABLES", "DROP DATABASE mysql", "USE mysql", "GRANT ALL ON *.* TO root@localhost"],
)  # fmt: skip
def test_what_would_harm_the_run_or_only_reads_is_skipped(statement: str) -> None:
    assert reason_to_skip(statement, set())


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE t1 (a INT)", "CREATE TABLE t2 SELECT a FROM t1", "SET SESSION sql_mode = ''",
     "SET GLOBAL time_zone = '+01:00'", "FLUSH TABLES",
     "/*!50000 INSERT INTO t1 VALUES (1) */", "SELECT f1(5)", "SELECT 1 INTO @a", "SELECT NEXTVAL(s)", "CALL p()",
     "DROP DATABASE mysqltest", "WITH a AS (SELECT 1) DELETE FROM t1", "XA PREPARE 'a'", "FLUSH BINARY LOGS"],
)  # fmt: skip
def test_what_may_change_rows_is_fed(statement: str) -> None:
    assert reason_to_skip(statement, {"f1"}) is None


def test_a_table_is_not_created_from_what_a_function_gives() -> None:
    assert reason_to_skip("CREATE TABLE t2 AS SELECT F1(a) FROM t1", {"f1"})
