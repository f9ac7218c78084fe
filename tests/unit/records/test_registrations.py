"""Which names a catalog lacks, and which it has too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyarrow import int64, schema

from binlake.config import PipelineConfig
from binlake.records import registrations
from binlake.records.registrations import Changes
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata


class Catalogued:
    """A source's metadata, and a catalog that takes whatever it lacks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metadata = Metadata(str(folder / "s" / "_binlake"))
        self.catalog: dict[str, Any] = {}

    @property
    def config(self) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "source": {"name": "s", "connection": "c", "server_id": 1},
                "tables": {"include": ["*.[!_]*"]},
                "lake": {"path": str(self.folder)},
                "catalog": self.catalog,
            }
        )

    def table(self, database: str, name: str, status: str = "following", version: int | None = 0) -> None:
        row = {"table_id": f"{database}.{name}", "database": database, "table": name, "status": status}
        self.metadata.replace("watermarks", f"table_id = '{database}.{name}'", [{**row, "delta_version": version}])

    def changes(self) -> Changes:
        return registrations.changes(self.config, self.config.named_catalogs[0], self.metadata)

    def take(self) -> tuple[list[str], list[str]]:
        """Names that the catalog drops and takes."""
        changes, catalog = self.changes(), self.config.named_catalogs[0]
        known = [
            registration
            for registration in registrations.read(self.metadata)
            if registration.catalog == catalog.identity
        ]
        registrations.note(
            self.metadata,
            catalog.identity,
            [*(registration for registration in known if registration not in changes.drop), *changes.put],
        )
        return list(map(str, changes.drop)), list(map(str, changes.put))


@pytest.fixture
def source(tmp_path: Path) -> Catalogued:
    return Catalogued(tmp_path)


def test_each_table_of_the_lake_has_a_name(source: Catalogued) -> None:
    source.table("shop", "orders")
    source.table("shop", "Order-Lines 2", "paused")
    source.table("shop", "stopped", "stopped")
    source.table("shop", "never_copied", "missing", version=None)
    source.table("shop", "_orders_gho")
    assert source.take() == ([], ["shop.order_lines_2", "shop.orders", "shop.stopped"])
    assert source.changes() == Changes((), ())


def test_a_dropped_table_has_its_name_as_long_as_its_rows(source: Catalogued) -> None:
    source.table("shop", "kept", "dropped")
    source.table("shop", "gone", "dropped")
    DeltaTable.create(source.config.table_path(TableName("shop", "kept")), schema([("id", int64())]))
    assert source.take() == ([], ["shop.kept"])


def test_a_renamed_table_has_its_new_name_alone(source: Catalogued) -> None:
    source.table("shop", "old")
    source.take()
    source.table("shop", "old", "dropped")
    source.table("shop", "new")
    assert source.take() == (["shop.old"], ["shop.new"])


def test_databases_can_have_other_names(source: Catalogued) -> None:
    source.table("Shop", "orders")
    source.catalog = {"database": "mirror_{source}_{database}"}
    assert source.take() == ([], ["mirror_s_shop.orders"])


def test_another_catalog_begins_with_nothing(source: Catalogued) -> None:
    source.table("shop", "orders")
    assert source.take() == ([], ["shop.orders"])
    source.catalog = {"metastore": "thrift://elsewhere:9083"}
    assert source.take() == ([], ["shop.orders"])
    source.catalog = {}
    assert source.take() == ([], [])


def test_of_twins_the_one_that_has_the_name_keeps_it(source: Catalogued) -> None:
    source.table("shop", "orders")
    source.take()
    source.table("shop", "Orders")
    for name in ("item s", "item-s"):
        source.table("shop", name)
    assert source.take() == ([], [])
    assert dict(source.changes().twins) == {
        "shop.item_s": (TableName("shop", "item s"), TableName("shop", "item-s")),
        "shop.orders": (TableName("shop", "Orders"), TableName("shop", "orders")),
    }
