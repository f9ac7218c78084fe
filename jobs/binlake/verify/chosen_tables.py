"""The tables that a verification compares: as the server, the YAML and the watermarks have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from binlake import names
from binlake.config import PipelineConfig
from binlake.errors import UNMATCHED_REMEDY, UsageError
from binlake.planner.steps import Life
from binlake.records import watermarks
from binlake.schema.table import TableName, TableSchema
from binlake.source.catalog import SourceTable, read_tables
from binlake.source.listed_tables import MIRRORED, list_tables
from binlake.source.server import Source
from binlake.store.metadata import Metadata
from binlake.store.rows import WatermarkRow


class ChosenTables:
    """The tables to verify, as the server and the watermarks have them. patterns: the ones asked for, None for all."""

    def __init__(self, config: PipelineConfig, metadata: Metadata, patterns: list[str] | None) -> None:
        self._config = config
        self._metadata = metadata
        self._patterns = patterns

    def _is_chosen(self, name: TableName) -> bool:
        return self._config.included(name) and self._config.mirror_modes(name).mirror and self._matches(name)

    def _matches(self, name: TableName) -> bool:
        return not self._patterns or names.matches_any(self._patterns, name.database, name.table)

    def on_server(self, source: Source) -> dict[TableName, SourceTable]:
        """Return the chosen tables that the server has and that aren't stopped. Raises UsageError if there is none, or
        a pattern matches none."""
        listed = [table.name for table in list_tables(source) if table.kind in MIRRORED and self._is_chosen(table.name)]
        marks = self.watermarks()
        known = [(name.database, name.table) for name in (*listed, *marks)]
        unknown = (
            names.unmatched(self._patterns or (), known) if known else self._patterns or self._config.tables.include
        )
        if unknown:
            unmatched = f"no included table that has a mirror matches {', '.join(unknown)}"
            raise UsageError(unmatched, remedy=UNMATCHED_REMEDY)
        # Stopped tables aren't compared: the server needn't hash them.
        wanted = [name for name in listed if name not in marks or marks[name].status != "stopped"]
        recorded = {name: life.schema for name, life in self.lives().items()}

        def as_mirrored(name: TableName, schema: TableSchema) -> TableSchema:
            mirrored = self._config.excluding(name, schema)
            if (known := recorded.get(name)) is None:
                return mirrored
            mirrored = replace(mirrored, soft_delete=known.soft_delete, row_metadata=known.row_metadata)
            mirrored = replace(mirrored, where=known.where, snapshot_where=known.snapshot_where)
            return replace(mirrored, kept=known.kept, untold=known.untold)

        return read_tables(source, wanted, as_mirrored)

    def lives(self) -> dict[TableName, Life]:
        """Return the lives of chosen tables that follow the log."""
        return {life.name: life for life in self._following() if self._is_chosen(life.name)}

    def lives_beside(self) -> list[Life]:
        """Return the lives, also of tables without a mirror, whose tables beside it are chosen."""
        return [life for life in self._following() if self._config.included(life.name) and self._matches(life.name)]

    def _following(self) -> list[Life]:
        return [life for life in watermarks.read_lives(self._metadata) if life.status == "following"]

    def following(self, tables: Mapping[TableName, SourceTable]) -> dict[TableName, SourceTable]:
        """Return those of some tables whose lives follow the log."""
        lives = self.lives()
        return {name: table for name, table in tables.items() if name in lives}

    def watermarks(self) -> dict[TableName, WatermarkRow]:
        """Return each chosen table's watermark: the row of the life that follows the log, else of the newest life."""
        rows = sorted(watermarks.read(self._metadata), key=lambda row: (row.status == "following", row.updated_us))
        by_name = {row.name: row for row in rows}
        return {name: row for name, row in by_name.items() if self._is_chosen(name)}
