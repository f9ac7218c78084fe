"""Iceberg's Avro files: manifests, which list files of a table, and the lists of a snapshot's manifests.

Source: Iceberg's specification, "Manifests" and "IcebergManifest Lists", format versions 2 and 3.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import fastavro

from binlake.caches import remembered
from binlake.storage import files

Record = dict[str, Any]


def _optional(name: str, number: int, kind: Any) -> Record:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _required(name: str, number: int, kind: Any) -> Record:
    return {"name": name, "type": kind, "field-id": number}


def _by_field(name: str, number: int, key: int, value: int, kind: str) -> Record:
    """Return a field of values by the ids of columns: a list of pairs, as Avro's own maps have texts as keys alone."""
    pair = {"type": "record", "name": f"k{key}_v{value}", "fields": [_required("key", key, "int"),
                                                                     _required("value", value, kind)]}  # fmt: skip
    return _optional(name, number, {"type": "array", "logicalType": "map", "items": pair})


_OF_DATA_FILES = (
    _required("content", 134, "int"),
    _required("file_path", 100, "string"),
    _required("file_format", 101, "string"),
)
_BEHIND_PARTITION = (
    _required("record_count", 103, "long"),
    _required("file_size_in_bytes", 104, "long"),
    _by_field("value_counts", 109, 119, 120, "long"),
    _by_field("null_value_counts", 110, 121, 122, "long"),
    _by_field("lower_bounds", 125, 126, 127, "bytes"),
    _by_field("upper_bounds", 128, 129, 130, "bytes"),
    _optional("referenced_data_file", 143, "string"),
)
_OF_DATA_FILES_SINCE_3 = (
    _optional("first_row_id", 142, "long"),
    _optional("content_offset", 144, "long"),
    _optional("content_size_in_bytes", 145, "long"),
)
_OF_MANIFESTS = (
    _required("manifest_path", 500, "string"),
    _required("manifest_length", 501, "long"),
    _required("partition_spec_id", 502, "int"),
    _required("content", 517, "int"),
    _required("sequence_number", 515, "long"),
    _required("min_sequence_number", 516, "long"),
    _required("added_snapshot_id", 503, "long"),
    _required("added_files_count", 504, "int"),
    _required("existing_files_count", 505, "int"),
    _required("deleted_files_count", 506, "int"),
    _required("added_rows_count", 512, "long"),
    _required("existing_rows_count", 513, "long"),
    _required("deleted_rows_count", 514, "long"),
)
_OF_MANIFESTS_SINCE_3 = (_optional("first_row_id", 520, "long"),)


@remembered("schemas of manifests")
def _entry(format_version: int, partition: tuple[tuple[str, int], ...]) -> Any:
    """Return the schema of a manifest's entries. partition: the names and ids of the partition's fields."""
    values = [_optional(name, number, "string") for name, number in partition]
    of_data_files = [
        *_OF_DATA_FILES,
        _required("partition", 102, {"type": "record", "name": "r102", "fields": values}),
        *_BEHIND_PARTITION,
        *(_OF_DATA_FILES_SINCE_3 if format_version > 2 else ()),
    ]
    fields = [
        _required("status", 0, "int"),
        _optional("snapshot_id", 1, "long"),
        _optional("sequence_number", 3, "long"),
        _optional("file_sequence_number", 4, "long"),
        _required("data_file", 2, {"type": "record", "name": "r2", "fields": of_data_files}),
    ]
    return fastavro.parse_schema({"type": "record", "name": "manifest_entry", "fields": fields})


def _manifest(format_version: int) -> Any:
    """Return the schema of the entries of a list of manifests."""
    fields = [*_OF_MANIFESTS, *(_OF_MANIFESTS_SINCE_3 if format_version > 2 else ())]
    return fastavro.parse_schema({"type": "record", "name": "manifest_file", "fields": fields})


_MANIFEST = {version: _manifest(version) for version in (2, 3)}


def write_entries(
    path: str,
    entries: Iterable[Record],
    content: str,
    schema: Mapping[str, Any],
    partition: Sequence[Mapping[str, Any]],
    format_version: int,
) -> int:
    """Write a manifest, and return its bytes. content: data or deletes. schema, partition: the table's columns and the
    fields of its partitions, as JSON has them. format_version: of Iceberg's format. Raises OSError."""
    described = {
        "schema": json.dumps(schema), "schema-id": str(schema["schema-id"]), "partition-spec": json.dumps(partition),
        "partition-spec-id": "0", "content": content, "format-version": str(format_version),
    }  # fmt: skip
    of_partition = tuple((field["name"], field["field-id"]) for field in partition)
    return _written(path, _entry(format_version, of_partition), entries, described)


def write_manifests(path: str, manifests: Iterable[Record], snapshot: Mapping[str, Any], format_version: int) -> None:
    """Write the list of a snapshot's manifests. snapshot: as JSON has it. format_version: of Iceberg's format. Raises
    OSError."""
    described = {
        "snapshot-id": str(snapshot["snapshot-id"]),
        "parent-snapshot-id": str(snapshot.get("parent-snapshot-id", "null")),
        "sequence-number": str(snapshot["sequence-number"]),
        "format-version": str(format_version),
    }
    if "first-row-id" in snapshot:
        described["first-row-id"] = str(snapshot["first-row-id"])
    _written(path, _MANIFEST[format_version], manifests, described)


def _written(path: str, schema: Any, records: Iterable[Record], described: Mapping[str, str]) -> int:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, codec="deflate", metadata=dict(described))
    files.write_bytes(path, sink.getvalue())
    return sink.tell()


def read(path: str) -> list[Record]:
    """Read the records of a manifest or of a list of manifests. Raises OSError, ValueError."""
    with files.opened(path) as source:
        content = bytes(source.readall())
    records: Any = fastavro.reader(io.BytesIO(content))
    return list(records)
