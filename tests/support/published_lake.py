"""A small lake whose tables are published as Iceberg tables with each batch, written without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from binlake.config import PipelineConfig
from binlake.iceberg import published_table
from binlake.iceberg.publication import publish
from binlake.iceberg.table_metadata import NEWEST_FORMAT
from binlake.lake.table_at import TableAt
from binlake.schema.table import TableName
from plain_table import Action, PlainTable
from recorded_lake import RecordedLake

Columns = Sequence[tuple[str, str]]


def appending(*rows: Mapping[str, Any]) -> Action:
    """A batch's rows in a table."""
    return lambda table: table.append([dict(row) for row in rows])


class PublishedLake:
    """A lake of the source ``shop``. tables: by their names. versions: their Delta versions at each batch."""

    def __init__(self, folder: Path, columns: Mapping[TableName, Columns], **iceberg: Any) -> None:
        self.folder, self._recorded = folder, RecordedLake(folder / "shop")
        self.iceberg = iceberg or {"every": "batch"}
        self.tables = {
            name: PlainTable(Path(TableAt.of(f"{folder}/shop", name, 0).path), kinds) for name, kinds in columns.items()
        }
        self.versions: dict[int, dict[TableName, int]] = {}
        self._publish(self.tables)
        self._recorded.begin({str(name): table.version for name, table in self.tables.items()})

    @property
    def config(self) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "source": {"name": "shop", "connection": "none", "server_id": 1},
                "tables": {"include": ["*.*"]},
                "lake": {"path": str(self.folder)},
                "iceberg": self.iceberg,
            }
        )

    def write_yaml(self) -> str:
        """Write the source's YAML, and return its path."""
        path = self.folder / "shop.yaml"
        path.write_text(
            "source: {name: shop, connection: none, server_id: 1}\ntables: {include: ['*.*']}\n"
            f"lake: {{path: '{self.folder}'}}\niceberg: {{every: batch}}\n"
        )
        return str(path)

    def batch(self, changes: Mapping[TableName, Action], *, publishes: bool = True) -> int:
        """Record a batch that changes tables, and return its number."""
        for name, change in changes.items():
            change(self.tables[name])
        if publishes:
            self._publish(changes)
        self._recorded.record({str(name): self.tables[name].version for name in changes})
        self.versions[self._recorded.batch] = {name: table.version for name, table in self.tables.items()}
        return self._recorded.batch

    def _publish(self, names: Mapping[TableName, Any]) -> None:
        for name in names:
            publish(self.tables[name].path, None, self.iceberg.get("version", NEWEST_FORMAT))
            published_table.forget(self.tables[name].path)
