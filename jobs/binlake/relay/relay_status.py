"""What the relay knows at a moment, for its monitoring page and for programs; without values of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from binlake.relay.usage import TableUsage
from binlake.schema.table import TableName, TableSchema


@dataclass(frozen=True)
class TableOutline:
    """A table's newest shape. columns: each as name and type."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


@dataclass(frozen=True)
class RelayStatus:
    """began_us, at_us: when the relay began, and now, in µs since 1970 UTC.

    newest_batch, position, gtid_set: the newest recorded batch, and where it ends. oldest_batch: the first that can be
    read. needed_batch: the first whose staging a client still needs. clients: see core.summary. tables: mutations since
    the relay began.
    """

    source: str
    began_us: int
    at_us: int
    newest_batch: int
    position: str
    gtid_set: str
    oldest_batch: int
    needed_batch: int
    clients: tuple[dict[str, Any], ...]
    tables: tuple[TableUsage, ...]
    schemas: tuple[TableOutline, ...]

    def to_json(self) -> dict[str, Any]:
        tables = [
            {"table": usage.table, **{when: getattr(usage, when)._asdict() for when in ("total", "day", "hour")}}
            for usage in self.tables
        ]
        return {**asdict(self), "tables": tables}


def outlines(schemas: Mapping[TableName, TableSchema]) -> tuple[TableOutline, ...]:
    """Return the outline of each table, by name."""
    return tuple(
        TableOutline(str(name), tuple(f"{column.name} {column.declared}" for column in schema.mirrored), schema.key)
        for name, schema in sorted(schemas.items())
    )
