"""Where a source stands, read from metadata alone: no server, no JVM."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from binlake.config import PipelineConfig
from binlake.state import decisions, lease, watermarks
from binlake.state.metadata import Metadata


@dataclass(frozen=True)
class SourceStatus:
    """The source's position, its open batch, who works on it, and each table's watermark.

    holder_died: the holder was a process of this machine that is gone; of one elsewhere that isn't known.
    """

    source: str
    batch: int
    position: str | None
    open_batch: dict[str, Any] | None
    holder: str | None
    tables: tuple[dict[str, Any], ...]
    last_run: dict[str, Any] | None
    poison: tuple[dict[str, Any], ...] = ()
    """Events that stop the open batch: file, offset, reason, remedy."""
    holder_died: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "batch": self.batch,
            "position": self.position,
            "open_batch": self.open_batch,
            "holder": self.holder,
            "holder_died": self.holder_died,
            "tables": list(self.tables),
            "last_run": self.last_run,
            "poison": list(self.poison),
        }

    @property
    def headline(self) -> str:
        if self.position is None:
            return f"{self.source}: no table has a snapshot yet; run binlake snapshot"
        lines = [f"{self.source}: batch {self.batch} recorded up to {self.position}"]
        if self.open_batch:
            opened = self.open_batch
            lines = [f"{self.source}: batch {opened['batch']} is {opened['state']}, up to {opened['stop']}"]
        for event in self.poison:
            lines.append(f"stopped by {event['reason']}\n  → {event['remedy']}")
        if self.holder_died:
            lines.append(f"held by {self.holder}, which is dead: the next run takes over at once")
        elif self.holder:
            lines.append(f"held by {self.holder}")
        if self.last_run:
            ended = datetime.fromtimestamp(self.last_run["ended_us"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            lines.append(f"last run ended {ended} with {self.last_run['mutations']:,} mutations")
        return "\n".join(lines)


def _table(row: dict[str, Any]) -> dict[str, Any]:
    kept = ("status", "batch", "position", "delta_version", "reason", "remedy", "table_id")
    return {"table": f"{row['database']}.{row['table']}", **{key: row[key] for key in kept}}


def read_status(config: PipelineConfig) -> SourceStatus:
    metadata = Metadata(config.metadata_path("").rstrip("/"))
    control = lease.read(metadata)
    opened = control.open
    carried = [row for row in metadata.read("runs") if row["kind"] != "maintain"]
    runs = sorted(carried, key=lambda row: row["ended_us"] or 0)
    last = runs[-1] if runs else None
    return SourceStatus(
        source=config.source.name,
        batch=control.batch,
        position=str(control.position) if control.position else None,
        open_batch={"batch": opened.batch, "state": opened.state, "stop": str(opened.range.stop)} if opened else None,
        holder=control.holder,
        holder_died=control.holder_died,
        tables=tuple(sorted(map(_table, watermarks.read(metadata)), key=lambda row: row["table"])),
        poison=tuple(
            {key: row[key] for key in ("file", "offset", "reason", "remedy")}
            for row in (decisions.poison(metadata, opened.batch) if opened else [])
        ),
        last_run={**last, "tables": json.loads(last["tables"]), "phases": json.loads(last["phases"])} if last else None,
    )
