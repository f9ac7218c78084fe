"""What a statement says of a column that doesn't leave the server is left out of its text."""

from __future__ import annotations

import pytest

from binlake.ddl import redaction, statements
from binlake.ddl.redaction import redacted
from binlake.schema.table import TableName

EXCLUDED = {"secret"}
SAID = [
    ("CREATE TABLE t (id INT, `Secret` VARCHAR(30) DEFAULT 'hush', v DECIMAL(10,2) DEFAULT 4711)",
     "CREATE TABLE t (id INT, `Secret` VARCHAR(30) DEFAULT '***', v DECIMAL(10,2) DEFAULT 0)"),
    ("ALTER TABLE t ALTER secret SET DEFAULT 4711", "ALTER TABLE t ALTER secret SET DEFAULT 0"),
    ("ALTER TABLE t ADD secret INT DEFAULT (7 + LENGTH('hush'))",
     "ALTER TABLE t ADD secret INT DEFAULT (0 + LENGTH('***'))"),
    ("ALTER TABLE t MODIFY secret ENUM('hush','b') DEFAULT 'hush'",
     "ALTER TABLE t MODIFY secret ENUM('***','***') DEFAULT '***'"),
    ("ALTER TABLE t ADD CHECK ('hush' <> secret AND 4711 > v)", "ALTER TABLE t ADD CHECK ('***' <> secret AND 0 > v)"),
    ("ALTER TABLE t ADD secret INT /* was 4711 */ DEFAULT -4711", "ALTER TABLE t ADD secret INT DEFAULT -0"),
    ("ALTER TABLE t ADD secret INT /*!50000 DEFAULT 4711 */", "ALTER TABLE t ADD secret INT DEFAULT 0 "),
    ("ALTER TABLE t ADD secret BIT(4) DEFAULT b'1011', ADD w BLOB DEFAULT x'4711'",
     "ALTER TABLE t ADD secret BIT(4) DEFAULT '***', ADD w BLOB DEFAULT '***'"),
    ("ALTER TABLE t PARTITION BY LIST (secret) (PARTITION p VALUES IN (4711))",
     "ALTER TABLE t PARTITION BY LIST (secret) (PARTITION p VALUES IN (0))"),
    ("ALTER TABLE t ADD secret INT DEFAULT 4711 'hush", "ALTER …"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), SAID)
def test_a_statement_that_names_such_a_column_has_no_literals(text: str, said: str) -> None:
    assert " ".join(redacted(text, EXCLUDED, sql_mode=0, flavour="mysql").split()) == " ".join(said.split())


@pytest.mark.parametrize("text", ["ALTER TABLE t ADD v INT DEFAULT 4711 COMMENT 'secret'", "DROP TABLE t /* secret */"])
def test_any_other_statement_stays_as_it_is(text: str) -> None:
    assert redacted(text, EXCLUDED, sql_mode=0, flavour="mysql") == text
    assert redacted(text, (), sql_mode=0, flavour="mysql") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "CREATE TABLE t (id INT, secret VARCHAR(30) DEFAULT 'zq' COMMENT 'zq', n INT DEFAULT 5, k ENUM('a'))",
            "CREATE TABLE t (id INT, secret VARCHAR(30) DEFAULT '***' COMMENT '***', n INT DEFAULT 5, k ENUM('a'))",
        ),
        (
            "ALTER TABLE t ADD (a INT DEFAULT 7, SECRET INT DEFAULT 8), ADD g INT AS (`secret` + 5), ADD b INT",
            "ALTER TABLE t ADD (a INT DEFAULT 7, SECRET INT DEFAULT 0), ADD g INT AS (`secret` + 0), ADD b INT",
        ),
        (
            "ALTER TABLE t MODIFY secret ENUM('zq', 'yq') DEFAULT 'zq', ADD x INT DEFAULT 5 /* zq */",
            "ALTER TABLE t MODIFY secret ENUM('***', '***') DEFAULT '***', ADD x INT DEFAULT 5 ",
        ),
        ("ALTER TABLE t ALTER secret SET DEFAULT '1987-06-05'", "ALTER TABLE t ALTER secret SET DEFAULT '2000-01-01'"),
        (
            "ALTER TABLE t ADD PARTITION (PARTITION p VALUES IN ('zq'))",
            "ALTER TABLE t ADD PARTITION (PARTITION p VALUES IN ('***'))",
        ),
        ("ALTER TABLE t ADD n INT DEFAULT 5", "ALTER TABLE t ADD n INT DEFAULT 5"),
    ],
)
def test_literals_go_where_the_definition_of_a_withheld_column_has_them(text: str, shown: str) -> None:
    assert redaction.without_values(text, {"secret"}, sql_mode=0, flavour="mysql") == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ALTER TABLE t ALTER n SET DEFAULT 5, ALTER secret SET DEFAULT 'zq, t yq",
         "ALTER TABLE t ALTER n SET DEFAULT 0, ALTER secret SET DEFAULT /* t"),
        ("ALTER TABLE t ADD n INT /* zq", "ALTER TABLE t ADD n INT /*"),
        ("CREATE TABLE t (id INT DEFAULT (" + "1+" * 100_000 + " zq)) /* t */", None),
    ],
    ids=["a quote that never ends", "a comment that never ends", "too long"],
)  # fmt: skip
def test_a_text_that_cant_be_read_to_its_end_stays_so_without_values(text: str, shown: str | None) -> None:
    t = TableName("shop", "t")
    made = redaction.without_values(text, {"secret"}, sql_mode=0, flavour="mysql", tables=[t])
    assert shown is None or made == shown
    assert "zq" not in made
    before, after = (statements.parse(each, database="shop", sql_mode=0, flavour="mysql") for each in (text, made))
    assert (after.kind, after.tables, after.may_concern_any, after.is_cut) == (
        before.kind, before.tables, before.may_concern_any, before.is_cut,
    )  # fmt: skip
    assert statements.named_in(made, [t]) == [t]


