"""Tables that are published as Iceberg tables, compared with the Delta tables of the same files. Needs no server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.errors import BinlakeError, CheckFailed, UsageError
from binlake.iceberg import snapshot_differences, table_metadata
from binlake.merge.published_tables import is_published, path_of, with_beside
from binlake.records import watermarks
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata


@dataclass(frozen=True)
class PublishedCheck:
    """The result of a table. published: the Delta version of the newest snapshot; None where there is none. newest: the
    table's. differences: what that snapshot has otherwise than its Delta version."""

    name: TableName
    published: int | None
    newest: int
    differences: tuple[str, ...]

    def to_text(self) -> str:
        """Return a line for people, and a line for each difference."""
        versions = f"Delta version {self.published}" if self.published is not None else "no snapshot"
        if self.published not in (None, self.newest):
            versions += f", the table is at {self.newest}"
        head = f"{'DIFFERS' if self.differences else 'equal':9} {self.name}: {versions}"
        return "\n".join([head, *(f"    {text}" for text in self.differences)])


@dataclass(frozen=True)
class PublishedReport:
    """The results of all tables."""

    tables: tuple[PublishedCheck, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain values for JSON."""
        return {"tables": [{**asdict(table), "name": str(table.name)} for table in self.tables]}

    def to_text(self) -> str:
        """Return the results for people."""
        return "\n".join(table.to_text() for table in self.tables)

    def refuse_unequal(self) -> None:
        """Raise CheckFailed where a table differs."""
        if wrong := [str(table.name) for table in self.tables if table.differences]:
            raise CheckFailed(
                f"Iceberg's readers don't see what Delta's do: {', '.join(wrong)}",
                remedy="remove _iceberg in the table's folder and run binlake maintain: it is then published again",
            )


def check_published(config: PipelineConfig, metadata: Metadata, patterns: Sequence[str] | None) -> PublishedReport:
    """Compare the tables that follow the log, those that patterns match if any are given, and the tables beside them.

    Raises UsageError for a pattern that matches none, and where the YAML publishes none of them.
    """
    lives = watermarks.following(metadata, patterns)
    names = [name for name in with_beside(config, [life.name for life in lives]) if is_published(config, name)]
    names = [name for name in names if opened_tables.is_table(path_of(config, name))]
    if not names:
        raise UsageError("none of these tables is published", remedy="see the section iceberg: binlake help iceberg")
    return PublishedReport(tuple(_checked(config, name) for name in names))


def _checked(config: PipelineConfig, name: TableName) -> PublishedCheck:
    path = path_of(config, name)
    newest = opened_tables.opened(path).version()
    try:
        metadata = table_metadata.newest(path)
        published = metadata.delta_version if metadata else None
        return PublishedCheck(name, published, newest, tuple(snapshot_differences.differences(path)))
    except (BinlakeError, DeltaError, OSError, ValueError, KeyError, pa.ArrowException) as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        return PublishedCheck(name, None, newest, (f"it can't be read: {text}",))
