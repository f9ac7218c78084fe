"""Where a batch's rows came from, for OpenLineage: source table → Delta table, column by column.

Told where Airflow's provider openlineage is installed; without it nothing is looked up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from binlake.config import PipelineConfig, load
from binlake_airflow.hook import BinlakeHook

if TYPE_CHECKING:
    from binlake.schema.lake_columns import LakeColumn
    from binlake.source.log import Origin

log = logging.getLogger(__name__)
_NAMED = {"value": "IDENTITY", "text": "TRANSFORMATION", "bytes": "TRANSFORMATION"}


@dataclass(frozen=True)
class TableLineage:
    """source, lake: (namespace, name) as OpenLineage names a server's table and a folder. columns: of the lake."""

    source: tuple[str, str]
    lake: tuple[str, str]
    columns: tuple[LakeColumn, ...]


def is_collected() -> bool:
    """Whether the provider is there."""
    try:
        return find_spec("airflow.providers.openlineage") is not None
    except ModuleNotFoundError:
        return False


def of_batch(config_file: str, batch: int) -> tuple[TableLineage, ...]:
    """The tables that a merged batch changed; none where that can't be told: lineage holds no merge back."""
    try:
        config = load(config_file)
        return tuple(_of_batch(config, BinlakeHook(config.source.connection).origin(), batch))
    except Exception as error:
        log.warning("the batch's lineage isn't told: %s", type(error).__name__)
        return ()


def _of_batch(config: PipelineConfig, origin: Origin, batch: int) -> Iterator[TableLineage]:
    from binlake import pipeline
    from binlake.schema.lake_columns import lake_columns
    from binlake.state import history, lease

    metadata = pipeline.metadata_of(config)
    merged = lease.read(metadata).open
    if merged is None or merged.batch != batch:  # recorded by another run meanwhile, which tells it
        return
    for life in merged.outcome.lives:
        shape = history.schema_now(metadata, life.id)
        if shape is not None and life.changed and not config.ghost(life.name):
            place = folder(config.table_path(life.name))
            yield TableLineage((_server(origin), str(life.name)), place, lake_columns(shape, config.invalid))


def _server(origin: Origin) -> str:
    from binlake.source.folder import Folder

    return "file" if isinstance(origin, Folder) else f"mysql://{origin.address}"


def folder(path: str) -> tuple[str, str]:
    """As OpenLineage names a folder: a disk's by its path, a bucket's by what is in it."""
    parts = urlsplit(path)
    if not parts.scheme:
        return "file", path
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    return f"{scheme}://{parts.netloc}", parts.path.lstrip("/")


def facets(tables: Sequence[TableLineage]) -> Any:
    """What OpenLineage's listener asks a task for."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset

    return OperatorLineage(
        inputs=[Dataset(*table.source) for table in tables],
        outputs=[Dataset(*table.lake, facets=_facets(table)) for table in tables],
    )


def _facets(table: TableLineage) -> dict[str, Any]:
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage
    from openlineage.client.facet_v2 import schema_dataset

    def origin(column: LakeColumn) -> lineage.Fields:
        how = lineage.Transformation(type="DIRECT", subtype=_NAMED[column.holds])
        field = lineage.InputField(*table.source, column.source.name, transformations=[how])
        return lineage.Fields(inputFields=[field])

    columns = [schema_dataset.SchemaDatasetFacetFields(name=one.name, type=one.delta) for one in table.columns]
    return {
        "schema": schema_dataset.SchemaDatasetFacet(fields=columns),
        "columnLineage": lineage.ColumnLineageDatasetFacet(fields={one.name: origin(one) for one in table.columns}),
    }
