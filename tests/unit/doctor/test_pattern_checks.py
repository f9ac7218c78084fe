"""Patterns of the YAML that name nothing."""

from __future__ import annotations

from binlake.config import PipelineConfig
from binlake.doctor.pattern_checks import excluded_tables
from binlake.schema.table import TableName


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
