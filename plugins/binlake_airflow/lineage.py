"""Lineage for OpenLineage: source table → Delta table, column by column.

It is only collected if Airflow's provider openlineage is installed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from binlake.config import PipelineConfig, load
from binlake_airflow.hook import BinlakeHook

if TYPE_CHECKING:
    from binlake.schema.lake_columns import LakeColumn
    from binlake.schema.table import TableName, TableSchema
    from binlake.source.log import Origin

log = logging.getLogger(__name__)
_NAMED = {"value": "IDENTITY", "text": "TRANSFORMATION", "bytes": "TRANSFORMATION"}


@dataclass(frozen=True)
class TableLineage:
    """A table's lineage. source, lake: OpenLineage's (namespace, name) of the server's table and of the lake's folder.

    columns: the lake's.
    """

    source: tuple[str, str]
    lake: tuple[str, str]
    columns: tuple[LakeColumn, ...]


def is_collected() -> bool:
    """Return whether the provider openlineage is installed."""
    try:
        return find_spec("airflow.providers.openlineage") is not None
    except ModuleNotFoundError:
        return False


def of_batch(config_file: str, batch: int) -> tuple[TableLineage, ...]:
    """Return the lineage of the tables that a merged batch changed; the batch isn't recorded yet."""
    return _collect(config_file, lambda known: known.of_batch(batch))


def of_tables(config_file: str, names: Iterable[str]) -> tuple[TableLineage, ...]:
    """Return the lineage of tables in the lake. names: ``database.table``."""
    return _collect(config_file, lambda known: known.of_tables(set(names)))


def of_replays(config_file: str, replayed: Sequence[Mapping[str, Any]]) -> tuple[TableLineage, ...]:
    """Return the lineage of replayed tables, given a replay's result."""
    return _collect(config_file, lambda known: known.of_replays(replayed))


def _collect(config_file: str, asked: Callable[[_KnownTables], Iterator[TableLineage]]) -> tuple[TableLineage, ...]:
    """Return what ``asked`` yields; empty if lineage isn't collected or fails, as it must not hold up anything."""
    if not is_collected():
        return ()
    try:
        config = load(config_file)
        return tuple(asked(_KnownTables(config, BinlakeHook.origin_of(config))))
    except Exception as error:
        log.warning("lineage isn't known: %s", type(error).__name__)
        return ()


class _KnownTables:
    """A source's tables, as metadata know them."""

    def __init__(self, config: PipelineConfig, origin: Origin) -> None:
        from binlake.store.metadata import metadata_of

        self._config = config
        self._server = _server(origin)
        self._metadata = metadata_of(config)

    def of_batch(self, batch: int) -> Iterator[TableLineage]:
        from binlake.lease import lease
        from binlake.records import ddl_history

        merged = lease.read(self._metadata).open
        if merged is None or merged.batch != batch:  # recorded meanwhile by another run, which reports its lineage
            return
        changed = [life for life in merged.outcome.lives if life.changed and not self._config.ghost(life.name)]
        shapes = ddl_history.schemas_now(self._metadata, [life.id for life in changed])
        for life in changed:
            if life.id in shapes:
                yield self._table(life.name, shapes[life.id])

    def of_tables(self, names: Collection[str]) -> Iterator[TableLineage]:
        from binlake.records import ddl_history

        ids = self._ids(names)
        shapes = ddl_history.schemas_now(self._metadata, list(ids.values()))
        for name, life in ids.items():
            if life in shapes:
                yield self._table(name, shapes[life])

    def of_replays(self, replayed: Sequence[Mapping[str, Any]]) -> Iterator[TableLineage]:
        from binlake.records import ddl_history

        if not replayed:
            return
        paths = {table["table"]: table["path"] for table in replayed}
        ids = self._ids(paths)
        shapes = ddl_history.schemas_now(self._metadata, list(ids.values()), up_to=replayed[0]["batch"])
        for name, life in ids.items():
            if life in shapes:
                yield self._table(name, shapes[life], paths[str(name)])

    def _ids(self, names: Collection[str]) -> dict[TableName, str]:
        """Return the ids of the named tables that weren't dropped."""
        from binlake.records import watermarks

        living = (row for row in watermarks.read(self._metadata) if row.low and row.status != "dropped")
        return {row.name: row.table_id for row in living if str(row.name) in names}

    def _table(self, name: TableName, shape: TableSchema, path: str | None = None) -> TableLineage:
        from binlake.schema.lake_columns import lake_columns

        place = folder(path or self._config.table_path(name))
        return TableLineage((self._server, str(name)), place, lake_columns(shape, self._config.invalid))


def _server(origin: Origin) -> str:
    from binlake.source.folder import Folder

    return "file" if isinstance(origin, Folder) else f"mysql://{origin.address}"


def folder(path: str) -> tuple[str, str]:
    """Return OpenLineage's (namespace, name) of a folder on a disk or in a bucket."""
    parts = urlsplit(path)
    if not parts.scheme:
        return "file", path
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    return f"{scheme}://{parts.netloc}", parts.path.lstrip("/")


def facets(tables: Sequence[TableLineage]) -> Any:
    """Return the lineage in the form that OpenLineage's listener asks a task for."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset

    return OperatorLineage(
        inputs=[Dataset(*table.source) for table in tables],
        outputs=[Dataset(*table.lake, facets=_facets(table)) for table in tables],
    )


def _facets(table: TableLineage) -> dict[str, Any]:
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage, schema_dataset

    def origin(column: LakeColumn) -> lineage.Fields:
        how = lineage.Transformation(type="DIRECT", subtype=_NAMED[column.holds])
        field = lineage.InputField(*table.source, column.source.name, transformations=[how])
        return lineage.Fields(inputFields=[field])

    columns = [
        schema_dataset.SchemaDatasetFacetFields(name=column.name, type=column.delta, description=column.comment or None)
        for column in table.columns
    ]
    return {
        "schema": schema_dataset.SchemaDatasetFacet(fields=columns),
        "columnLineage": lineage.ColumnLineageDatasetFacet(
            fields={column.name: origin(column) for column in table.columns}
        ),
    }
