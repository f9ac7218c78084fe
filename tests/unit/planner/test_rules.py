"""What counts as a change of the YAML for one table."""

from __future__ import annotations

from typing import Any

import pytest

from binlake.config import PipelineConfig
from binlake.errors import SNAPSHOTTED_BY_ITSELF, ConfigurationError
from binlake.planner.rules import Rules
from binlake.planner.steps import LEFT_OUT, Life, Standstill, Status
from binlake.position import Position
from binlake.schema.invalid import FAIL, InvalidValues
from binlake.schema.table import Column, TableName, TableSchema, Virtual

HERE = Position("server", "binlog.000001", 100, 1)
T = TableName("shop", "t")
ID = Column("id", "int", nullable=False)
NAME = Column("name", "varchar", length=20, charset="utf8mb4")
UNTOLD = Column("v", "datetime", virtual=Virtual("from_unixtime ( `id` )", "mysql"))


def config(tables: dict[str, Any] | None = None, **options: Any) -> PipelineConfig:
    asked = {"include": ["shop.*"], **(tables or {})}
    source = {"name": "s", "connection": "c", "server_id": 1}
    return PipelineConfig.model_validate({"source": source, "tables": asked, "lake": {"path": "/lake"}, **options})


def life(config: PipelineConfig, *columns: Column, status: Status = "following", name: TableName = T) -> Life:
    """As it was read under that configuration."""
    schema = config.excluding(name, TableSchema((ID, *columns), ("id",), "primary"))
    return Life("life", name, schema, HERE, HERE, status)


def stands(before: PipelineConfig, now: PipelineConfig, *columns: Column) -> tuple[Status, str]:
    changed = Rules.of(now).under(life(before, *columns))
    return changed.status, changed.reason


@pytest.mark.parametrize(
    ("tables", "options"),
    [
        ({"include": ["shop.t", "shop.u*"]}, {}),
        ({"exclude": ["shop.audit_*"]}, {}),
        ({"exclude_columns": ["*.*.password", "shop.u.name"]}, {}),
        ({}, {"invalid_dates": "keep_text"}),
        ({}, {"policies": {"on_untold_column": "stop", "on_drop_column": "keep", "without_key": "append"}}),
        ({}, {"type_widening": True, "merge": {"without_spark_mb": 0}, "page": {"mask_columns": ["shop.t.name"]}}),
    ],
)
def test_what_gives_the_table_nothing_else_is_no_change(tables: dict[str, Any], options: dict[str, Any]) -> None:
    before = life(config(), NAME)
    assert Rules.of(config(tables, **options)).under(before) is before


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        ({}, {"exclude_columns": ["shop.*.NAME"]}, "leaves out column 'name', which the lake still has"),
        ({"exclude_columns": ["shop.?.Name"]}, {}, "no longer leaves out column 'name'"),
    ],
)
def test_columns(before: dict[str, Any], now: dict[str, Any], why: str) -> None:
    status, reason = stands(config(before), config(now), NAME)
    assert status == "resnapshot"
    assert why in reason


def test_policies_on_invalid_values() -> None:
    keeping = config(invalid_text="keep_bytes", invalid_dates="keep_text")
    assert stands(config(), keeping, NAME) == (
        "resnapshot", "invalid_text is keep_bytes in the YAML, and its rows were read under fail"
    )  # fmt: skip
    assert stands(keeping, config(), Column("d", "date"))[1].startswith("invalid_dates is fail in the YAML")
    assert life(keeping, NAME).schema.invalid == InvalidValues("keep_text", "keep_bytes")
    assert life(keeping, NAME).fingerprint == life(config(), NAME).fingerprint


def test_an_older_lake_does_not_say_its_policies() -> None:
    before = Life("life", T, TableSchema((ID, NAME), ("id",), "primary"), HERE, HERE)
    assert before.schema.invalid is None
    assert Rules.of(config(invalid_text="keep_bytes")).under(before) is before


def test_a_column_that_the_log_does_not_tell() -> None:
    strict = config(policies={"tables": {"shop.t": {"on_untold_column": "stop"}}})
    assert stands(config(), strict, UNTOLD)[0] == "stopped"
    assert stands(config(), strict, NAME)[0] == "following"
    excluded = config({"exclude_columns": ["shop.t.v"]})
    followed = Rules.of(excluded).under(life(config(), UNTOLD))
    assert followed.status == "following", "the lake goes without it anyway"
    assert followed.schema.excluded == frozenset({"v"})


