"""Patterns of the YAML that name nothing."""

from __future__ import annotations

from binlake.config import PipelineConfig
from binlake.doctor.pattern_checks import excluded_tables, masks
from binlake.schema.mask import Mask
from binlake.schema.table import Column, TableName, TableSchema
from binlake.source.catalog import SourceTable


def test_a_table_to_be_excluded_that_is_not_there_is_a_warning() -> None:
    exclude = ["shop.secret", "shop.tmp_*", "shop.Secret", "crm.*", "shop.secrets", "SYS.*", "*.cache"]
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "shop", "connection": "shop_mysql", "server_id": 4001},
            "lake": {"path": "/lake"},
            "tables": {"include": ["shop.*"], "exclude": exclude},
        }
    )
    visible = [TableName("shop", "secret"), TableName("shop", "orders"), TableName("crm", "people")]
    checks = list(excluded_tables(config, visible))
    assert {(check.name, check.ok) for check in checks} == {("tables.exclude", "warn")}
    missed = ["shop.tmp_*", "shop.Secret", "shop.secrets", "*.cache"]
    assert [check.found for check in checks] == [f"no table that the account sees matches {name}" for name in missed]


def test_each_column_that_is_another_in_the_lake_is_said() -> None:
    columns = (
        Column("order_id", "bigint", unsigned=True, server_name="id", lake_type="bigint"),
        Column("mail", "varchar", length=40, charset="utf8mb4", mask=Mask("hash", 32, "k"), server_name="email"),
        Column("n", "int"),
    )
    table = SourceTable(TableName("shop", "users"), "BASE TABLE", "InnoDB", 1, 1, TableSchema(columns, ("order_id",)))
    assert {(check.name, check.found) for check in masks([table])} == {
        ("column shop.users.id", "called order_id, BIGINT in the lake"),
        ("column shop.users.email", "hash of 32 digits, as char(32), called mail"),
    }
