"""Fifty batches are read at each of them behind an upkeep, by what the catalog serves, as Delta's readers read them;
those whose files the upkeep took are refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from deltalake import DeltaTable
from fastapi.testclient import TestClient

from binlake.catalog.catalog_routes import catalog_application
from binlake.catalog.warehouses import PublishedSource, Warehouses
from binlake.lake import pins
from binlake.maintain import table_upkeep
from binlake.maintain.maintain import maintain
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.spark.starting import no_session
from binlake.store.metadata import metadata_of
from iceberg_readers import NEWEST_READERS, Rows, by_delta
from plain_table import PlainTable
from published_lake import PublishedLake

ORDERS, ITEMS = TableName("shop", "orders"), TableName("shop", "items")
BATCHES, PINNED = 50, (7, 23)


def change(table: PlainTable, drawn: random.Random) -> None:
    """Rows come, go, and take the place of others; columns change their places and names."""
    number = table.version
    what = drawn.choice(("append", "hide", "hide", "replace", "move", "rename"))
    there = table.files
    if what == "hide" and there:
        table.hide({add["path"]: [drawn.randrange(3)] for add in drawn.sample(there, min(2, len(there)))})
    elif what in ("move", "rename"):
        (first, kind), *others = table.columns
        name = f"c{number}" if what == "rename" and first != "id" else first
        table.reshape([*((name, kind, name) for name, kind in others), (name, kind, first)])
    else:
        rows = [{name: number if kind == "INT" else f"{number}" for name, kind in table.columns}] * 3
        table.replace(there[:1] if what == "replace" else [], rows)


@pytest.mark.parametrize("version", [3, pytest.param(2, marks=pytest.mark.soak)])
def test_each_batch_reads_as_it_was(tmp_path: Path, version: Literal[2, 3], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(version)
    columns = [("id", "INT"), ("v", "STRING"), ("n", "INT")]
    lake = PublishedLake(tmp_path, dict.fromkeys((ORDERS, ITEMS), columns), version=version)
    for table in lake.tables.values():
        DeltaTable(table.path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    for _ in range(BATCHES):
        lake.batch({name: lambda table: change(table, drawn) for name in drawn.sample((ORDERS, ITEMS), 1)})
    wanted = {
        batch: {name: by_delta(lake.tables[name].path, at) for name, at in versions.items()}
        for batch, versions in lake.versions.items()
    }
    monkeypatch.setattr(table_upkeep, "SIDE_BY_SIDE", 1)
    metadata = metadata_of(lake.config)
    maintain(lake.config, no_session, metadata, Report(quiet=True), patience=0)
    client = TestClient(catalog_application(Warehouses([PublishedSource.of(lake.config)])), "http://127.0.0.1")
    assert {batch for batch in wanted if is_read(client, batch, wanted[batch], tmp_path)} == set(wanted)

    for batch in PINNED:
        pins.pin(metadata, batch, f"pin_{batch}", Reason("who", "why"))
    promised = lake.config.maintain.model_copy(update={"history_hours": 0})
    maintain(
        lake.config.model_copy(update={"maintain": promised}), no_session, metadata, Report(quiet=True), patience=0
    )
    there = {batch for batch in wanted if is_read(client, batch, wanted[batch], tmp_path)}
    assert there >= {*PINNED, BATCHES}
    assert len(there) < BATCHES, "files of the others went"


def is_read(client: TestClient, batch: int, wanted: dict[TableName, Rows], folder: Path) -> bool:
    """Whether a batch is served; then each reader reads its tables as they were."""
    if client.get("/v1/config", params={"warehouse": f"shop@{batch}"}).status_code == 404:
        return False
    for name, rows in wanted.items():
        answer = client.get(f"/v1/{quote(f'shop@{batch}')}/namespaces/{name.database}/tables/{name.table}")
        assert answer.status_code == 200, answer.text
        file = folder / f"{batch} {name}.metadata.json"
        file.write_text(json.dumps(answer.json()["metadata"]))
        for reader, read in NEWEST_READERS.items():
            assert read(str(file)) == rows, (reader, batch, name)
    return True