def test_a_table_leaves_and_comes_back() -> None:
    out, back = Rules.of(config({"exclude": ["shop.t"]})), Rules.of(config())
    stopping = Rules.of(config(policies={"on_unfollowable": "stop"}))
    gone = out.under(life(config()))
    assert (gone.status, gone.standstill) == ("excluded", LEFT_OUT)
    assert out.under(gone) is gone
    asked, stopped = back.under(gone), stopping.under(gone)
    assert (asked.status, asked.remedy) == ("resnapshot", SNAPSHOTTED_BY_ITSELF)
    assert (stopped.status, "table resume" in stopped.remedy) == ("stopped", True)
    files = Rules.of(
        config().model_copy(update={"source": config().source.model_copy(update={"connection": "file:/f"})})
    )
    assert files.under(gone).status == "stopped"


@pytest.mark.parametrize(
    ("status", "out"),
    [("stopped", "excluded"), ("resnapshot", "excluded"), ("paused", "paused"), ("dropped", "dropped")],
)
def test_a_table_that_does_not_follow_leaves(status: Status, out: Status) -> None:
    assert Rules.of(config({"exclude": ["shop.t"]})).under(life(config(), status=status)).status == out


def test_a_ghost_goes_with_its_table() -> None:
    ghost = life(config({"include": ["shop.t"]}), name=TableName("shop", "_t_gho"))
    assert Rules.of(config({"include": ["shop.t"]})).under(ghost) is ghost
    gone = Rules.of(config({"include": ["shop.u"]})).under(ghost)
    assert gone.status == "excluded"
    assert Rules.of(config({"include": ["shop.t"]})).under(gone).status == "stopped"  # until it takes the table's name


def test_the_key_can_not_be_excluded() -> None:
    with pytest.raises(ConfigurationError, match="'id' can't be excluded"):
        Rules.of(config({"exclude_columns": ["shop.t.id"]})).under(life(config()))


def test_the_standstill_of_an_asked_table_keeps_its_place() -> None:
    standstill = Standstill("why", "", "binlog.000001", 100)
    standstill_of_table = Rules(lambda name: True).unfollowable(life(config()), standstill).standstill
    assert standstill_of_table == Standstill("why", SNAPSHOTTED_BY_ITSELF, "binlog.000001", 100)


def test_what_is_read_has_a_digest() -> None:
    digests = {
        config(**options).reading
        for options in (
            {}, {"tables": {"include": ["shop.t"]}}, {"tables": {"exclude_columns": ["shop.t.v"]}},
            {"invalid_text": "keep_bytes"}, {"policies": {"tables": {"shop.t": {"on_untold_column": "stop"}}}},
        )
    }  # fmt: skip
    assert len(digests) == 5
    assert config(merge={"without_spark_mb": 0}).reading == config().reading
    other = config({"exclude": ["shop.t"]}, invalid_text="keep_bytes")
    assert config().reading_as(other.tables, other.invalid).reading == other.reading
    assert config().invalid == FAIL


def test_a_table_whose_deleted_rows_are_to_stay_or_go_from_here_on_is_copied_anew() -> None:
    keeping = config({"modes": [{"tables": "shop.t", "soft_delete": True}]})
    for before, now, why in ((config(), keeping, "are to stay"), (keeping, config(), "are to go")):
        status, reason = stands(before, now, NAME)
        assert status == "resnapshot"
        assert why in reason
    assert stands(keeping, keeping, NAME) == ("following", "")
    telling = config({"modes": [{"tables": "shop.t", "row_metadata": ["batch"]}]})
    assert "other row_metadata" in stands(config(), telling, NAME)[1]


