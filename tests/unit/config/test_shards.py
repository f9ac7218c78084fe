"""merge_tables in the YAML: which tables are shards, with which values, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from binlake.config import PipelineConfig, TablesConfig
from binlake.config.shards import MergedTable
from binlake.planner.rules import Rules, no_source_column
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import dump, load

ORDERS = {"from": "tenant_%.orders", "into": "all.orders", "source_column": "tenant"}

OF_TWO: dict[str, Any] = {**ORDERS, "sources": ["shop", "us"], "source_name_column": "region", "folder": "company"}


def config(*merged: dict[str, Any], **more: Any) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "shop", "connection": "shop", "server_id": 7},
            "tables": {"include": ["*.*"]},
            "lake": {"path": "/lake"},
            "merge_tables": [*merged],
            **more,
        }
    )


@pytest.mark.parametrize(
    ("pattern", "name", "value"),
    [
        ("tenant_%.orders", TableName("tenant_7", "orders"), "7"),
        ("tenant_%.orders", TableName("tenant_a_b", "orders"), "a_b"),
        ("tenant_%.orders", TableName("tenant_", "orders"), None),
        ("tenant_%.orders", TableName("tenantX7", "orders"), None),
        ("tenant_%.orders", TableName("tenant_7", "orders2"), None),
        ("%.orders", TableName("a", "b.orders"), None),
        ("shop.orders_%", TableName("shop", "orders_2026.1"), "2026.1"),
        ("shop.%", TableName("shop", "x\ny"), "x\ny"),
    ],
)
def test_one_place_varies_and_has_a_character_at_least(pattern: str, name: TableName, value: str | None) -> None:
    place = MergedTable.model_validate({**ORDERS, "from": pattern}).shard(name, "shop")
    assert (place.value if place else None) == value


REGEX = {"from_regex": r"tenant_([0-9]+)\.orders", "into": "all.orders", "source_column": "tenant"}


@pytest.mark.parametrize(
    ("regex", "name", "value"),
    [
        (r"tenant_([0-9]+)\.orders", TableName("tenant_7", "orders"), "7"),
        (r"tenant_([0-9]+)\.orders", TableName("tenant_7x", "orders"), None),
        (r"tenant_([0-9]+)\.orders", TableName("my_tenant_7", "orders"), None),
        (r"tenant_([0-9]+)\.orders", TableName("tenant_7", "orders_old"), None),
        (r"tenant_([0-9]+)\.orders", TableName("tenant_7", "Xorders"), None),
        (r"(.+)\.orders", TableName("a", "b.orders"), None),
        (r"((?:eu|us)_[()\]]*[^)]+)\.orders", TableName("eu_)]x", "orders"), "eu_)]x"),
        (r"([a[]+)\.orders", TableName("[a", "orders"), "[a"),
        (r"([]a]+)\.orders", TableName("a]", "orders"), "a]"),
        (r"([^]a[]+)\.orders", TableName("b(", "orders"), "b("),
        (r"([^]a[]+)\.orders", TableName("a", "orders"), None),
        (r"shop\.orders\-(20[0-9]{2}\.[0-9]+)", TableName("shop", "orders-2026.1"), "2026.1"),
    ],
)
def test_only_what_the_group_matches_is_a_shard(regex: str, name: TableName, value: str | None) -> None:
    place = MergedTable.model_validate({**REGEX, "from_regex": regex}).shard(name, "shop")
    assert (place.value if place else None) == value


def test_a_shard_is_below_the_merged_table_and_no_table_of_the_versions() -> None:
    merging, shard = config(ORDERS), TableName("tenant_7/ü", "orders")
    assert merging.table_path(shard) == "/lake/shop/all/orders/tenant=7~2F~C3~BC"
    assert merging.table_path(TableName("all", "orders")) == "/lake/shop/all/orders"
    assert merging.is_read(shard)
    assert not merging.is_listed(shard)
    assert merging.is_listed(TableName("tenant_7", "users"))
    assert "merge_tables" in merging.taken_by(TableName("all", "orders"))


def test_a_ghost_of_a_shard_is_read_as_the_shard() -> None:
    merging = PipelineConfig.model_validate({**config(ORDERS).model_dump(), "tables": {"include": ["tenant_7.orders"]}})
    shape = merging.excluding(TableName("tenant_7", "_orders_gho"), TableSchema((Column("id", "int"),)))
    assert shape.shard == ("all.orders", "tenant", "7")


@pytest.mark.parametrize(
    ("merged", "more", "why"),
    [
        ([{**ORDERS, "from": "tenant.orders"}], {}, "needs one %"),
        ([{**ORDERS, "from": "%.%"}], {}, "needs one %"),
        ([{**ORDERS, "from": "orders_%"}], {}, "is no table"),
        ([{**ORDERS, "from": "t*_%.orders"}], {}, "only % matches"),
        ([{**REGEX, **ORDERS}], {}, "either from or from_regex"),
        ([{"into": "all.orders", "source_column": "tenant"}], {}, "either from or from_regex"),
        ([{**REGEX, "from_regex": r"tenant_[0-9]+\.orders"}], {}, "needs one group"),
        ([{**REGEX, "from_regex": r"tenant_(?P<n>[0-9]+)\.orders"}], {}, "needs one group"),
        ([{**REGEX, "from_regex": r"tenant_([0-9]+\.orders"}], {}, "needs one group"),
        ([{**REGEX, "from_regex": r"tenant_([0-9]+).orders"}], {}, "only the group may vary"),
        ([{**REGEX, "from_regex": r"tenant_([0-9]+)\.orders(_old)?"}], {}, "only the group may vary"),
        ([{**REGEX, "from_regex": r"tenant_([0-9]+)\.orders|x"}], {}, "only the group may vary"),
        ([{**REGEX, "from_regex": r"tenant_([0-9]+)\.\w"}], {}, "only the group may vary"),
        ([{**REGEX, "from_regex": "tenant_([0-9]+)"}], {}, "is no table"),
        ([{**REGEX, "from_regex": r"([0-9]+)\."}], {}, "is no table"),
        ([{**REGEX, "from_regex": r"tenant_(([0-9])+)\.orders"}], {}, "more than one group"),
        ([{**REGEX, "from_regex": r"tenant_([0-9]*)\.orders"}], {}, "need a character"),
        ([{**REGEX, "from_regex": r"tenant_(*)\.orders"}], {}, "is no regular expression"),
        ([{**REGEX, "from_regex": r"([a-z]+)\.orders"}], {}, "would be one of the shards"),
        ([{**ORDERS, "into": "orders"}], {}, "can't be the name of a table"),
        ([{**ORDERS, "source_column": "the tenant"}], {}, "can't be the name of a column"),
        ([ORDERS, {**ORDERS, "from": "client_%.orders"}], {}, "two entries fill all.orders"),
        ([{**ORDERS, "from": "%.orders"}], {}, "would be one of the shards"),
        ([{**ORDERS, "source_columns": ["a"]}], {}, "Extra inputs"),
        ([{**ORDERS, "sources": ["shop"]}], {}, "go together: write all three, or none"),
        ([{**OF_TWO, "sources": ["shop", "Shop"]}], {}, "each is named once"),
        ([{**OF_TWO, "folder": "SHOP"}], {}, "is the folder of a source"),
        ([{**OF_TWO, "source_name_column": "Tenant"}], {}, "are two columns"),
        ([{**OF_TWO, "sources": ["eu", "us"]}], {}, "that fill all.orders are eu, us, without shop"),
        ([ORDERS], {"type_widening": True}, "don't go together"),
    ],
)
def test_what_can_t_be_exact_is_refused(merged: list[dict[str, str]], more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        config(*merged, **more)


def test_tables_has_no_such_key_in_the_yaml() -> None:
    with pytest.raises(ValidationError, match="write merge_tables at the top"):
        config(tables={"include": ["*.*"], "merge_tables": [ORDERS]})


def test_a_batch_freezes_it_and_older_metadata_have_none() -> None:
    merging = config(ORDERS)
    assert load(TablesConfig, dump(merging.tables)) == merging.tables
    assert load(TablesConfig, {"include": ["*.*"]}) == config().tables
    assert PipelineConfig.model_validate(merging.model_dump()) == merging


def test_a_table_that_becomes_a_shard_is_copied_again() -> None:
    shape, name = TableSchema((Column("id", "int"),), ("id",), "primary"), TableName("tenant_7", "orders")
    alone, merged = config(), config(ORDERS)
    recorded = alone.excluding(name, shape)
    assert recorded.fingerprint == merged.excluding(name, shape).fingerprint
    assert Rules.of(merged).reads_otherwise(name, recorded) == (
        "merge_tables makes it a part of all.orders with tenant = '7', and it was snapshotted as a table by itself"
    )
    assert Rules.of(alone).reads_otherwise(name, merged.excluding(name, shape)).startswith("merge_tables makes it a t")
    assert not Rules.of(alone).reads_otherwise(name, recorded)


def test_a_shard_has_no_column_of_the_source_column_s_name() -> None:
    merged, name = config(ORDERS), TableName("tenant_7", "orders")
    shape = merged.excluding(name, TableSchema((Column("id", "int"), Column("Tenant", "int")), ("id",), "primary"))
    refused = Rules.of(merged).refused_mode(name, shape)
    assert refused is not None
    assert "'Tenant' has the name of the source_column" in refused.reason


def test_a_table_of_several_sources_is_in_a_folder_beside_theirs() -> None:
    merging = config(OF_TWO)
    assert merging.table_path(TableName("all", "orders")) == "/lake/company/all/orders"
    assert merging.table_path(TableName("tenant_7", "orders")) == "/lake/company/all/orders/region=shop.tenant=7"
    assert merging.table_path(TableName("crm", "people")) == "/lake/shop/crm/people"


def test_a_shard_of_several_sources_is_another_one_than_before_and_has_neither_source_column() -> None:
    name = TableName("tenant_7", "orders")
    shape = TableSchema((Column("id", "int"), Column("Region", "int")), ("id",))
    of_two, alone = config(OF_TWO), config(ORDERS)
    assert "which several sources fill in company" in Rules.of(of_two).reads_otherwise(
        name, alone.excluding(name, shape)
    )
    assert no_source_column(of_two.excluding(name, shape), of_two.invalid) == (
        "its column 'Region' has the name of the source_name_column of merge_tables"
    )


def test_what_is_read_of_tables_of_one_source_has_the_same_mark_as_before() -> None:
    assert config(ORDERS).reading != config(OF_TWO).reading
