"""Which columns of the lake a batch's rows came to, as OpenLineage has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openlineage.client.serde import Serde

from binlake import config, pipeline
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.planner.outcome import BatchOutcome, LifeOutcome
from binlake.planner.steps import Life
from binlake.position import Position, Range, Slice
from binlake.records import watermarks
from binlake.schema.table import Column, TableName, TableSchema
from binlake_airflow import lineage

YAML = """
source: {name: shop, connection: "file:///log"}
tables: {include: ["shop.*"]}
lake: {path: /lake}
invalid_dates: keep_text
"""
START, STOP = Position("s", "b.000001", 4, 1), Position("s", "b.000001", 99, 1)
SCHEMA = TableSchema((Column("id", "int", nullable=False), Column("paid", "date")), ("id",), "primary")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of a batch that changed one of two tables, and is merged."""
    file = tmp_path / "shop.yaml"
    file.write_text(YAML.replace("/lake", str(tmp_path / "lake")))
    orders, items = (TableName("shop", name) for name in ("orders", "items"))
    done = (
        LifeOutcome("orders", orders, START, START, "following", None, SCHEMA.fingerprint, changed=True, inserted=3),
        LifeOutcome("items", items, START, START, "following", None, SCHEMA.fingerprint),
    )
    part = Slice("b.000001", 4, 99, 1, False)
    with lease.held(pipeline.metadata_of(config.load(file))) as held:
        lives = [Life(name.table, name, SCHEMA, START, START) for name in (orders, items)]
        watermarks.started(held.metadata, lives, batch=0, versions={})
        held.stand(RecordedState(0, START))
        held.open(OpenBatch(1, Range(START, STOP, (part,)), state="merged", outcome=BatchOutcome(done)))
    return file


def test_a_side_column_comes_of_its_own_column(file: Path, tmp_path: Path) -> None:
    facets: dict[str, Any] = Serde.to_dict(lineage.facets(lineage.of_batch(str(file), 1)))
    assert [(dataset["namespace"], dataset["name"]) for dataset in facets["inputs"]] == [("file", "shop.orders")]
    (orders,) = facets["outputs"]
    assert (orders["namespace"], orders["name"]) == ("file", f"{tmp_path}/lake/shop/shop/orders")
    types = {field["name"]: field["type"] for field in orders["facets"]["schema"]["fields"]}
    assert types == {"id": "INT", "paid": "DATE", "paid__text": "STRING"}
    fields = orders["facets"]["columnLineage"]["fields"]
    origins = {name: [origin["field"] for origin in field["inputFields"]] for name, field in fields.items()}
    assert origins == {"id": ["id"], "paid": ["paid"], "paid__text": ["paid"]}


def test_tables_that_were_copied_and_built_once_more(file: Path, tmp_path: Path) -> None:
    copied: dict[str, Any] = Serde.to_dict(lineage.facets(lineage.of_tables(str(file), ["shop.items", "shop.gone"])))
    assert [dataset["name"] for dataset in copied["inputs"]] == ["shop.items"]
    assert [dataset["name"] for dataset in copied["outputs"]] == [f"{tmp_path}/lake/shop/shop/items"]
    beside = {"table": "shop.orders", "path": "/replayed/orders", "batch": 0}
    (orders,) = lineage.of_replays(str(file), [beside])
    assert (orders.source, orders.lake) == (("file", "shop.orders"), ("file", "/replayed/orders"))
    assert [column.name for column in orders.columns] == ["id", "paid", "paid__text"]
    assert lineage.of_replays(str(file), []) == lineage.of_tables(str(file), []) == ()


def test_what_can_not_be_told_holds_nothing_back(file: Path) -> None:
    assert lineage.of_batch(str(file), 2) == ()  # recorded by another run meanwhile
    file.write_text("{")
    assert lineage.of_batch(str(file), 1) == ()
    assert Serde.to_dict(lineage.facets(()))["outputs"] == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/data/lake/shop", ("file", "/data/lake/shop")), ("s3a://bucket/lake/shop", ("s3://bucket", "lake/shop"))],
)
def test_a_folder_has_one_name_whoever_tells_it(path: str, expected: tuple[str, str]) -> None:
    assert lineage.folder(path) == expected
