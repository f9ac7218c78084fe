"""A published table compared with its Delta table: what readers of both see, by files, vectors, statistics and ids."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.parquet as pq

from binlake.delta import log_files, opened_tables, plain_tables
from binlake.delta.delta_actions import Add
from binlake.iceberg import hidden_rows, iceberg_schema, published_table, table_metadata
from binlake.iceberg.avro_files import Record
from binlake.iceberg.iceberg_schema import IcebergSchema
from binlake.iceberg.published_table import PublishedTable
from binlake.iceberg.table_metadata import path_at
from binlake.storage import files


def differences(table_path: str) -> list[str]:
    """Return what the newest snapshot has otherwise than the Delta version that it is; nothing where they are equal.

    No value of a row is in it. Raises what reading the tables raises.
    """
    metadata = table_metadata.newest(table_path)
    if metadata is None:
        return ["it was never published"]
    version = metadata.delta_version
    published = published_table.whole(PublishedTable(metadata))
    table = opened_tables.opened(table_path, version)
    partition = table.metadata().partition_columns
    schema = iceberg_schema.schema_of(plain_tables.fields_of(table), metadata.known_ids, partition)
    there = {
        published_table.address(table_path, path): add for path, add in log_files.files_at(table_path, version).items()
    }
    found: list[str] = []
    if not metadata.is_named():
        found.append("version-hint.text doesn't name its newest metadata")
    if metadata.delta_id != str(table.metadata().id):
        found.append("it is of another Delta table")
    if [*metadata.partition] != table_metadata.partitioned_by(schema.partition_columns):
        found.append("its partitions differ")
    if schema.fields != published.fields:
        found.append("its columns, their types or ids differ")
    listed = published.data_files
    found += [f"{len(gone)} data files aren't there any more" for gone in [listed.keys() - there.keys()] if gone]
    found += [f"{len(lacking)} data files are lacking" for lacking in [there.keys() - listed.keys()] if lacking]
    for address in sorted(listed.keys() & there.keys()):
        said = _differences_of(there[address], address, listed[address], schema)
        found += [f"{what} of {address.rpartition('/')[2]} differ" for what in said]
    return found + list(_differing_vectors(table_path, there, published))


def _differences_of(add: Add, address: str, listed: Record, schema: IcebergSchema) -> Iterator[str]:
    with files.opened(path_at(address)) as source:
        footer = pq.read_metadata(source)
    if (listed["record_count"], listed["file_size_in_bytes"]) != (footer.num_rows, add.size):
        yield "rows or bytes"
    if any(listed[name] != value for name, value in iceberg_schema.statistics(add, schema).items()):
        yield "statistics"
    if listed["partition"] != schema.partition_of(add.fields.get("partitionValues") or {}):
        yield "partitions"
    if iceberg_schema.has_other_ids(footer, {column.stored: column.id for column in schema.columns}):
        yield "ids of columns"


def _differing_vectors(table_path: str, there: dict[str, Add], published: PublishedTable) -> Iterator[str]:
    marks, keys = published.marks, published.vector_keys()
    wanted = {address: key for address, add in there.items() if (key := hidden_rows.key_of(add))}
    if keys != wanted:
        yield f"deletion vectors of {len(keys.items() ^ wanted.items())} data files differ"
    for address in keys.keys() & wanted.keys():
        if not hidden_rows.are_as(table_path, there[address], marks[address]):
            yield f"the deletion vector of {address.rpartition('/')[2]} differs"
