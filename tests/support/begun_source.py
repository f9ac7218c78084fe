"""A source whose tables have begun to follow the log, as their snapshots leave them; it has no server and no data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from binlake import config
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.records import watermarks
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import metadata_of

BEGIN = Position("server", "binlog.000001", 4, 1)
SCHEMA = TableSchema((Column("id", "bigint", nullable=False),), ("id",), "primary")


def life_of(name: TableName) -> Life:
    return Life(f"life of {name}", name, SCHEMA, BEGIN, BEGIN)


def begin(folder: Path, names: Sequence[TableName], recorded: RecordedState | None = None) -> Path:
    """Begin the lives of tables in a lake below a folder; return the source's YAML. recorded: none but the snapshot by
    default."""
    yaml = folder / "shop.yaml"
    yaml.write_text(
        "source: {name: shop, connection: nowhere, server_id: 4001}\n"
        f"tables: {{include: ['*.*']}}\nlake: {{path: {folder}/lake}}\n"
    )
    lives = [life_of(name) for name in names]
    with lease.held(metadata_of(config.load(yaml))) as held:
        watermarks.started(held.metadata, lives, batch=0, versions={life.id: 0 for life in lives})
        held.stand(recorded or RecordedState(0, BEGIN))
    return yaml
