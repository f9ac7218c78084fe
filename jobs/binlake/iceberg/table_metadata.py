"""The metadata file of an Iceberg table, of format version 2 or 3: ``_iceberg/metadata/v{number}.metadata.json``.

One number is one commit: its file is written where none is. ``version-hint.text`` names the newest for readers; whoever
was killed before it was written left a newer file than it names.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from binlake.errors import StagingError
from binlake.iceberg.iceberg_schema import IcebergColumn, IcebergSchema, IcebergType
from binlake.storage import files

FOLDER = "_iceberg/metadata"
REGISTERED = "_iceberg/registered"
"""Catalogs that are given the table's name write metadata files below it, each in a folder of its name."""
"""Below a table's folder. Delta's readers and its vacuum leave out folders whose names begin with ``_``."""
NEWEST_FORMAT = 3
_ROW_IDS = 3
"""The format version from which on rows have ids."""
HINT = "version-hint.text"
_METADATA = re.compile(r"v(\d+)\.metadata\.json")
MAIN = "main"
BATCH_TAG = "batch-"
"""How the names of tags begin that a batch left; other tags are pins."""
KEPT = 100
"""How many of the newest snapshots a table has, besides pinned ones, and how many metadata files."""
_BEFORE_PARTITIONS = 999
"""The id before those of the partitions' fields."""
DELTA_ID = "binlake.delta-table-id"
"""The property with the id of the Delta table that is published."""
_NAMES = "schema.name-mapping.default"
COMMENT = "comment"
"""The property with the table's comment."""
DELTA_VERSION, DELTA_COMMIT = "delta-version", "delta-commit"
"""Facts about a snapshot: which version of the Delta table it is, and a hash of that version's commit."""


def address_of(path: str) -> str:
    """Return a path as Iceberg writes it."""
    return path if "://" in path else f"file://{path}"


def path_at(address: str) -> str:
    """Return the path at an address."""
    return address.removeprefix("file://")


def normal_address(address: str) -> str:
    """Return an address in the one of its forms that ``address_of`` returns: others write ``file:/x`` for ``file:///x``
    and ``s3a`` or ``s3n`` for ``s3``, and end folders with a slash."""
    scheme, colon, rest = address.partition(":")
    if not colon or "/" in scheme:
        return address.rstrip("/")
    if scheme == "file":
        return f"file:///{rest.strip('/')}"
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}:{rest}".rstrip("/")


def is_numbered(name: str) -> bool:
    """Return whether a metadata file has a name that binlake gives."""
    return _METADATA.fullmatch(name) is not None


