"""What is noted of a shard that a merged table doesn't show as it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake

from binlake.config import PipelineConfig
from binlake.lake import merged_tables
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.pipeline import metadata_of
from binlake.planner.steps import Life, Standstill
from binlake.position import Position
from binlake.records import merged_standstills, watermarks
from binlake.report import Report
from binlake.schema.table import Column, TableName, TableSchema

HERE, LATER = (Position("s", "b.000001", offset, 1) for offset in (4, 900))
ORDERS, FIRST, SECOND = (TableName(name, "orders") for name in ("all", "shop_1", "shop_2"))
SHAPE = TableSchema((Column("id", "int"), Column("v", "int")), ("id",), "primary")


def lake(folder: Path, **options: Any) -> PipelineConfig:
    entry = {"from": "shop_%.orders", "into": "all.orders", "source_column": "shop"}
    return PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["shop_%.*"]},
            "lake": {"path": str(folder)},
            "merge_tables": [entry],
            **options,
        }
    )


def copy(config: PipelineConfig, life: Life, kind: pa.DataType) -> None:
    """Copy a shard as a life, whose column v has a type in the lake and no value."""
    note = CommitProperties(custom_metadata={"userMetadata": json.dumps({"binlake": {"snapshot": 1}})})
    rows, path = pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([None], kind)}), config.table_path(life.name)
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite", commit_properties=note)
    life = replace(life, schema=config.excluding(life.name, life.schema))
    versions = {life.id: DeltaTable(path).version()}
    watermarks.started(metadata_of(config), [life], batch=1, versions=versions)


def noted(config: PipelineConfig, position: Position) -> dict[str, Standstill]:
    """Bring the merged table up to date at a position; return what is noted of its shards."""
    metadata = metadata_of(config)
    with lease.held(metadata) as held:
        held.stand(RecordedState(1, position))
        merged_tables.refresh(config, held, Report(quiet=True))
    return {**merged_standstills.read(metadata).get(ORDERS, merged_standstills.NOTHING).shards}


def shops(config: PipelineConfig) -> list[str]:
    table = QueryBuilder().register("t", DeltaTable(config.table_path(ORDERS)))
    return sorted(pa.table(table.execute("SELECT shop FROM t").read_all())["shop"].to_pylist())


STOPPED = Standstill("it is as it is", "mend it")


@pytest.mark.parametrize(
    ("again", "kind", "why", "remedy"),
    [
        ({"high": LATER}, pa.int32(), "it doesn't follow up to the position", "run binlake sync"),
        ({"status": "stopped", "standstill": STOPPED}, pa.int32(), "it doesn't follow up to the position", "mend it"),
        ({}, pa.string(), "its column 'v' is string", "give the column one type in all shards"),
    ],
)
def test_a_hidden_shard_has_the_remedy_of_what_hides_it(
    tmp_path: Path, again: dict[str, Any], kind: pa.DataType, why: str, remedy: str
) -> None:
    plain = lake(tmp_path)
    for name in (FIRST, SECOND):
        copy(plain, Life(name.database, name, SHAPE, HERE, HERE), pa.int32())
    assert (noted(plain, HERE), shops(plain)) == ({}, ["1", "2"])
    masked = lake(tmp_path, columns=[{"columns": "shop_2.orders.v", "null": True}])
    copy(masked, replace(Life("again", SECOND, SHAPE, HERE, HERE), **again), kind)
    ((shard, standstill),) = noted(masked, HERE).items()
    assert (shard, shops(masked)) == (str(SECOND), ["1"])
    assert standstill.reason.startswith(why), standstill.reason
    assert "withheld by now" in standstill.reason
    assert standstill.remedy.startswith(remedy)
    if "high" in again:
        assert (noted(masked, LATER), shops(masked)) == ({}, ["1", "2"])
