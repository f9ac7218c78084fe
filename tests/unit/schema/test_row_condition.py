"""Conditions over a table's columns: what is understood, what the server is asked, and which rows they are true for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from binlake.schema.row_condition import (
    RefusedCondition,
    beyond_snapshot,
    columns_of_conditions,
    parsed,
    refusal,
    server_condition,
    server_sql,
)
from binlake.schema.row_matching import RowMatcher
from binlake.schema.table import Column, TableSchema

GENERAL_CI, BIN, AI_CI = 45, 46, 255
COLUMNS = (
    Column("id", "int", nullable=False),
    Column("tenant", "bigint"),
    Column("price", "decimal", precision=9, scale=2),
    Column("Status", "varchar", length=20, charset="utf8mb4"),
    Column("code", "varchar", length=20, charset="utf8mb4"),
    Column("kind", "enum", charset="utf8mb4", values=("Draft", "open")),
    Column("day", "date"),
    Column("doc", "json"),
)
COLLATIONS = (0, 0, 0, AI_CI, BIN, GENERAL_CI, 0, 0)
SHAPE = TableSchema(COLUMNS, ("id",), "primary", frozenset({"code"}))
ARROW = {
    "id": pa.int32(), "tenant": pa.int64(), "price": pa.decimal128(9, 2), "Status": pa.string(), "code": pa.string(),
    "kind": pa.string(), "day": pa.date32(), "day__text": pa.string(), "doc": pa.string(),
}  # fmt: skip


def matched(condition: str, *rows: dict[str, Any]) -> list[bool | None]:
    """For each row whether it meets the condition; None where that is undecided."""
    images = pa.array([{name: row.get(name) for name in ARROW} for row in rows], pa.struct(list(ARROW.items())))
    found = RowMatcher(condition, COLUMNS, COLLATIONS).matched(images)
    undecided = [False] * len(rows) if found.undecided is None else found.undecided.tolist()
    return [None if open_ else met for met, open_ in zip(found.met.tolist(), undecided, strict=True)]


@pytest.mark.parametrize(
    ("condition", "sql"),
    [
        ("status <> 'it''s' AND tenant in (1, -2)", "((`Status` <> 'it''s') AND (`tenant` IN (1, -2)))"),
        ("not id = 1 or 5>id", "((NOT (`id` = 1)) OR (`id` < 5))"),
        ("day between '2026-01-01' and '2026-01-31'", "((`day` >= DATE'2026-01-01') AND (`day` <= DATE'2026-01-31'))"),
        ("doc is not null and (`tenant` <=> 1)", "((NOT (`doc` IS NULL)) AND (`tenant` <=> 1))"),
        ("tenant -- a comment", "(`tenant` <> 0)"),
    ],
)
def test_the_server_is_asked_what_no_setting_of_a_session_changes(condition: str, sql: str) -> None:
    assert server_sql(parsed(condition), SHAPE) == sql


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("", "ends in the middle"),
        ("id =", "ends in the middle"),
        ("LOWER(status) = 'a'", "LOWER(…)"),
        ("day > NOW()", "NOW(…)"),
        ("id IN (SELECT id FROM u)", "isn't understood"),
        ("EXISTS (SELECT 1)", "other rows"),
        ("other.id = 1", "the column's name alone"),
        ("id = tenant", "not with 'tenant'"),
        ("id = NULL", "IS NULL"),
        ("id = 1; DROP TABLE t", "isn't understood"),
        ("status LIKE 'a%'", "'LIKE' isn't understood"),
        ("id = 1e5", "without an exponent"),
        ("(" * 70 + "id" + ")" * 70, "levels deep"),
        ("status = 'a", "never ends"),
        ("id = @a", "isn't understood"),
        ("status = 'a' COLLATE utf8mb4_bin", "isn't understood"),
    ],
)
def test_what_may_differ_in_the_log_is_refused(condition: str, why: str) -> None:
    with pytest.raises(RefusedCondition, match=why.replace("(", r"\(").replace(")", r"\)")):
        parsed(condition)


@pytest.mark.parametrize(
    ("column", "condition", "why"),
    [
        (Column("flag", "tinyint", lake_type="boolean"), "flag = 5", "the type that columns in the YAML gives it"),
        (Column("flag", "tinyint", lake_type="boolean"), "flag = 1", ""),
        (Column("flag", "tinyint"), "flag = 5", ""),
        (Column("n", "bigint", unsigned=True, lake_type="bigint"), "n > 9223372036854775808", "the YAML gives it"),
        (Column("n", "bigint", unsigned=True, lake_type="bigint"), "n > 9223372036854775807", ""),
    ],
)
def test_a_constant_fits_the_type_that_the_column_has_in_the_lake(column: Column, condition: str, why: str) -> None:
    shape = replace(SHAPE, columns=(*SHAPE.columns, column), where=condition)
    assert why in refusal(shape)
    assert bool(refusal(shape)) == bool(why)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("id = '1'", "write a number without quotes"),
        ("tenant = 1.5", "a whole number that it can hold"),
        ("id = 2147483648", "a whole number that it can hold"),
        ("status = 1", "in quotes"),
        ("status > 'a'", "whose order isn't known"),
        ("status = 'ä'", "ASCII"),
        ("day = '2026-02-30'", "a date that there is"),
        ("day = '2026-1-1'", "a date that there is"),
        ("doc = 'a'", "asked for NULL"),
        ("code = 'a'", "is excluded"),
        ("nothing = 1", "no column 'nothing'"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(condition: str, why: str) -> None:
    assert why in refusal(replace(SHAPE, where=condition))
    assert why in refusal(replace(SHAPE, snapshot_where=condition))


def test_values_are_three() -> None:
    rows = {"tenant": 1, "id": 1}, {"tenant": 2, "id": 1}, {"id": 1}
    assert matched("tenant = 1", *rows) == [True, False, False]
    assert matched("NOT tenant = 1", *rows) == [False, True, False]
    assert matched("tenant <> 1 OR id = 1", *rows) == [True, True, True]
    assert matched("NOT (tenant <=> 1)", *rows) == [False, True, True]
    assert matched("tenant NOT IN (2, 3)", *rows) == [True, False, False]


def test_texts_compare_by_their_collation() -> None:
    texts = [{"Status": text, "code": text} for text in ("draft", "DRAFT", "draft ", "dräft", "größer", "dräfts")]
    assert matched("status = 'draft'", *texts) == [True, True, False, None, False, False]
    assert matched("code <> 'draft'", *texts) == [False, True, False, True, True, True]
    assert matched("status = 'draft' AND id = 1", *({**text, "id": 2} for text in texts)) == [False] * 6
    assert matched("kind IN ('draft')", {"kind": "Draft"}, {"kind": "open"}, {"kind": ""}) == [True, False, False]


def test_an_invalid_date_has_no_order_and_is_not_null() -> None:
    rows = {"day": None, "day__text": "0000-00-00"}, {"day": None}
    assert matched("day < '2026-01-01'", *rows) == [None, False]
    assert matched("day IS NULL", *rows) == [False, True]


def test_a_collation_that_is_not_known_is_refused() -> None:
    with pytest.raises(RefusedCondition, match="number 236"):
        RowMatcher("status = 'a'", COLUMNS, (0, 0, 0, 236, BIN, GENERAL_CI, 0, 0))
    conditions = replace(SHAPE, where="status = 'a' OR ID = 1", snapshot_where="tenant = 2")
    assert columns_of_conditions(conditions) == {"status", "id", "tenant"}


def test_what_a_snapshot_copies_and_what_is_beyond_it() -> None:
    both = replace(SHAPE, where="tenant = 1", snapshot_where="day >= '2026-01-01'")
    assert server_condition(both) == "IF((`tenant` = 1), 1, 0) AND IF((`day` >= DATE'2026-01-01'), 1, 0)"
    assert beyond_snapshot(both) == "IF((`tenant` = 1), 1, 0) AND IF((`day` >= DATE'2026-01-01'), 0, 1)"