@dataclass(frozen=True)
class TableMetadata:
    """A table's metadata. number: of its file. content: as JSON has it."""

    table_path: str
    number: int
    content: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """Return the path of the folder of Iceberg's files."""
        return f"{self.table_path}/{FOLDER}"

    @property
    def snapshots(self) -> Sequence[Mapping[str, Any]]:
        """Return the snapshots, oldest first."""
        snapshots: Sequence[Mapping[str, Any]] = self.content["snapshots"]
        return snapshots

    @cached_property
    def current(self) -> Mapping[str, Any] | None:
        """Return the newest snapshot."""
        return self.snapshot(self.content.get("current-snapshot-id", -1))

    def snapshot(self, number: int) -> Mapping[str, Any] | None:
        """Return a snapshot by its id."""
        return next((each for each in self.snapshots if each["snapshot-id"] == number), None)

    @property
    def delta_version(self) -> int:
        """Return the Delta version that is published; -1 without one."""
        return int(self.current["summary"][DELTA_VERSION]) if self.current else -1

    @property
    def delta_commit(self) -> str:
        """Return the hash of the commit that is published; empty where it isn't known."""
        return str(self.current["summary"].get(DELTA_COMMIT, "")) if self.current else ""

    @property
    def delta_id(self) -> str:
        """Return the id of the Delta table."""
        return str(self.content["properties"].get(DELTA_ID, ""))

    @property
    def tags(self) -> dict[str, int]:
        """Return the ids of tagged snapshots by the tags' names."""
        return {name: ref["snapshot-id"] for name, ref in self.content["refs"].items() if name != MAIN}

    @property
    def is_of_a_batch(self) -> bool:
        """Return whether the newest snapshot has the tag of a batch."""
        newest = self.content.get("current-snapshot-id")
        return any(number == newest for name, number in self.tags.items() if name.startswith(BATCH_TAG))

    @cached_property
    def known_ids(self) -> dict[str, int]:
        """Return the ids that columns have or had, by their names in data files."""
        return {name: entry["field-id"] for name, entry in self._mapping.items()}

    @cached_property
    def _mapping(self) -> dict[str, dict[str, Any]]:
        """Return how columns are found in data files without ids, by their names there."""
        return {entry["names"][0]: entry for entry in json.loads(self.content["properties"].get(_NAMES, "[]"))}

    @property
    def known_types(self) -> dict[int, IcebergType]:
        """Return the newest type of each column that is or was there, by its id."""
        return {field["id"]: field["type"] for schema in self.content["schemas"] for field in schema["fields"]}

    @property
    def format_version(self) -> int:
        """Return the version of Iceberg's format."""
        return int(self.content["format-version"])

    @property
    def partition(self) -> Sequence[Mapping[str, Any]]:
        """Return the fields of the table's partitions, as JSON has them."""
        fields: Sequence[Mapping[str, Any]] = self.content["partition-specs"][0]["fields"]
        return fields

    @property
    def next_row(self) -> int | None:
        """Return the id of the next row; None where the format has none."""
        return self.content.get("next-row-id")

    @property
    def sequence_number(self) -> int:
        """Return the newest snapshot's sequence number."""
        return int(self.content["last-sequence-number"])

    @property
    def schema(self) -> Mapping[str, Any]:
        """Return the current schema as JSON has it; empty before the first snapshot."""
        current = self.content["current-schema-id"]
        return next((each for each in self.content["schemas"] if each["schema-id"] == current), {})

    def having(self, schema: IcebergSchema) -> TableMetadata:
        """Return the metadata with a schema as the current one."""
        schemas: list[dict[str, Any]] = list(self.content["schemas"])
        of_table = next((each for each in schemas if each["fields"] == schema.fields), None)
        if of_table is None:
            number = max((each["schema-id"] for each in schemas), default=-1) + 1
            of_table = {"type": "struct", "schema-id": number, "fields": schema.fields}
        # The current one is the last, so that the newest type of a column is found.
        schemas = [each for each in schemas if each["schema-id"] != of_table["schema-id"]] + [of_table]
        mapping = self._mapping | {column.stored: column.mapping for column in schema.columns}
        entries = list(mapping.values())
        ids = [each["field-id"] for entry in entries for each in (entry, *entry.get("fields", ()))]
        content = {
            **self.content, "schemas": schemas, "current-schema-id": of_table["schema-id"],
            "last-column-id": max(ids, default=0),
            "properties": {**self.content["properties"], _NAMES: json.dumps(entries, ensure_ascii=False)},
        }  # fmt: skip
        return replace(self, content=content)

    def described(self, comment: str) -> TableMetadata:
        """Return the metadata with the table's comment, where catalogs and engines look for it."""
        properties = self.content["properties"]
        if properties.get(COMMENT, "") == comment:
            return self
        return replace(self, content={**self.content, "properties": {**properties, COMMENT: comment}})

    def behind(self, snapshot: Mapping[str, Any], next_row: int | None, tag: str | None) -> TableMetadata:
        """Return the metadata with another snapshot, which is the newest; old ones go."""
        number = snapshot["snapshot-id"]
        refs = {**self.content["refs"], MAIN: {"snapshot-id": number, "type": "branch"}}
        entry = {"snapshot-id": number, "timestamp-ms": snapshot["timestamp-ms"]}
        content = {
            **self.content, "refs": refs, "current-snapshot-id": number,
            "last-sequence-number": snapshot["sequence-number"], "last-updated-ms": snapshot["timestamp-ms"],
            "snapshots": [*self.snapshots, snapshot], "snapshot-log": [*self.content["snapshot-log"], entry],
        } | ({} if next_row is None else {"next-row-id": next_row})  # fmt: skip
        later = replace(self, content=content)
        later = later.tagged(tag) if tag else later
        recent = {each["snapshot-id"] for each in later.snapshots[-KEPT:]}
        return later.without({each["snapshot-id"] for each in later.snapshots} - recent - later._pinned)

    @property
    def _pinned(self) -> set[int]:
        return {number for name, number in self.tags.items() if not name.startswith(BATCH_TAG)}

    def without(self, gone: set[int]) -> TableMetadata:
        """Return the metadata without some snapshots, and without what only they need."""
        if not gone:
            return self
        kept = [each for each in self.snapshots if each["snapshot-id"] not in gone]
        schemas = {each["schema-id"] for each in kept} | {self.content["current-schema-id"]}
        content = {
            **self.content, "snapshots": kept,
            "snapshot-log": [each for each in self.content["snapshot-log"] if each["snapshot-id"] not in gone],
            "refs": {name: ref for name, ref in self.content["refs"].items() if ref["snapshot-id"] not in gone},
            "schemas": [each for each in self.content["schemas"] if each["schema-id"] in schemas],
        }  # fmt: skip
        return replace(self, content=content)

    def without_snapshots(self) -> TableMetadata:
        """Return the metadata with the columns' ids alone, which data files have: no snapshot, and no schema of one."""
        content = {**self.content, "snapshots": [], "snapshot-log": [], "refs": {}, "schemas": [], "metadata-log": []}
        content.pop("current-snapshot-id", None)
        return replace(self, content=content)

    def as_of(self, number: int) -> TableMetadata | None:
        """Return the metadata as they were when a snapshot was the newest, as far as it is kept; None where it isn't.
        Readers that look for the newest snapshot, or for the newest schema, find its own."""
        snapshot = self.snapshot(number)
        if snapshot is None:
            return None
        later = self.snapshots[self.snapshots.index(snapshot) + 1 :]
        main = {"snapshot-id": number, "type": "branch"}
        content = {
            **self.content, "refs": {**self.content["refs"], MAIN: main}, "current-snapshot-id": number,
            "current-schema-id": snapshot["schema-id"], "last-sequence-number": snapshot["sequence-number"],
            "last-updated-ms": snapshot["timestamp-ms"],
        }  # fmt: skip
        if self.next_row is not None:
            content["next-row-id"] = snapshot["first-row-id"] + snapshot["added-rows"]
        return replace(self, content=content).without({each["snapshot-id"] for each in later})

    def pinned(self, pins: Mapping[str, int]) -> TableMetadata:
        """Return the metadata with these pins as tags, and no others. pins: Delta versions by their names; those that
        are no snapshot are left out, and one that is called like the branch."""
        there = {each["snapshot-id"] for each in self.snapshots}
        names = {name: {"snapshot-id": version + 1, "type": "tag"} for name, version in pins.items()}
        refs = {name: ref for name, ref in self.content["refs"].items() if name == MAIN or name.startswith(BATCH_TAG)}
        refs |= {name: tag for name, tag in names.items() if tag["snapshot-id"] in there and name != MAIN}
        return self if refs == self.content["refs"] else replace(self, content={**self.content, "refs": refs})

    def tagged(self, tag: str) -> TableMetadata:
        """Return the metadata with a tag on the newest snapshot."""
        refs = {**self.content["refs"], tag: {"snapshot-id": self.content["current-snapshot-id"], "type": "tag"}}
        return replace(self, content={**self.content, "refs": refs})

    def timestamp(self) -> int:
        """Return the time now in milliseconds, which is never before the last change."""
        return max(time.time_ns() // 1_000_000, int(self.content["last-updated-ms"]))

    def written(self) -> TableMetadata:
        """Write the metadata under the next number, and return them. Raises FileExistsError where another wrote that;
        OSError."""
        later = replace(self, number=self.number + 1)
        files.write_if_absent(later.path, json.dumps(later.content, ensure_ascii=False))
        later.name_newest()
        if later.number > KEPT:
            files.remove_file(f"{self.folder}/v{later.number - KEPT}.metadata.json")
        return later

    @property
    def path(self) -> str:
        """Return the path of the file."""
        return f"{self.folder}/v{self.number}.metadata.json"

    @property
    def file(self) -> Any:
        """Return the facts about the file that distinguish it from another of its name; None where it isn't there."""
        return files.stat(self.path)

    def is_own(self, name: str) -> bool:
        """Return whether a file of the folder is one of the newest metadata files, or names the newest."""
        match = _METADATA.fullmatch(name)
        return name == HINT or bool(match and int(match[1]) > self.number - KEPT)

    def is_newest(self) -> bool:
        """Return whether no later metadata file is there."""
        return not files.exists(replace(self, number=self.number + 1).path)

    def name_newest(self) -> None:
        """Write which number is the newest, for readers. Raises OSError."""
        files.replace_bytes(f"{self.folder}/{HINT}", str(self.number).encode())

    def is_named(self) -> bool:
        """Return whether readers see this number."""
        return _hinted(self.folder) == self.number


def begun(
    table_path: str, delta_id: str, number: int, format_version: int, partition: Sequence[Mapping[str, Any]]
) -> TableMetadata:
    """Return the metadata of a table without snapshots. number: of the newest metadata file in its folder.
    format_version: of Iceberg's format. partition: the fields of its partitions, as JSON has them."""
    content = {
        "format-version": format_version, "table-uuid": str(uuid.uuid4()), "location": address_of(table_path),
        "last-sequence-number": 0, "last-updated-ms": time.time_ns() // 1_000_000, "last-column-id": 0,
        "current-schema-id": 0, "schemas": [], "default-spec-id": 0,
        "last-partition-id": max([_BEFORE_PARTITIONS, *(field["field-id"] for field in partition)]),
        "partition-specs": [{"spec-id": 0, "fields": [*partition]}], "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}], "refs": {}, "snapshots": [], "snapshot-log": [],
        "metadata-log": [], **({"next-row-id": 0} if format_version >= _ROW_IDS else {}),
        "properties": {
            # Data files are Delta's: Iceberg's own upkeep must not delete them.
            "gc.enabled": "false", "write.metadata.path": f"{address_of(table_path)}/{FOLDER}", DELTA_ID: delta_id,
        },
    }  # fmt: skip
    return TableMetadata(table_path, number, content)


def newest(table_path: str) -> TableMetadata | None:
    """Read a table's newest metadata; None where it was never published. Raises OSError, ValueError."""
    folder = f"{table_path}/{FOLDER}"
    number = _hinted(folder)
    if number is None or not files.exists(f"{folder}/v{number}.metadata.json"):
        names = (file.name for file in files.list_files(folder))
        number = max((int(match[1]) for name in names if (match := _METADATA.fullmatch(name))), default=None)
        if number is None:
            return None
    while files.exists(f"{folder}/v{number + 1}.metadata.json"):
        number += 1
    return TableMetadata(table_path, number, json.loads(files.read_text(f"{folder}/v{number}.metadata.json")))


def partitioned_by(columns: Sequence[IcebergColumn]) -> list[dict[str, Any]]:
    """Return the fields of partitions, as JSON has them, each of which has the values of a column."""
    return [
        {"name": column.name, "source-id": column.id, "field-id": number, "transform": "identity"}
        for number, column in enumerate(columns, _BEFORE_PARTITIONS + 1)
    ]


def published_ids(table_path: str) -> dict[str, int]:
    """Return the ids by which a table's columns are published, by their names in data files; none where it isn't
    published, or its metadata can't be read: then it is published from the start."""
    try:
        metadata = newest(table_path)
    except (OSError, ValueError, KeyError, StagingError):
        return {}
    return metadata.known_ids if metadata else {}


def _hinted(folder: str) -> int | None:
    path = f"{folder}/{HINT}"
    if not files.exists(path):
        return None
    text = files.read_text(path).strip()
    return int(text) if text.isdecimal() else None