def test_all_literals_go_where_no_column_is_named() -> None:
    shown = redaction.without_values("INSERT INTO t VALUES ('zq', 5, x'aa')", None, sql_mode=0, flavour="mysql")
    assert shown == "INSERT INTO t VALUES ('***', 0, '***')"


def test_a_column_that_is_put_behind_a_withheld_one_keeps_its_default() -> None:
    text = "ALTER TABLE t ADD n INT DEFAULT 7 AFTER password, MODIFY password INT DEFAULT 5 AFTER id"
    shown = "ALTER TABLE t ADD n INT DEFAULT 7 AFTER password, MODIFY password INT DEFAULT 0 AFTER id"
    assert redaction.without_values(text, {"password"}, sql_mode=0, flavour="mysql") == shown


@pytest.mark.parametrize(
    ("text", "withheld"),
    [
        ("ALTER TABLE t ADD w INT DEFAULT 7 AFTER Secret", "secret"),
        ("ALTER TABLE t ADD w INT DEFAULT 7 AFTER t.secret, MODIFY v INT DEFAULT 8 AFTER `secret`", "secret"),
        ("ALTER TABLE secret ADD w INT DEFAULT 7", "secret"),
        ("ALTER TABLE IF EXISTS secret ADD COLUMN IF NOT EXISTS w INT DEFAULT 7", "secret"),
        ("ALTER TABLE t ADD w DATE DEFAULT '2020-05-05', ADD u INT DEFAULT 8 COMMENT 'x'", "date"),
        ("ALTER TABLE t ADD w INT DEFAULT 7 COMMENT 'x', CHANGE u x INT DEFAULT 8 COMMENT 'y'", "comment"),
        ("CREATE TABLE secret (id INT DEFAULT 7, d DATE DEFAULT (DATE('2020-05-05')))", "date"),
        ("CREATE TABLE secret (id INT DEFAULT 7)", "secret"),
    ],
)
def test_literals_of_other_columns_stay_whatever_else_has_a_withheld_columns_name(text: str, withheld: str) -> None:
    assert redaction.without_values(text, {withheld}, sql_mode=0, flavour="mysql") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ALTER TABLE t CHANGE COLUMN a secret INT DEFAULT 7", "ALTER TABLE t CHANGE COLUMN a secret INT DEFAULT 0"),
        ("ALTER TABLE t CHANGE secret a INT DEFAULT 7", "ALTER TABLE t CHANGE secret a INT DEFAULT 0"),
        ("ALTER TABLE t ALTER COLUMN secret SET DEFAULT 7", "ALTER TABLE t ALTER COLUMN secret SET DEFAULT 0"),
        (
            "ALTER TABLE t ADD IF NOT EXISTS secret INT DEFAULT 7",
            "ALTER TABLE t ADD IF NOT EXISTS secret INT DEFAULT 0",
        ),
        (
            "ALTER TABLE t ADD w INT DEFAULT 7 CHECK (secret > 5)",
            "ALTER TABLE t ADD w INT DEFAULT 7 CHECK (secret > 0)",
        ),
        ("CREATE TABLE t (id INT, CHECK (secret IN (1)))", "CREATE TABLE t (id INT, CHECK (secret IN (0)))"),
        (
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS (secret INT DEFAULT 7, n INT DEFAULT 4)",
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS (secret INT DEFAULT 0, n INT DEFAULT 4)",
        ),
        (
            "ALTER TABLE t ADD kind ENUM('a', 'b') DEFAULT ('a') CHECK (kind <> 'c' OR (kind <> secret))",
            "ALTER TABLE t ADD kind ENUM('a', 'b') DEFAULT ('a') CHECK (kind <> '***' OR (kind <> secret))",
        ),
    ],
)
def test_literals_go_wherever_a_withheld_column_is_defined_or_compared(text: str, shown: str) -> None:
    assert redaction.without_values(text, {"secret"}, sql_mode=0, flavour="mysql") == shown
