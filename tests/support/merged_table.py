"""A Delta table that shows others, its shards, which tests change as a server's are, and publish as Iceberg."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from binlake.delta import opened_tables
from binlake.delta.composed_parts import ColumnIds, TablePart
from binlake.delta.composed_table import compose
from binlake.iceberg.publication import publish
from binlake.iceberg.table_metadata import published_ids
from plain_table import PlainTable

SOURCE_COLUMN = "tenant"


class MergedTable:
    """A table that shows the shards that are added to it. has_ids: whether its columns get ids, as of one that is to be
    published."""

    def __init__(self, path: Path | str, *, has_ids: bool = True) -> None:
        self.path, self.has_ids = str(path), has_ids
        self.shards: dict[str, PlainTable] = {}

    def add(self, name: str, columns: Sequence[tuple[str, str]]) -> PlainTable:
        """Make a shard. columns: names and types in Spark SQL."""
        self.shards[name] = PlainTable(f"{self.path}/{SOURCE_COLUMN}={name}", columns)
        return self.shards[name]

    @property
    def version(self) -> int:
        return opened_tables.opened(self.path).version()

    def show(self) -> None:
        """Let it show what the shards have become; those that aren't among them any more have no row."""
        parts = [TablePart(name, f"{SOURCE_COLUMN}={name}", name) for name in self.shards]
        ids = ColumnIds(self.has_ids, lambda: published_ids(self.path))
        compose(self.path, SOURCE_COLUMN, parts, {"binlake": {}}, ids=ids)

    def publish(self, format_version: int, tag: str | None = None) -> None:
        self.show()
        publish(self.path, tag, format_version)

    @property
    def converted(self) -> list[str]:
        """The names of data files that were written again for it."""
        return sorted(file.name for file in Path(self.path, "_converted").rglob("*.parquet"))