@pytest.mark.parametrize(
    ("columns", "key", "policies", "why"),
    [
        ((NAME,), (), {}, "it has no key"),
        ((Column("_DELETED_AT", "int"),), ("id",), {}, "'_DELETED_AT' has the name of one of the mirror's own"),
        ((NAME,), ("id",), {"policies": {"on_unlogged_cascade": "derive"}}, "are derived from a parent's"),
    ],
)
def test_deleted_rows_that_can_not_stay(
    columns: tuple[Column, ...], key: tuple[str, ...], policies: dict[str, Any], why: str
) -> None:
    keeping = config({"modes": [{"tables": "shop.t", "soft_delete": True}]}, **policies)
    rules, schema = Rules.of(keeping), TableSchema((ID, *columns), key, "primary" if key else "none")
    refused = rules.refused_mode(T, rules.excluding(T, schema))
    assert refused is not None
    assert why in refused.reason
    assert "soft_delete" in refused.remedy
    assert rules.refused_mode(TableName("shop", "u"), rules.excluding(TableName("shop", "u"), schema)) is None


def of_rows(*entries: tuple[str, str]) -> PipelineConfig:
    return config(rows=[{"tables": tables, "where": where} for tables, where in entries])


def test_a_table_with_another_condition_of_its_rows_is_copied_anew() -> None:
    chosen = of_rows(("shop.t", "id > 5"))
    for before, now, why in (
        (config(), chosen, "rows with id > 5 (rows)"),
        (chosen, config(), "all rows (rows)"),
        (chosen, of_rows(("shop.*", "id > 5"), ("*.t", "name = 'a'")), "rows with (id > 5) AND (name = 'a')"),
    ):
        status, reason = stands(before, now, NAME)
        assert (status, why in reason) == ("resnapshot", True)
    assert stands(chosen, of_rows(("shop.?", "id > 5")), NAME) == ("following", "")
    assert stands(config(), of_rows(("shop.u", "id > 5")), NAME) == ("following", "")
    assert chosen.reading != config().reading
    assert config().reading_as(chosen.tables, chosen.invalid, chosen.rows).reading == chosen.reading


def test_a_table_with_another_condition_of_its_snapshots_is_copied_anew() -> None:
    since = config(rows=[{"tables": "shop.t", "snapshot_where": "id > 5"}])
    for before, now, why in (
        (config(), since, "copy the rows with id > 5 (rows, snapshot_where)"),
        (since, config(), "copy all rows"),
    ):
        status, reason = stands(before, now, NAME)
        assert (status, why in reason) == ("resnapshot", True)
    status, reason = stands(of_rows(("shop.t", "id > 5")), since, NAME)
    assert (status, "all rows (rows)" in reason) == ("resnapshot", True)
    assert Rules.of(since).has_all_rows(T), "what the log has of it is staged whole"
    keyless = Rules.of(since).refused_mode(T, since.excluding(T, TableSchema((ID, NAME))))
    assert keyless is not None
    assert "it has no key" in keyless.reason


def test_a_condition_that_its_table_can_not_have_stops_it() -> None:
    for options, where, why in (
        ({}, "state = 1", "no column 'state'"),
        ({}, "name > 'a'", "whose order isn't known"),
        ({"policies": {"on_unlogged_cascade": "derive"}}, "id = 1", "derive"),
    ):
        rows = [{"tables": "shop.t", "where": where}]
        status, reason = stands(config(**options), config(rows=rows, **options), NAME)
        assert (status, why in reason) == ("stopped", True)


def test_a_tools_copy_has_the_condition_of_its_table_and_shapes_without_one_are_as_before() -> None:
    chosen = of_rows(("shop.t", "id > 5"))
    assert chosen.row_condition(TableName("shop", "_t_gho")) == "id > 5"
    assert chosen.row_condition(TableName("shop", "_t_ghc")) == ""
    assert not Rules.of(chosen).has_all_rows(T)
    assert Rules.of(chosen).has_all_rows(TableName("shop", "u"))
    schema = life(config()).schema
    assert not {"where", "snapshot_where", "shard"} & schema.uncommented().keys()
    assert schema.fingerprint == life(chosen).schema.fingerprint


@pytest.mark.parametrize(
    ("where", "said"), [("", "in the middle"), ("id = NOW()", "NOW(…)"), ("a.b = 1", "name alone")]
)
def test_a_condition_that_is_not_understood_is_an_error_of_the_yaml(where: str, said: str) -> None:
    with pytest.raises(ValueError, match="neither where nor snapshot_where"):
        config(rows=[{"tables": "shop.t"}])
    with pytest.raises(ValueError, match="rows") as refused:
        of_rows(("shop.t", where))
    assert said in str(refused.value)
