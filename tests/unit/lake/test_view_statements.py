"""Statements that create views of one version, by dialect."""

from __future__ import annotations

import pytest
import sqlglot

from binlake.errors import UsageError
from binlake.lake.table_at import TableAt
from binlake.lake.view_statements import named_views, statements
from binlake.schema.table import TableName

ORDERS = TableAt.of("s3a://bucket/lake/shop", TableName("shop", "orders"), 17)
ODD = TableAt.of("/data/it's/shop", TableName("Shop", 'Odd `n"ame'), 3)


@pytest.mark.parametrize(
    ("dialect", "view"),
    [
        (
            "spark",
            "CREATE OR REPLACE VIEW `shop__at_month_end`.`orders` AS SELECT * FROM "
            "delta.`s3a://bucket/lake/shop/shop/orders` VERSION AS OF 17",
        ),
        (
            "databricks",
            "CREATE OR REPLACE VIEW `shop__at_month_end`.`orders` AS SELECT * FROM "
            "delta.`s3://bucket/lake/shop/shop/orders` VERSION AS OF 17",
        ),
        (
            "duckdb",
            'CREATE OR REPLACE VIEW "shop__at_month_end"."orders" AS SELECT * FROM '
            "delta_scan('s3://bucket/lake/shop/shop/orders', version => 17)",
        ),
        (
            "trino",
            'CREATE OR REPLACE VIEW delta."shop__at_month_end"."orders" AS SELECT * FROM '
            'delta."shop"."orders" FOR VERSION AS OF 17',
        ),
    ],
)
def test_a_view_is_of_one_version(dialect: str, view: str) -> None:
    assert statements(dialect, named_views([ORDERS], "month_end"))[-1] == view


def test_odd_names_are_quoted_and_made_plain() -> None:
    shown = named_views([ODD], "17")
    assert statements("spark", shown)[-1] == (
        "CREATE OR REPLACE VIEW `shop__at_17`.`odd__n_ame` AS SELECT * FROM "
        "delta.`/data/it's/shop/Shop/Odd ``n\"ame` VERSION AS OF 3"
    )
    assert statements("duckdb", shown)[-1] == (
        'CREATE OR REPLACE VIEW "shop__at_17"."odd__n_ame" AS SELECT * FROM '
        "delta_scan('/data/it''s/shop/Shop/Odd `n\"ame', version => 3)"
    )


PEOPLE = TableAt.of("/lake", TableName("crm", "people"), 5)


@pytest.mark.parametrize("dialect", ["spark", "databricks", "trino"])  # DuckDB runs them in test_other_readers.py
def test_databases_come_before_their_views(dialect: str) -> None:
    """sqlglot parses what can't be run here."""
    made = statements(dialect, named_views([ORDERS, ODD, PEOPLE], "17"))
    parsed = [sqlglot.parse_one(text, dialect=dialect) for text in made]
    created = [(statement.args["kind"], statement.this.sql(dialect)) for statement in parsed]
    assert [kind in ("DATABASE", "SCHEMA") for kind, _ in created] == [True, True, False, False, False]
    assert ["__at_17" in name for _, name in created] == [True] * 5


def test_the_database_may_be_another() -> None:
    (view,) = named_views([ORDERS], "17", "{database}")
    assert (view.database, view.name) == ("shop", "orders")
    for wrong in ("{day}", "{database.name}", "{0}", "{"):
        with pytest.raises(UsageError, match="isn't a pattern"):
            named_views([ORDERS], "17", wrong)


def test_two_views_of_one_name_are_refused() -> None:
    other = TableAt.of("/lake", TableName("shop", "Orders"), 1)
    with pytest.raises(UsageError, match=r"shop__at_17\.orders would be shop\.orders and shop\.Orders"):
        named_views([ORDERS, other], "17")
